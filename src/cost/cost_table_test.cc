#include "cost/cost_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/text.h"
#include "config/test_environment.h"

namespace epl {
namespace {

using ::testing::HasSubstr;

const char* const kTable = R"({
 "version": 1,
 "machine": {"processor": "a core", "threads": "1"},
 "operators": {"aten::relu f32[8] -> f32[8]": {"seconds": 2e-6, "count": 3}},
 "products": {"f32": {"m": [1, 64], "n": [1, 64], "k": [8], "seconds": [[1e-6], [2e-6], [3e-6], [4e-6]]}},
 "families": {"bytes": {"first": 1e-6, "each": 5e-11, "points": 12, "error": 0.08}},
 "collectives": {"threads": {"all_reduce": {"2": [[1024, 9e-6], [1048576, 2e-4]]}}},
 "updates": {"adam": {"first": 1e-6, "each": 1e-9, "points": 4, "error": 0.1}},
 "copies": [[1, 12.5], [2, 13.5]]
})";

CostTable parsed(const std::string& text) { return parse_cost_table(text, "t.json", "a test"); }

std::string with(const std::string& old_text, const std::string& new_text) {
  std::string text = kTable;
  const size_t place = text.find(old_text);
  EXPECT_NE(place, std::string::npos) << old_text;
  return text.replace(place, old_text.size(), new_text);
}

TEST(CostTable, IsReadAndPrintsWhatParsesBack) {
  const CostTable table = parsed(kTable);
  EXPECT_EQ(table.operators.at("aten::relu f32[8] -> f32[8]").count, 3);
  EXPECT_DOUBLE_EQ(table.products.at("f32").seconds_of(64, 64, 8), 4e-6);
  EXPECT_EQ(table.families.at("bytes").error, 0.08);
  EXPECT_EQ(table.collectives.at("threads").at("all_reduce").at(2).size(), 2u);
  EXPECT_EQ(table.copies.at(1).gbps, 13.5);
  const std::string printed = print_cost_table(table);
  EXPECT_EQ(print_cost_table(parsed(printed)), printed);
  for (const char* said : {"a core", "aten::relu", "adam", "all_reduce", "13.5", "0.08"}) {
    EXPECT_THAT(printed, HasSubstr(said));
  }
  EXPECT_EQ(print_cost_table(parsed(print_cost_table(CostTable()))), print_cost_table({}));
}

TEST(CostTable, RefusesWhatCannotBe) {
  const struct {
    const char* from;
    const char* to;
    const char* what;
  } cases[] = {
      {"\"version\": 1", "\"version\": 2", "version is 2"},
      {"\"operators\"", "\"operator\"", "try:      \"operators\""},
      {"\"seconds\": 2e-6", "\"seconds\": 0", "must be a number greater than 0, not 0"},
      {"\"m\": [1, 64]", "\"m\": [64, 1]", "products.f32.m has 1"},
      {"\"m\": [1, 64]", "\"m\": []", "products.f32.m is empty"},
      {", [4e-6]", "", "has no time above 0 for each m, n and k"},
      {"[4e-6]", "[0]", "has no time above 0 for each m, n and k"},
      {"[4e-6]", "[4e-6, 1]", "rows of 1 numbers"},
      {"\"all_reduce\"", "\"allreduce\"", "try:      \"all_reduce\""},
      {"\"2\":", "\"1\":", "is no number of members"},
      {"\"2\":", "\"two\":", "is no number of members"},
      {"[1024, 9e-6]", "[1024, 0]", "has a time of 0"},
      {"[1, 12.5]", "[1, 0]", "copies has a row of 0"},
  };
  for (const auto& row : cases) {
    const std::string said = error_of([&] { parsed(with(row.from, row.to)); });
    EXPECT_THAT(said, HasSubstr(row.what)) << row.to;
    EXPECT_THAT(said, HasSubstr("\n  asked by: a test\n  try:      ")) << row.to;
  }
}

TEST(CostTable, NeverCrashesOnForeignBytes) {
  std::mt19937 random(11);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = kTable;
    for (int change = 0; change < 2; ++change) {
      const size_t place = random() % text.size();
      if (random() % 2 == 0) {
        text[place] = "{}[]\",:0-9.eE"[random() % 13];
      } else {
        text.erase(place, 1 + random() % 12);
      }
    }
    try {
      const CostTable table = parsed(text);
      const std::string printed = print_cost_table(table);
      EXPECT_EQ(print_cost_table(parsed(printed)), printed);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, 3000);
}

TEST(CostTable, JoinsTimesByTheirCounts) {
  CostTable table = parsed(kTable);
  CostTable other = parsed(kTable);
  other.operators["aten::relu f32[8] -> f32[8]"] = {6e-6, 1};
  other.operators["aten::neg f32[8] -> f32[8]"] = {1e-6, 2};
  other.families["bytes"].each = 7e-11;
  other.collectives["threads"]["all_reduce"][3] = {{8, 1e-6}};
  table.merge(other, "a test");
  EXPECT_DOUBLE_EQ(table.operators.at("aten::relu f32[8] -> f32[8]").seconds, 3e-6);
  EXPECT_EQ(table.operators.at("aten::relu f32[8] -> f32[8]").count, 4);
  EXPECT_EQ(table.operators.size(), 2u);
  EXPECT_EQ(table.families.at("bytes").each, 7e-11);
  EXPECT_EQ(table.collectives.at("threads").at("all_reduce").size(), 2u);
}

TEST(CostTable, JoinsTheSameWhateverComesFirst) {
  std::mt19937 random(12);
  CostTable a, b;
  for (int i = 0; i < 50; ++i) {
    const auto time = [&] {
      return MeasuredTime{1e-6 * static_cast<double>(1 + random() % 100),
                          static_cast<int64_t>(1 + random() % 9)};
    };
    if (random() % 3 > 0) a.operators[concat("op ", i)] = time();
    if (random() % 3 > 0) b.operators[concat("op ", i)] = time();
  }
  CostTable ab = a, ba = b;
  ab.merge(b, "a test");
  ba.merge(a, "a test");
  ASSERT_EQ(ab.operators.size(), ba.operators.size());
  for (const auto& [op, time] : ab.operators) {
    EXPECT_DOUBLE_EQ(time.seconds, ba.operators.at(op).seconds);
    EXPECT_EQ(time.count, ba.operators.at(op).count);
  }
}

TEST(CostTable, DoesNotJoinTwoMachines) {
  CostTable table = parsed(kTable);
  const CostTable other = parsed(with("\"threads\": \"1\"", "\"threads\": \"2\""));
  EXPECT_EQ(error_of([&] { table.merge(other, "a test"); }),
            "epl: cannot join costs of two machines: threads is \"1\" and \"2\"\n"
            "  asked by: a test\n"
            "  try:      a table for each of them");
}

}  // namespace
}  // namespace epl

#include "base/text_line.h"

#include <epl/error.h>
#include <gtest/gtest.h>

#include <functional>

namespace epl {
namespace {

std::string complaint(const std::string& text, const std::function<void(TextLine&)>& read) {
  TextLine line("list", text, 3);
  try {
    read(line);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(TextLine, ReadsTokensWithAnyBlanksBetweenThem) {
  TextLine line("list", "   run step  micro batch 3 : s4,_", 1);
  EXPECT_TRUE(line.take("run"));
  EXPECT_FALSE(line.take("forward"));
  EXPECT_EQ(line.until("  "), "step");
  line.expect("micro batch");
  EXPECT_EQ(line.small_integer(), 3);
  line.expect(":");
  EXPECT_EQ(line.word(), "s4");
  line.expect(",");
  EXPECT_EQ(line.until("mark"), "_");
  line.expect_end();
}

TEST(TextLine, ReadsStringsWithTheirEscapes) {
  TextLine line("list", R"("a \"b\" \\ c\n" plain)", 1);
  EXPECT_EQ(line.word_or_string(), "a \"b\" \\ c\n");
  EXPECT_EQ(line.word_or_string(), "plain");
}

TEST(TextLine, TellsIntegersFromOtherNumbers) {
  TextLine line("list", "-12 1e-05 -inf 3.5 7.5", 1);
  EXPECT_EQ(line.integer(), -12);
  EXPECT_EQ(line.number().real, 1e-05);
  EXPECT_LT(line.number().real, 0);
  EXPECT_FALSE(line.number().is_integer);
  EXPECT_EQ(line.digits(), 7);
  EXPECT_EQ(line.until("  "), ".5");
}

TEST(TextLine, NamesWhatItReadsAndWhere) {
  EXPECT_EQ(complaint("a b", [](TextLine& line) { line.word(), line.expect("c"); }),
            "epl: cannot read the list: expected 'c' at column 3 of line 3: a b");
}

TEST(TextLine, RefusesNumbersThatAreTooLarge) {
  const char* const huge = "99999999999999999999";
  EXPECT_NE(complaint(huge, [](TextLine& line) { line.integer(); }).find("a smaller number"),
            std::string::npos);
  EXPECT_NE(complaint(huge, [](TextLine& line) { line.digits(); }).find("a smaller number"),
            std::string::npos);
  EXPECT_NE(complaint("3000000000", [](TextLine& line) { line.small_integer(); })
                .find("a smaller number"),
            std::string::npos);
}

TEST(TextLine, RefusesAnIndexBehindTheEnd) {
  EXPECT_EQ(complaint("4", [](TextLine& line) { line.index(4); }),
            "epl: cannot read the list: 4 of 4 at column 2 of line 3: 4");
  EXPECT_EQ(complaint("-1", [](TextLine& line) { line.index(0); }),
            "epl: cannot read the list: -1 where there is none at column 3 of line 3: -1");
}

TEST(TextLine, RefusesNumbersThatNobodyWrites) {
  for (const char* text : {"0x10", "nan(1)", "x", ""}) {
    EXPECT_NE(complaint(text, [](TextLine& line) { line.number(); }).find("expected a number"),
              std::string::npos)
        << text;
  }
}

TEST(LinesOf, LeavesOutBlankLinesAndCountsThem) {
  std::vector<TextLine> lines = lines_of("list", "\na\n   \n  b");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(complaint("", [&](TextLine&) { lines[1].fail("no"); }),
            "epl: cannot read the list: no at column 3 of line 4:   b");
}

}  // namespace
}  // namespace epl

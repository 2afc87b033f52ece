#include <epl/strategy.h>

#include <thread>

#include "base/text.h"
#include "config/test_environment.h"

namespace epl {
namespace {

constexpr SourceLocation kOuter{"net.cc", 10};
constexpr SourceLocation kInner{"net.cc", 20};

using Make = Strategy (*)(int, std::string, SourceLocation);

TEST(StrategyTest, PrintsAsItIsWritten) {
  EXPECT_EQ(replicate().str(), "epl::replicate(1)");
  EXPECT_EQ(replicate(2, "body").str(), "epl::replicate(2, \"body\")");
  EXPECT_EQ(split(8, "classifier", kOuter).asked_by(),
            "epl::split(8, \"classifier\") at net.cc:10");
}

TEST(StrategyTest, KnowsTheLineThatMadeIt) {
  const Strategy strategy = split(2);
  EXPECT_EQ(strategy.where.str(), concat(__FILE__, ":", __LINE__ - 1));
}

TEST(StrategyTest, NeedsAtLeastOneDevice) {
  EXPECT_EQ(error_of([] { replicate(0, "", kOuter); }),
            "epl: epl::replicate(0) has no device\n"
            "  asked by: epl::replicate(0) at net.cc:10\n"
            "  try:      a device_count of at least 1");
  EXPECT_EQ(error_of([] { split(-2, "wide", kOuter); }),
            "epl: epl::split(-2, \"wide\") has no device\n"
            "  asked by: epl::split(-2, \"wide\") at net.cc:10\n"
            "  try:      a device_count of at least 1");
}

TEST(WithTest, DoesNotNestInAnyCombination) {
  const struct {
    Make outer, inner;
    const char* message;
  } cases[] = {
      {replicate, replicate,
       "epl: scopes do not nest: epl::replicate(2, \"b\") inside of epl::replicate(1, \"a\")\n"
       "  asked by: epl::replicate(2, \"b\") at net.cc:20, inside of epl::replicate(1, \"a\") at "
       "net.cc:10\n"
       "  try:      end the outer scope before the inner one begins"},
      {replicate, split,
       "epl: scopes do not nest: epl::split(2, \"b\") inside of epl::replicate(1, \"a\")\n"
       "  asked by: epl::split(2, \"b\") at net.cc:20, inside of epl::replicate(1, \"a\") at "
       "net.cc:10\n"
       "  try:      end the outer scope before the inner one begins"},
      {split, replicate,
       "epl: scopes do not nest: epl::replicate(2, \"b\") inside of epl::split(1, \"a\")\n"
       "  asked by: epl::replicate(2, \"b\") at net.cc:20, inside of epl::split(1, \"a\") at "
       "net.cc:10\n"
       "  try:      end the outer scope before the inner one begins"},
      {split, split,
       "epl: scopes do not nest: epl::split(2, \"b\") inside of epl::split(1, \"a\")\n"
       "  asked by: epl::split(2, \"b\") at net.cc:20, inside of epl::split(1, \"a\") at "
       "net.cc:10\n"
       "  try:      end the outer scope before the inner one begins"},
  };
  for (const auto& test : cases) {
    With outer(test.outer(1, "a", kOuter));
    EXPECT_EQ(error_of([&] { With inner(test.inner(2, "b", kInner)); }), test.message);
  }
}

TEST(WithTest, DoesNotNestEvenWithTheSameName) {
  With outer(replicate(1, "a", kOuter));
  EXPECT_THROW(With inner(replicate(1, "a", kInner)), Error);
}

TEST(WithTest, LeavesTheOuterScopeOpenWhenTheInnerIsRefused) {
  With outer(replicate(1, "a", kOuter));
  for (int i = 0; i < 2; ++i) EXPECT_THROW(With inner(split(2, "b", kInner)), Error);
}

TEST(WithTest, RefusesADefaultStrategyInside) {
  for (Make scope : {replicate, split}) {
    for (Make strategy : {replicate, split}) {
      With outer(scope(1, "a", kOuter));
      const std::string inner_text = strategy(2, "b", kInner).str();
      const std::string outer_text = scope(1, "a", kOuter).str();
      EXPECT_EQ(error_of([&] { set_default_strategy(strategy(2, "b", kInner)); }),
                concat("epl: the default strategy cannot be set inside of a scope: "
                       "epl::set_default_strategy(",
                       inner_text, ") inside of ", outer_text, "\n  asked by: ", inner_text,
                       " at net.cc:20, inside of ", outer_text, " at net.cc:10\n",
                       "  try:      set it before the scope begins or after it ends"));
    }
  }
}

TEST(WithTest, EndsWithItsBlock) {
  { With first(replicate(1)); }
  EXPECT_EQ(error_of([] { With second(split(2)); }), "no error");
}

TEST(WithTest, EndsWithAnException) {
  EXPECT_THROW(
      {
        With scope(replicate(1));
        throw std::runtime_error("of the user's own");
      },
      std::runtime_error);
  EXPECT_EQ(error_of([] { With second(split(2)); }), "no error");
}

TEST(WithTest, BelongsToItsThread) {
  With outer(replicate(1));
  std::string message;
  std::thread([&] { message = error_of([] { With inner(split(2)); }); }).join();
  EXPECT_EQ(message, "no error");
}

}  // namespace
}  // namespace epl

#include "base/text.h"

#include <gtest/gtest.h>

#include <list>

#include "base/check.h"

namespace epl {
namespace {

TEST(Concat, PutsItsPartsOneAfterAnother) {
  EXPECT_EQ(concat("s", 3, " is ", 0.5, ' ', std::string("of 1")), "s3 is 0.5 of 1");
}

TEST(Join, PutsTheSeparatorBetweenItems) {
  EXPECT_EQ(join(std::vector<int>{1, 2, 3}, ", "), "1, 2, 3");
  EXPECT_EQ(join(std::list<std::string>{"a"}, ", "), "a");
  EXPECT_EQ(join(std::vector<int>{}, ", "), "");
}

TEST(HumanBytes, ChoosesTheUnit) {
  const std::pair<int64_t, const char*> cases[] = {
      {0, "0 B"},
      {1023, "1023 B"},
      {1024, "1.0 KiB"},
      {1536, "1.5 KiB"},
      {int64_t{3} << 20, "3.0 MiB"},
      {int64_t{5} << 30, "5.0 GiB"},
      {int64_t{7} << 40, "7.0 TiB"},
      {int64_t{2} << 50, "2.0 PiB"},
      {int64_t{3} << 60, "3072.0 PiB"},
  };
  for (const auto& [bytes, text] : cases) EXPECT_EQ(human_bytes(bytes), text);
}

// 1048575 bytes are 1023.999 KiB, which would print as 1024.0 KiB.
TEST(HumanBytes, NeverRoundsUpToAThousandAndTwentyFourOfAUnit) {
  EXPECT_EQ(human_bytes((int64_t{1} << 20) - 1), "1.0 MiB");
  EXPECT_EQ(human_bytes((int64_t{1} << 30) - 1), "1.0 GiB");
}

template <typename Exception, typename Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Exception& error) {
    return error.what();
  }
  return "no exception";
}

TEST(Check, SaysWhatCannotBeWhoAskedAndWhatToTry) {
  EXPECT_EQ(
      message_of<Error>([] { EPL_CHECK(1 > 2, "cannot cut 3 rows", "train.cc:1", "4 rows"); }),
      "epl: cannot cut 3 rows\n  asked by: train.cc:1\n  try:      4 rows");
}

TEST(Check, LeavesOutWhatIsNotSaid) {
  EXPECT_EQ(message_of<Error>([] { EPL_CHECK(false, "cannot be"); }), "epl: cannot be");
  EXPECT_EQ(message_of<Error>([] { EPL_CHECK(false, "cannot be", "", "that"); }),
            "epl: cannot be\n  try:      that");
}

TEST(Check, PassesWhereItsConditionHolds) {
  EXPECT_NO_THROW(EPL_CHECK(2 > 1, "cannot be"));
  EXPECT_NO_THROW(EPL_ASSERT(2 > 1, "cannot be"));
}

TEST(Assert, NamesItsConditionAndItsPlace) {
  const std::string message =
      message_of<InternalError>([] { EPL_ASSERT(1 > 2, concat("slot ", 3, " is lost")); });
  const std::string begin = "epl internal error: slot 3 is lost (1 > 2 at ";
  EXPECT_EQ(message.substr(0, begin.size()), begin);
  EXPECT_NE(message.find("text_test.cc:"), std::string::npos) << message;
}

}  // namespace
}  // namespace epl

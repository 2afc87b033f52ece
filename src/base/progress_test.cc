#include "base/progress.h"

#include <gtest/gtest.h>

#include <sstream>

namespace epl {
namespace {

std::string said(double first) {
  std::ostringstream text;
  std::streambuf* const before = std::clog.rdbuf(text.rdbuf());
  Progress progress("counting", first);
  for (size_t i = 1; i <= 3; ++i) progress.reached(i, 3);
  std::clog.rdbuf(before);
  return text.str();
}

TEST(Progress, SaysNothingOfWhatIsQuick) { EXPECT_EQ(said(60), ""); }

TEST(Progress, SaysHowFarSlowWorkIs) {
  EXPECT_EQ(said(0).rfind("epl: counting: 1 of 3 operators after 0 s\n", 0), 0U) << said(0);
}

}  // namespace
}  // namespace epl

// A program with several devices that ended right after epl::init(), or by an error in its first
// step, waited for ever at its end: device threads that had only just begun asked LibTorch how many
// threads it has while the process was taking LibTorch's thread pool down, and DeviceTeam waited
// for them.
#include <epl/epl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

namespace epl {
namespace {

void end_at_once() {
  alarm(20);  // its signal ends a program that hangs
  setenv("EPL_DEVICES", "4", 1);
  init();
  exit(0);
}

TEST(ExitAfterInit, DoesNotHang) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  for (int i = 0; i < 5; ++i) EXPECT_EXIT(end_at_once(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace epl

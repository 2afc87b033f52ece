#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "comm/communicator.h"
#include "comm/test_failures.h"
#include "comm/test_operations.h"
#include "comm/test_threads.h"

namespace epl::comm {
namespace {

using namespace testing;  // NOLINT: the helpers of this folder

Ends local(int size, Watch& watch, std::chrono::milliseconds deadline = std::chrono::minutes(1)) {
  return make_local_communicators(size, watch, {"test", deadline});
}

class LocalCommunicator : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Members, LocalCommunicator, ::testing::Range(1, 9));

TEST_P(LocalCommunicator, GivesEveryMemberTheResultOfEveryOperation) {
  Watch watch;
  expect_no_errors(run_members(local(GetParam(), watch), check_every_operation));
}

TEST(LocalCommunicator, CutsLargeTensorsOverTheMembers) {
  for (const int size : {1, 2, 5}) {
    Watch watch;
    expect_no_errors(run_members(local(size, watch), check_large_tensors));
  }
}

TEST(LocalCommunicator, NamesBothCallsWhereMembersCallDifferentThings) {
  Watch watch;
  check_disagreements([&](int size) { return local(size, watch); });
}

TEST(LocalCommunicator, RefusesBadArgumentsOfOneMember) {
  Watch watch;
  check_bad_arguments(local(2, watch));
}

TEST(LocalCommunicator, GivesUpAtTheDeadline) {
  Watch watch;
  check_deadlines([&](int size) { return local(size, watch, std::chrono::milliseconds(50)); });
}

TEST(LocalCommunicator, EndsEveryWaitWhenTheWatchFails) {
  check_failing_watch([](int size, Watch& watch) { return local(size, watch); });
}

TEST(LocalCommunicator, EndsEveryWaitThatIsInterrupted) {
  check_interrupts([](int size, Watch& watch, const std::function<void()>& meanwhile) {
    return make_local_communicators(size, watch, {"test", std::chrono::minutes(1), meanwhile});
  });
}

TEST(LocalCommunicator, SaysThatAMemberHasLeft) {
  Watch watch;
  check_leaving([&](int size) { return local(size, watch); });
}

}  // namespace
}  // namespace epl::comm

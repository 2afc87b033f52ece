#include "comm/communicator.h"
#include "comm/test_failures.h"
#include "comm/test_kills.h"
#include "comm/test_operations.h"
#include "comm/test_tcp.h"
#include "comm/test_threads.h"

namespace epl::comm {
namespace {

using testing::connect_ends;
using testing::Ends;
using testing::run_members;

TEST(TcpCommunicator, DoesEveryOperation) {
  for (const int size : {1, 2, 3, 4}) {
    Watch watch;
    const Ends ends = connect_ends(size, watch, std::chrono::seconds(20));
    testing::expect_no_errors(run_members(ends, testing::check_every_operation));
  }
}

TEST(TcpCommunicator, MovesLargeTensors) {
  for (const int size : {2, 3}) {
    Watch watch;
    const Ends ends = connect_ends(size, watch, std::chrono::seconds(20));
    testing::expect_no_errors(run_members(ends, testing::check_large_tensors));
  }
}

TEST(TcpCommunicator, NamesBothCallsWhereMembersDisagree) {
  Watch watch;
  testing::check_disagreements(
      [&](int size) { return connect_ends(size, watch, std::chrono::seconds(20)); });
}

TEST(TcpCommunicator, RefusesBadArguments) {
  Watch watch;
  testing::check_bad_arguments(connect_ends(2, watch, std::chrono::seconds(20)));
}

TEST(TcpCommunicator, EndsWaitsAtTheDeadline) {
  Watch watch;
  testing::check_deadlines(
      [&](int size) { return connect_ends(size, watch, std::chrono::milliseconds(200)); });
}

TEST(TcpCommunicator, EndsWaitsWhenTheJobFails) {
  testing::check_failing_watch(
      [](int size, Watch& watch) { return connect_ends(size, watch, std::chrono::seconds(20)); });
}

TEST(TcpCommunicator, EndsEveryWaitThatIsInterrupted) {
  testing::check_interrupts([](int size, Watch& watch, const std::function<void()>& meanwhile) {
    return connect_ends(size, watch, std::chrono::minutes(1), meanwhile);
  });
}

TEST(TcpCommunicator, EndsACallInWhichAMemberIsKilled) {
  testing::check_kill_in_mid_call([](int rank, Watch& watch, testing::SharedText& texts) {
    return make_tcp_communicator(rank, 2, watch, texts.exchange(rank),
                                 {"test", std::chrono::minutes(1)}, "");
  });
}

TEST(TcpCommunicator, NamesAMemberThatLeft) {
  Watch watch;
  testing::check_leaving(
      [&](int size) { return connect_ends(size, watch, std::chrono::seconds(20)); });
}

}  // namespace
}  // namespace epl::comm

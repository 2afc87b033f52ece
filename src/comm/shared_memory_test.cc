#include <ATen/ATen.h>
#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <future>
#include <string>

#include "comm/communicator.h"
#include "comm/test_failures.h"
#include "comm/test_forks.h"
#include "comm/test_kills.h"
#include "comm/test_operations.h"
#include "comm/test_threads.h"

namespace epl::comm {
namespace {

using namespace testing;  // NOLINT: the helpers of this folder

// Members that are threads: what fails is seen by the test itself, and by sanitizers.
Ends shared_memory(int size, Watch& watch,
                   std::chrono::milliseconds deadline = std::chrono::minutes(1),
                   const std::function<void()>& meanwhile = {}) {
  SharedText texts(size);
  std::vector<std::future<std::unique_ptr<Communicator>>> coming;
  for (int rank = 0; rank < size; ++rank) {
    coming.push_back(std::async(std::launch::async, [&, rank] {
      return make_shared_memory_communicator(rank, size, watch, texts.exchange(rank),
                                             {"test", deadline, meanwhile});
    }));
  }
  Ends ends;
  for (auto& end : coming) ends.push_back(end.get());
  return ends;
}

// A member that is a process of its own: 0, or 1 with the reason on stderr.
ProcessBody member_of(SharedText& texts, int size, const Body& body) {
  return [&texts, size, body](int rank) {
    Watch watch;
    const auto end = make_shared_memory_communicator(rank, size, watch, texts.exchange(rank),
                                                     {"test", std::chrono::minutes(1)});
    body(*end);
  };
}

int descriptors() {
  DIR* folder = opendir("/proc/self/fd");
  int count = 0;
  while (readdir(folder)) ++count;
  closedir(folder);
  return count;
}

int mappings_of_shared_memory() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:epl") != line.npos;
  return count;
}

class SharedMemoryCommunicator : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Members, SharedMemoryCommunicator, ::testing::Range(1, 9));

TEST_P(SharedMemoryCommunicator, GivesEveryMemberTheResultOfEveryOperation) {
  Watch watch;
  expect_no_errors(run_members(shared_memory(GetParam(), watch), check_every_operation));
}

TEST(SharedMemoryCommunicator, WorksThroughLargeTensorsInRounds) {
  for (const int size : {1, 2, 5}) {
    Watch watch;
    expect_no_errors(run_members(shared_memory(size, watch), check_large_tensors));
  }
}

TEST(SharedMemoryCommunicator, JoinsProcesses) {
  for (const int size : {2, 3}) {
    SharedText texts(size);
    const auto ends = run_processes(size, member_of(texts, size, [](Communicator& end) {
                                      check_every_operation(end);
                                      check_large_tensors(end);
                                    }));
    EXPECT_THAT(ends, ::testing::Each(0)) << size << " processes";
  }
}

TEST(SharedMemoryCommunicator, NamesBothCallsWhereMembersCallDifferentThings) {
  Watch watch;
  check_disagreements([&](int size) { return shared_memory(size, watch); });
}

TEST(SharedMemoryCommunicator, RefusesBadArgumentsOfOneMember) {
  Watch watch;
  check_bad_arguments(shared_memory(2, watch));
}

TEST(SharedMemoryCommunicator, GivesUpAtTheDeadline) {
  Watch watch;
  check_deadlines(
      [&](int size) { return shared_memory(size, watch, std::chrono::milliseconds(50)); });
}

TEST(SharedMemoryCommunicator, EndsEveryWaitWhenTheWatchFails) {
  check_failing_watch([](int size, Watch& watch) { return shared_memory(size, watch); });
}

TEST(SharedMemoryCommunicator, EndsEveryWaitThatIsInterrupted) {
  check_interrupts([](int size, Watch& watch, const std::function<void()>& meanwhile) {
    return shared_memory(size, watch, std::chrono::minutes(1), meanwhile);
  });
}

TEST(SharedMemoryCommunicator, SaysThatAMemberHasLeft) {
  Watch watch;
  check_leaving([&](int size) { return shared_memory(size, watch); });
}

// As the job's health would: the test sees that the process is gone and fails the Watch.
TEST(SharedMemoryCommunicator, SurvivesAKilledMember) {
  for (const auto& [name, call] : waits_for_member_1()) {
    SharedText texts(2);
    const pid_t victim = start_process([&](int) {
      member_of(texts, 2, [](Communicator& end) {
        end.barrier();
        raise(SIGKILL);
      })(1);
    });
    Watch watch;
    const auto end = make_shared_memory_communicator(0, 2, watch, texts.exchange(0),
                                                     {"test", std::chrono::minutes(1)});
    end->barrier();
    std::thread health([&] {
      EXPECT_EQ(wait_for_process(victim), 128 + SIGKILL);
      watch.fail(JobFailed("worker 1 was killed"));
    });
    expect_error([&, &call = call] { call(*end); }, "worker 1 was killed");
    health.join();
  }
}

TEST(SharedMemoryCommunicator, EndsACallInWhichAMemberIsKilled) {
  check_kill_in_mid_call([](int rank, Watch& watch, SharedText& texts) {
    return make_shared_memory_communicator(rank, 2, watch, texts.exchange(rank),
                                           {"test", std::chrono::minutes(1)});
  });
}

TEST(SharedMemoryCommunicator, LeavesNeitherMemoryNorDescriptors) {
  const int before = descriptors();
  {
    Watch watch;
    const Ends ends = shared_memory(3, watch);
    EXPECT_EQ(descriptors(), before) << "a mapping needs no descriptor";
    EXPECT_EQ(mappings_of_shared_memory(), 3);
  }
  EXPECT_EQ(descriptors(), before);
  EXPECT_EQ(mappings_of_shared_memory(), 0);
}

TEST(SharedMemoryCommunicator, SaysWhyMemoryCannotBeShared) {
  Watch watch;
  // What member 0 hands over is replaced on the way.
  const auto join = [&](const std::string& handle) {
    int calls = 0;
    const Exchange exchange = [&](const std::string& mine) -> std::vector<std::string> {
      if (++calls == 1) return {handle, ""};
      return {"", mine};
    };
    make_shared_memory_communicator(1, 2, watch, exchange, {"test", std::chrono::minutes(1)});
  };
  expect_error([&] { join("1999999999 3 0 0"); },
               "member 1: epl: cannot open the shared memory of process 1999999999");
  expect_error([&] { join("1999999999 3 0 0"); }, "one container");
  expect_error([&] { join("nonsense"); }, "handed over \"nonsense\"");
  // A descriptor that can be opened, but is something else.
  const int other = memfd_create("other", 0);
  expect_error([&] { join(concat(getpid(), " ", other, " 0 0")); },
               "is not the shared memory of the first member");
  close(other);
  expect_error([&] { make_shared_memory_communicator(2, 2, watch, {}, {}); }, "has no member 2");
}

}  // namespace
}  // namespace epl::comm

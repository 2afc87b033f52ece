// A member that is a process and is killed in the midst of a call: what the tests of transports
// between processes share.
#pragma once

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "comm/communicator.h"
#include "comm/test_failures.h"
#include "comm/test_forks.h"
#include "comm/watch.h"

namespace epl::testing {

using MakeMember =
    std::function<std::unique_ptr<Communicator>(int rank, Watch& watch, SharedText& texts)>;

// Both members call without end; then one of them is killed, wherever it is. As the job's health
// would, the test sees that the process is gone and fails the Watch.
inline void check_kill_in_mid_call(const MakeMember& make) {
  const InPlace large{1'000'000, 1'000'000};
  for (const Body& call : {scatter_in_place(large), gather_in_place(large)}) {
    SharedText texts(2);
    const pid_t victim = start_process([&](int) {
      at::set_num_threads(1);  // the parent's OpenMP threads did not come along
      Watch watch;
      const auto end = make(1, watch, texts);
      while (true) call(*end);
    });
    Watch watch;
    const auto end = make(0, watch, texts);
    call(*end);
    std::thread health([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      kill(victim, SIGKILL);
      EXPECT_EQ(wait_for_process(victim), 128 + SIGKILL);
      watch.fail(JobFailed("worker 1 was killed"));
    });
    expect_error(
        [&] {
          while (true) call(*end);
        },
        "worker 1 was killed");
    health.join();
  }
}

}  // namespace epl::testing

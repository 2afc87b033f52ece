#include "comm/health.h"

#include <stdexcept>

#include "base/text.h"
#include "comm/membership.h"
#include "comm/test_workers.h"

namespace epl::comm {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

// Starts a job of `size` workers with a short patience for silence. Each is at step 10 + its index,
// reduce 3, says "ready" and then does what `body` says.
using Body = std::function<void(int index, Membership& membership, const Say& say)>;

void start_job(TestWorkers& workers, int size, const Body& body) {
  const int port = free_port();
  for (int index = 0; index < size; ++index) {
    workers.start([=](const Say& say) {
      JoinRequest request = request_for(index, size, port);
      request.silence = milliseconds(1000);
      const auto membership = join_job(request);
      membership->exchange("start", "");
      membership->watch().doing(10 + index, "reduce", 3);
      say("ready ");
      body(index, *membership, say);
    });
  }
  for (int index = 0; index < size; ++index) workers.await(static_cast<size_t>(index), "ready");
}

void wait_in_job(int /*index*/, Membership& membership, const Say& /*say*/) {
  wait_for_ever(membership.watch());
}

TEST(Health, NamesAKilledWorkerAndWhatItDidLast) {
  for (const size_t victim : {0u, 1u, 2u}) {
    TestWorkers workers;
    start_job(workers, 3, wait_in_job);
    workers.send_signal(victim, SIGKILL);
    for (size_t index = 0; index < 3; ++index) {
      if (index == victim) continue;
      const std::string words = workers.words_of(index);
      EXPECT_THAT(words, HasSubstr(concat("worker ", victim, " (pid ", workers.pid_of(victim),
                                          " on host ")));
      EXPECT_THAT(words,
                  HasSubstr("is gone: its process ended (killed, or crashed); it was last at "));
      EXPECT_THAT(words, HasSubstr(concat("it was last at step ", 10 + victim, ", reduce 3")));
    }
  }
}

TEST(Health, NamesAStoppedWorker) {
  for (const size_t victim : {0u, 1u}) {
    TestWorkers workers;
    start_job(workers, 3, wait_in_job);
    workers.send_signal(victim, SIGSTOP);
    const std::string expected = concat(
        "is gone: it has been silent for 1 s (stopped, or its host "
        "cannot be reached); it was last at step ",
        10 + victim, ", reduce 3");
    for (size_t index = 0; index < 3; ++index) {
      if (index == victim) continue;
      const std::string words = workers.words_of(index);
      EXPECT_THAT(words, HasSubstr(concat("worker ", victim, " (pid ")));
      EXPECT_THAT(words, HasSubstr(expected));
    }
    workers.send_signal(victim, SIGCONT);
    // The stopped one learns what the others did; worker 0 finds all of them gone.
    EXPECT_THAT(workers.words_of(victim), HasSubstr(victim == 0 ? "is gone" : expected));
  }
}

TEST(Health, DoesNotBlameOthersForAStopOfTheWholeJob) {
  TestWorkers workers;
  start_job(workers, 2, [](int /*index*/, Membership& membership, const Say& say) {
    for (int round = 0; round < 2; ++round) {
      membership.exchange(concat("round ", round), "");
      std::this_thread::sleep_for(milliseconds(100));
    }
    say("fine");
  });
  for (size_t index = 0; index < 2; ++index) workers.send_signal(index, SIGSTOP);
  std::this_thread::sleep_for(milliseconds(1600));  // longer than `silence`: the stop is the event
  for (size_t index = 0; index < 2; ++index) workers.send_signal(index, SIGCONT);
  EXPECT_EQ(workers.words_of(0), "ready fine");
  EXPECT_EQ(workers.words_of(1), "ready fine");
}

TEST(Health, LetsWorkersFinishOneAfterAnother) {
  TestWorkers workers;
  start_job(workers, 3, [](int index, Membership& membership, const Say& say) {
    membership.watch().doing(40, "save", 0);
    const auto end = std::chrono::steady_clock::now() + milliseconds(400 * index);
    while (std::chrono::steady_clock::now() < end) {
      membership.watch().check();
      std::this_thread::sleep_for(milliseconds(1));
    }
    say("finished");
  });
  for (size_t index = 0; index < 3; ++index) EXPECT_EQ(workers.words_of(index), "ready finished");
}

TEST(Health, NamesAWorkerThatFinishedBeforeTheOthers) {
  for (const int early : {0, 1}) {
    TestWorkers workers;
    start_job(workers, 3, [early](int index, Membership& membership, const Say& /*say*/) {
      membership.watch().doing(40, "reduce", 0);
      if (index == early) return;
      membership.watch().doing(41, "reduce", 0);
      wait_for_ever(membership.watch());
    });
    for (int index = 0; index < 3; ++index) {
      const std::string words = workers.words_of(static_cast<size_t>(index));
      if (index == early) {
        EXPECT_THAT(words, Not(HasSubstr("threw")));
        continue;
      }
      EXPECT_THAT(words, HasSubstr(concat("worker ", early, " (pid ")));
      EXPECT_THAT(words, HasSubstr("has finished after step 40 while worker "));
      EXPECT_THAT(words, HasSubstr("is in step 41"));
    }
  }
}

TEST(Health, NamesAWorkerThatFinishedInsteadOfComingToAnExchange) {
  TestWorkers workers;
  start_job(workers, 3, [](int index, Membership& membership, const Say& /*say*/) {
    membership.watch().doing(40, "compile", 0);
    if (index != 1) membership.exchange("plans", "mine");
  });
  for (const size_t index : {0u, 2u}) {
    const std::string words = workers.words_of(index);
    EXPECT_THAT(words, HasSubstr("worker 1 (pid "));
    EXPECT_THAT(words, HasSubstr("has finished while "));
    EXPECT_THAT(words, HasSubstr("(exchange plans)"));
  }
}

TEST(Health, TellsTheOthersWhyAWorkerFails) {
  for (const int culprit : {0, 1}) {
    TestWorkers workers;
    start_job(workers, 3, [culprit](int index, Membership& membership, const Say& /*say*/) {
      if (index != culprit) wait_for_ever(membership.watch());
      membership.report_failure("epl: the loss is not a number");
      _exit(3);
    });
    for (int index = 0; index < 3; ++index) {
      if (index == culprit) continue;
      const std::string words = workers.words_of(static_cast<size_t>(index));
      EXPECT_THAT(words, HasSubstr(concat("worker ", culprit, " (pid ")));
      EXPECT_THAT(words, HasSubstr(concat("failed; it was last at step ", 10 + culprit,
                                          ", reduce 3:\nthe loss is not a number")));
    }
  }
}

TEST(Health, NoticesAnExceptionThatNobodyReported) {
  TestWorkers workers;
  start_job(workers, 2, [](int index, Membership& membership, const Say& /*say*/) {
    if (index == 1) throw std::runtime_error("out of cheese");
    wait_for_ever(membership.watch());
  });
  EXPECT_THAT(workers.words_of(0), HasSubstr("stopped with an exception that its own log shows"));
  EXPECT_THAT(workers.words_of(1), HasSubstr("out of cheese"));
}

TEST(Health, SpreadsWhatFailedAWatch) {
  TestWorkers workers;
  start_job(workers, 3, [](int index, Membership& membership, const Say& /*say*/) {
    if (index == 2) membership.watch().fail(JobFailed("device 1 ran out of memory"));
    wait_for_ever(membership.watch());
  });
  for (const size_t index : {0u, 1u}) {
    const std::string words = workers.words_of(index);
    EXPECT_THAT(words, HasSubstr("worker 2 (pid "));
    EXPECT_THAT(words, HasSubstr("device 1 ran out of memory"));
  }
  EXPECT_EQ(workers.words_of(2), "ready threw: epl: device 1 ran out of memory");
}

// Worker 0 and worker 2 end roughly as soon as they hear of worker 1; the last one must not take
// them for the culprits.
TEST(Health, KeepsTheFirstCauseWhenSurvivorsDieOfIt) {
  for (const int rough : {0, 2}) {
    TestWorkers workers;
    start_job(workers, 4, [rough](int index, Membership& membership, const Say& /*say*/) {
      try {
        wait_for_ever(membership.watch());
      } catch (const JobFailed&) {
        if (index == rough) kill(getpid(), SIGKILL);
        throw;
      }
    });
    workers.send_signal(1, SIGKILL);
    for (const int index : {0, 2, 3}) {
      const std::string words = workers.words_of(static_cast<size_t>(index));
      if (index == rough) continue;
      EXPECT_THAT(words, HasSubstr(concat("worker 1 (pid ", workers.pid_of(1))));
      EXPECT_THAT(words, HasSubstr("it was last at step 11, reduce 3"));
    }
  }
}

}  // namespace
}  // namespace epl::comm

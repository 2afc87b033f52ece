// How a job ends: by its workers, by a signal, by the death of the launcher.
#include <signal.h>
#include <sys/wait.h>

#include "tests/launch/launched.h"

namespace epl {
namespace {

class Ends : public LaunchTest {
 protected:
  // Every worker, and a process that it has started in a process group of its own, marks itself.
  static constexpr const char* kSleepers =
      "start_child() { timeout 100 bash -c 'echo $$ > '$1'.new; mv '$1'.new '$1'; sleep 100' & }\n"
      "start_child child.$me\n"
      "await child.$me\n"
      "mark self.$me\n";

  bool all_started(int workers) {
    for (int i = 0; i < workers; ++i) {
      if (!exists("self." + std::to_string(i))) return false;
    }
    return true;
  }
  int living(int workers) {
    int count = 0;
    for (int i = 0; i < workers; ++i) {
      count += lives("self." + std::to_string(i)) + lives("child." + std::to_string(i));
    }
    return count;
  }
};

TEST_F(Ends, WellWhereAllWorkersDo) {
  script("echo I am $me of $EPL_WORKER_NUM; exit 0");
  const Outcome outcome = launch({"--num_workers", "16"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "I am 0 of 16\n");
  for (int i = 0; i < 16; ++i) EXPECT_EQ(log(i), "I am " + std::to_string(i) + " of 16\n");
  EXPECT_TRUE(contains(outcome.err, "all workers ended well"));
}

TEST_F(Ends, AfterTheLastWorker) {
  script(
      "if [ $me = 0 ]; then mark first; exit 0; fi\n"
      "await first; while [ -e /proc/$(cat first) ]; do sleep 0.01; done; echo last");
  EXPECT_EQ(launch({"--num_workers", "2"}).code, 0);
  EXPECT_EQ(log(1), "last\n");
}

TEST_F(Ends, WithTheCodeAndTheLastLinesOfTheWorkerThatFails) {
  script(std::string(kSleepers) +
         "if [ $me = 1 ]; then await self.0; await self.2; for i in $(seq 30); do echo line $i; "
         "done; echo no luck >&2; exit 3; fi\nwait");
  const Outcome outcome = launch({"--num_workers", "3"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_TRUE(contains(outcome.err, "epl-launch: worker 1 (process " +
                                        read("self.1").substr(0, read("self.1").size() - 1)));
  EXPECT_TRUE(contains(outcome.err, ") exited with code 3; the job is stopped\n"));
  EXPECT_TRUE(contains(outcome.err, "its last lines:\n    line 12\n    line 13\n"));
  EXPECT_TRUE(contains(outcome.err, "    line 30\n    no luck\n  its log:  logs/worker-1.log\n"));
  EXPECT_EQ(outcome.err.find("line 11"), std::string::npos);
  EXPECT_EQ(living(3), 0);
}

TEST_F(Ends, WithTheSignalThatKillsAWorker) {
  script("mark self.$me\nif [ $me = 1 ]; then await self.0; kill -9 $$; fi\nsleep 100");
  const Outcome outcome = launch({"--num_workers", "2"});
  EXPECT_EQ(outcome.code, 128 + 9);
  EXPECT_TRUE(contains(outcome.err, "was killed by signal 9 (Killed); the job is stopped"));
  EXPECT_TRUE(contains(outcome.err, "it has printed nothing"));
  EXPECT_EQ(living(2), 0);
}

TEST_F(Ends, WithTheCauseWhereSurvivorsFailToo) {
  script(
      "if [ $me = 0 ]; then mark gone; echo 'epl: worker 1 (pid 5, host h) is gone'; exit 1; fi\n"
      "await gone; echo out of luck; exit 7");
  const Outcome outcome = launch({"--num_workers", "2"});
  EXPECT_EQ(outcome.code, 7);
  EXPECT_TRUE(contains(outcome.err, "epl-launch: worker 1 (process "));
  EXPECT_TRUE(contains(outcome.err, "then worker 0 exited with code 1"));
}

TEST_F(Ends, EvenWhereAWorkerDoesNotWantTo) {
  script(
      "trap '' TERM; mark self.$me; if [ $me = 1 ]; then await self.0; exit 5; fi\n"
      "while true; do sleep 0.05; done");
  EXPECT_EQ(launch({"--num_workers", "2"}).code, 5);
  EXPECT_EQ(living(2), 0);
}

TEST_F(Ends, EvenWhereAWorkerIsStopped) {
  script("mark self.$me; if [ $me = 1 ]; then await self.0; sleep 0.05; exit 5; fi; kill -STOP $$");
  EXPECT_EQ(launch({"--num_workers", "2"}).code, 5);
  EXPECT_EQ(living(2), 0);
}

TEST_F(Ends, WithWhatAWorkerLeftBehind) {
  script("sleep 100 & echo $! > child.0; mark self.0; exit 0");
  EXPECT_EQ(launch({"--num_workers", "1"}).code, 0);
  EXPECT_EQ(living(1), 0);
}

TEST_F(Ends, BySignalsToTheLauncher) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    script(std::string("rm -f self.$me child.$me\n") + kSleepers + "wait");
    for (const char* name : {"self.0", "self.1"}) remove(path(name).c_str());
    Running job(command({"--num_workers", "2"}), folder());
    ASSERT_TRUE(eventually([&] { return all_started(2); }));
    EXPECT_EQ(living(2), 4);
    kill(-job.pid(), signal);  // to the process group, as a terminal does
    const Outcome outcome = job.wait();
    EXPECT_EQ(outcome.code, 128 + signal) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, "ended by signal " + std::to_string(signal)));
    EXPECT_EQ(living(2), 0);
  }
}

TEST_F(Ends, AtOnceByASecondSignal) {
  script("trap 'mark asked' TERM; mark self.0; while true; do sleep 0.05; done");
  Running job(command({"--num_workers", "1"}), folder());
  ASSERT_TRUE(eventually([&] { return all_started(1); }));
  kill(-job.pid(), SIGINT);
  ASSERT_TRUE(eventually([&] { return exists("asked"); }));
  kill(-job.pid(), SIGINT);
  EXPECT_EQ(job.wait().code, 130);
  EXPECT_EQ(living(1), 0);
}

TEST_F(Ends, WhereTheLauncherIsKilled) {
  script(std::string(kSleepers) + "wait");
  Running job(command({"--num_workers", "2"}), folder());
  ASSERT_TRUE(eventually([&] { return all_started(2); }));
  kill(job.pid(), SIGKILL);
  job.wait();
  EXPECT_TRUE(eventually([&] { return living(2) == 0; })) << living(2);
}

TEST_F(Ends, LeavingStrangersAlone) {
  Running stranger({"sleep", "100"}, folder());
  script("mark self.$me; if [ $me = 0 ]; then exit 1; fi; sleep 100");
  EXPECT_EQ(launch({"--num_workers", "2"}).code, 1);
  EXPECT_EQ(kill(stranger.pid(), 0), 0);
  EXPECT_EQ(waitpid(stranger.pid(), nullptr, WNOHANG), 0);
}

}  // namespace
}  // namespace epl

// Trainings that go wrong: every survivor ends in time, names the worker that is to blame, where it
// ran and what it did last, and nothing is left behind.
#include <sys/mount.h>

#include <thread>

#include "tests/multiproc/test_hosts.h"
#include "tests/multiproc/test_training.h"

namespace epl {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = TestTraining::Words;

// Faults that only silence tells are found sooner than by default.
const TestTraining::Variables kQuick{{"EPL_COMMUNICATION_SILENCE_SECONDS", "2"},
                                     {"EPL_CLUSTER_JOIN_SECONDS", "30"}};

std::string this_host() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "?";
}

Words fault(const std::string& what, const std::string& at, int step, int worker,
            const Words& more = {}) {
  Words words{
      "--do", what, "--at", at, "--step", std::to_string(step), "--on", std::to_string(worker)};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string name_of(const TestTraining& job, int worker) {
  return concat("worker ", worker, " (pid ", job.pid_of(static_cast<size_t>(worker)), " on host ",
                this_host(), ")");
}

// Awaits the fault, then the end of all other workers, each with a message that has all `parts`.
void expect_survivors_name(TestTraining& job, int workers, int culprit, const Words& parts) {
  job.await(static_cast<size_t>(culprit), "goes wrong");
  job.note_fault();
  for (int index = 0; index < workers; ++index) {
    if (index == culprit) continue;
    const TestTraining::End end = job.end_of(static_cast<size_t>(index));
    EXPECT_GT(end.code, 0) << "worker " << index << " said\n" << end.said;
    EXPECT_THAT(end.said, HasSubstr(concat("epl: ", name_of(job, culprit))));
    for (const std::string& part : parts) EXPECT_THAT(end.said, ContainsRegex(part));
  }
  job.put_away(static_cast<size_t>(culprit));
  EXPECT_EQ(job.left_behind(), "");
}

// For what is wrong from the beginning.
void await_start(TestTraining& job, size_t workers) {
  for (size_t index = 0; index < workers; ++index) job.await(index, "starts");
  job.note_fault();
}

const char* const kEnded = "is gone: its process ended \\(killed, or crashed\\)";

// --- killed --------------------------------------------------------------------------------------

TEST(KilledWorker, BeforeTheFirstStep) {
  TestTraining job(3, fault("kill", "start", 0, 1));
  expect_survivors_name(job, 3, 1, {kEnded, "it had not begun a step"});
}

TEST(KilledWorker, WhereWorkersMeet) {
  TestTraining job(3, fault("kill", "start", 0, 0));
  expect_survivors_name(job, 3, 0, {kEnded, "it had not begun a step"});
}

TEST(KilledWorker, WhileItRecordsTheStep) {
  TestTraining job(2, fault("kill", "recording", 3, 1));
  expect_survivors_name(job, 2, 1, {kEnded, "it was last at step 3, record\n"});
}

// The third worker never comes to the reduction, so the second is in it when it dies.
TEST(KilledWorker, WhileItWaitsInAReduction) {
  TestTraining job;
  for (const int index : {0, 1}) job.start_worker(index, 3, fault("kill", "inside", 4, 1));
  job.start_worker(2, 3, fault("hang", "step", 4, 2));
  job.await(2, "goes wrong");
  job.await(1, "goes wrong");
  job.note_fault();
  const TestTraining::End end = job.end_of(0);
  EXPECT_GT(end.code, 0);
  EXPECT_THAT(end.said, HasSubstr(name_of(job, 1)));
  EXPECT_THAT(end.said, ContainsRegex("it was last at step 4, (reduce [0-9]+|merge)\n"));
  job.put_away(2);
  EXPECT_EQ(job.left_behind(), "");
}

// 16 MB of gradients are on their way for much of the time.
TEST(KilledWorker, WhileGradientsAreOnTheirWay) {
  TestTraining job(2, {"--width", "2000"});
  job.await(1, "begins 3");
  job.send_signal(1, SIGKILL);
  job.note_fault();
  const TestTraining::End end = job.end_of(0);
  EXPECT_GT(end.code, 0);
  EXPECT_THAT(end.said, HasSubstr(concat("epl: ", name_of(job, 1))));
  EXPECT_THAT(end.said, ContainsRegex("it was last at step [0-9]+, "));
  EXPECT_EQ(job.end_of(1).code, 128 + SIGKILL);
  EXPECT_EQ(job.left_behind(), "");
}

// Sums come to owners and parameters from them for much of the time: whichever it is in.
TEST(KilledWorker, WhileParametersComeFromTheirOwners) {
  for (int milliseconds : {0, 5, 15, 30}) {
    SCOPED_TRACE(milliseconds);
    TestTraining job(2, {"--width", "2000"}, {{"EPL_ZERO_LEVEL", "v0"}});
    job.await(1, "begins 3");
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    job.send_signal(1, SIGKILL);
    job.note_fault();
    const TestTraining::End end = job.end_of(0);
    EXPECT_GT(end.code, 0);
    EXPECT_THAT(end.said, HasSubstr(concat("epl: ", name_of(job, 1))));
    EXPECT_THAT(end.said, ContainsRegex("it was last at step [0-9]+, "));
    EXPECT_EQ(job.left_behind(), "");
  }
}

// The same where they come around each use.
TEST(KilledWorker, WhileParametersComeAroundTheirUse) {
  for (int milliseconds : {0, 5, 15, 30}) {
    SCOPED_TRACE(milliseconds);
    TestTraining job(2, {"--width", "2000"}, {{"EPL_ZERO_LEVEL", "v2"}});
    job.await(1, "begins 3");
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    job.send_signal(1, SIGKILL);
    job.note_fault();
    const TestTraining::End end = job.end_of(0);
    EXPECT_GT(end.code, 0);
    EXPECT_THAT(end.said, HasSubstr(concat("epl: ", name_of(job, 1))));
    EXPECT_THAT(end.said, ContainsRegex("it was last at step [0-9]+, "));
    EXPECT_EQ(job.left_behind(), "");
  }
}

// The third worker never comes to the fetch, so the second is in it when it dies.
TEST(KilledWorker, WhileItWaitsInAFetch) {
  TestTraining job;
  const TestTraining::Variables spreads{{"EPL_ZERO_LEVEL", "v2"}};
  const auto wide = [](const char* what, const char* at, int on) {
    return fault(what, at, 4, on, {"--width", "2000"});
  };
  for (const int index : {0, 1}) job.start_worker(index, 3, wide("kill", "inside", 1), spreads);
  job.start_worker(2, 3, wide("hang", "step", 2), spreads);
  job.await(2, "goes wrong");
  job.await(1, "goes wrong");
  job.note_fault();
  const TestTraining::End end = job.end_of(0);
  EXPECT_GT(end.code, 0);
  EXPECT_THAT(end.said, HasSubstr(name_of(job, 1)));
  EXPECT_THAT(end.said, ContainsRegex("it was last at step 4, "));
  job.put_away(2);
  EXPECT_EQ(job.left_behind(), "");
}

TEST(KilledWorker, WhileItSavesLeavesTheLastCheckpointWhole) {
  TestTraining job;
  const Words arguments =
      fault("kill", "saving", 4, 0, {"--save", job.path("model.pt"), "--width", "2000"});
  for (const int index : {0, 1}) job.start_worker(index, 2, arguments);
  expect_survivors_name(job, 2, 0, {kEnded, "it was last at step [45], save\n"});
  EXPECT_TRUE(std::filesystem::exists(job.path("model.pt.unfinished")));
  torch::serialize::InputArchive archive;
  EXPECT_NO_THROW(archive.load_from(job.path("model.pt")));
}

// --- a stage of a pipeline -----------------------------------------------------------------------

const TestTraining::Variables kMicroBatches{{"EPL_PIPELINE_NUM_MICRO_BATCH", "4"}};

// The last stage never comes, so the one in the middle waits for it when it dies.
TEST(KilledStage, WhileItWaitsForTheNext) {
  TestTraining job;
  const Words stages{"--stages", "3"};
  for (const int index : {0, 1}) {
    job.start_worker(index, 3, fault("kill", "inside", 4, 1, stages), kMicroBatches);
  }
  job.start_worker(2, 3, fault("hang", "step", 4, 2, stages), kMicroBatches);
  job.await(2, "goes wrong");
  job.await(1, "goes wrong");
  job.note_fault();
  const TestTraining::End end = job.end_of(0);
  EXPECT_GT(end.code, 0);
  EXPECT_THAT(end.said, HasSubstr(concat("epl: ", name_of(job, 1))));
  EXPECT_THAT(end.said, ContainsRegex(kEnded));
  EXPECT_THAT(end.said, HasSubstr("it was last at step 4, agree\n"));
  job.put_away(2);
  EXPECT_EQ(job.left_behind(), "");
}

TEST(KilledStage, WhileActivationsAreOnTheirWay) {
  for (const int culprit : {0, 1}) {
    TestTraining job(2, {"--stages", "2", "--width", "2000"}, kMicroBatches);
    job.await(static_cast<size_t>(culprit), "begins 3");
    job.send_signal(static_cast<size_t>(culprit), SIGKILL);
    job.note_fault();
    const TestTraining::End end = job.end_of(static_cast<size_t>(1 - culprit));
    EXPECT_GT(end.code, 0);
    EXPECT_THAT(end.said, HasSubstr(concat("epl: ", name_of(job, culprit))));
    EXPECT_EQ(job.end_of(static_cast<size_t>(culprit)).code, 128 + SIGKILL);
    EXPECT_EQ(job.left_behind(), "");
  }
}

// The first stage gets a word that its table does not have.
TEST(OperatorError, InAStageEndsTheOthers) {
  TestTraining job(3, fault("fail", "batch", 3, 0, {"--catch", "yes", "--stages", "3"}),
                   kMicroBatches);
  job.await(0, "begins 3");
  job.note_fault();
  for (const size_t index : {0u, 1u, 2u}) {
    const TestTraining::End end = job.end_of(index);
    EXPECT_EQ(end.code, 1);
    EXPECT_THAT(end.said,
                HasSubstr(index == 0 ? "epl: device 0, micro batch 3: "
                                     : concat("epl: ", name_of(job, 0), " failed; it was last")));
    EXPECT_THAT(end.said, HasSubstr("device 0, micro batch 3: index out of range"));
  }
  EXPECT_EQ(job.left_behind(), "");
}

// --- silent --------------------------------------------------------------------------------------

TEST(StoppedWorker, IsGoneAfterTheSilence) {
  TestTraining job(3, fault("stop", "step", 3, 1), kQuick);
  expect_survivors_name(
      job, 3, 1,
      {"is gone: it has been silent for 2 s \\(stopped, or", "it was last at step 2, update\n"});
}

TEST(StoppedWorker, IsGoneWithin10SecondsByDefault) {
  TestTraining job(2, fault("stop", "step", 3, 0));
  expect_survivors_name(job, 2, 0, {"silent for 5 s", "it was last at step 2, update\n"});
}

TEST(CutHost, EndsTheWorkersOfBothSides) {
  TestHosts hosts(2);
  if (!hosts.missing().empty()) GTEST_SKIP() << "this machine lacks " << hosts.missing();
  TestTraining job;
  for (const int index : {0, 1}) {
    job.start_worker(index, 2, {"--width", "500"}, kQuick, TestHosts::address(0),
                     [&hosts, index] { hosts.enter(index); });
  }
  // Long enough for the other host to have heard of it.
  for (const size_t index : {0u, 1u}) job.await(index, "begins 300\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  hosts.cut_off(1);
  job.note_fault();
  for (const int index : {0, 1}) {
    const TestTraining::End end = job.end_of(static_cast<size_t>(index));
    EXPECT_GT(end.code, 0);
    EXPECT_THAT(end.said,
                HasSubstr(concat("epl: worker ", 1 - index, " (pid ",
                                 job.pid_of(static_cast<size_t>(1 - index)), " on host host-",
                                 1 - index, ") is gone: it has been silent for 2 s")));
    EXPECT_THAT(end.said, HasSubstr("it was last at about step "));
  }
  EXPECT_EQ(job.left_behind(), "");
}

// --- wrong from the beginning --------------------------------------------------------------------

TEST(TakenPort, IsNamedByAllWorkers) {
  TestTraining job;
  const comm::Descriptor taken = comm::listen_at("127.0.0.1", job.port());
  for (const int index : {0, 1}) job.start_worker(index, 2, {}, kQuick);
  await_start(job, 2);
  for (const size_t index : {0u, 1u}) {
    const TestTraining::End end = job.end_of(index);
    EXPECT_GT(end.code, 0);
    EXPECT_THAT(end.said, AllOf(HasSubstr("epl: "), HasSubstr(concat(":", job.port()))));
  }
}

TEST(WrongWorkerCount, EndsAllWorkers) {
  TestTraining job;
  job.start_worker(0, 2, {});
  job.start_worker(2, 3, {});
  await_start(job, 2);
  for (const size_t index : {0u, 1u}) {
    const TestTraining::End end = job.end_of(index);
    EXPECT_GT(end.code, 0);
    EXPECT_THAT(end.said,
                AllOf(HasSubstr(concat("epl: worker 2 (pid ", job.pid_of(1), " on host ")),
                      HasSubstr("came for a job of 3 workers"), HasSubstr("serves one of 2")));
  }
  EXPECT_EQ(job.left_behind(), "");
}

TEST(MissingWorker, EndsThoseThatCame) {
  TestTraining job;
  for (const int index : {0, 2}) {
    job.start_worker(index, 3, {}, {{"EPL_CLUSTER_JOIN_SECONDS", "1"}});
  }
  await_start(job, 2);
  for (const size_t index : {0u, 1u}) {
    const TestTraining::End end = job.end_of(index);
    EXPECT_GT(end.code, 0);
    EXPECT_THAT(end.said, HasSubstr("epl: worker 1 of 3 did not come within 1 s"));
  }
  EXPECT_EQ(job.left_behind(), "");
}

TEST(OtherModel, OnOneWorkerIsNamed) {
  TestTraining job(3, fault("model", "", 0, 2));
  await_start(job, 3);
  for (const size_t index : {0u, 1u, 2u}) {
    const TestTraining::End end = job.end_of(index);
    EXPECT_GT(end.code, 0);
    EXPECT_THAT(
        end.said,
        AllOf(HasSubstr(concat("epl: ", name_of(job, 2), " differs from worker 0 in the model")),
              HasSubstr("words.weight")));
  }
  EXPECT_EQ(job.left_behind(), "");
}

// --- exceptions ----------------------------------------------------------------------------------

// Both in a program that lets it through, which ends by std::terminate, and in one that catches it
// and returns from main.
TEST(ExceptionOfTheUser, IsToldToAllWorkers) {
  for (const std::string catches : {"no", "yes"}) {
    TestTraining job(3, fault("throw", "recording", 3, 1, {"--catch", catches}));
    job.await(1, "goes wrong");
    job.note_fault();
    const std::string first = catches == "yes" ? "caught: " : "what():  ";
    for (const size_t index : {0u, 2u}) {
      const TestTraining::End end = job.end_of(index);
      EXPECT_EQ(end.code, catches == "yes" ? 1 : 128 + SIGABRT);
      EXPECT_THAT(end.said, HasSubstr(concat(first, "epl: ", name_of(job, 1), " failed")));
      EXPECT_THAT(end.said, HasSubstr("it was last at step 3, record:\nthe user's own exception"));
    }
    const TestTraining::End own = job.end_of(1);
    EXPECT_EQ(own.code, catches == "yes" ? 1 : 128 + SIGABRT);
    EXPECT_THAT(own.said, AllOf(HasSubstr(concat(first, "the user's own exception")),
                                Not(HasSubstr("epl: worker"))));
    EXPECT_EQ(job.left_behind(), "");
  }
}

TEST(ExceptionOfTheUser, BetweenStepsEndsAllWorkers) {
  TestTraining job(2, fault("throw", "step", 3, 0, {"--catch", "yes"}));
  job.await(0, "goes wrong");
  job.note_fault();
  EXPECT_EQ(job.end_of(0).code, 1);
  const TestTraining::End end = job.end_of(1);
  EXPECT_EQ(end.code, 1);
  EXPECT_THAT(end.said,
              HasSubstr(concat("epl: ", name_of(job, 0), " failed; it was last at step 2")));
  EXPECT_THAT(end.said, HasSubstr("it stopped with an exception that its own log shows"));
  EXPECT_EQ(job.left_behind(), "");
}

// Users may catch it by its name.
TEST(SurvivingWorker, ThrowsJobFailed) {
  TestTraining job(2, fault("kill", "step", 3, 0, {"--catch", "job"}));
  job.await(0, "goes wrong");
  job.note_fault();
  const TestTraining::End end = job.end_of(1);
  EXPECT_EQ(end.code, 7);
  EXPECT_THAT(end.said, HasSubstr(concat("the job failed: epl: ", name_of(job, 0), " is gone")));
}

TEST(WorkerThatExits, EndsAllWorkers) {
  TestTraining job(2, fault("exit", "step", 3, 1));
  job.await(1, "goes wrong");
  job.note_fault();
  EXPECT_EQ(job.end_of(1).code, 3);
  const TestTraining::End end = job.end_of(0);
  EXPECT_GT(end.code, 0);
  EXPECT_THAT(end.said, HasSubstr(concat("epl: ", name_of(job, 1), " is gone: its process ended")));
  EXPECT_EQ(job.left_behind(), "");
}

// The last device of worker 1 gets a word that its table does not have.
TEST(OperatorError, OnOneDeviceOfManyEndsAllWorkers) {
  for (const std::string catches : {"no", "yes"}) {
    TestTraining job(2, fault("fail", "batch", 3, 1, {"--catch", catches, "--width", "1000"}),
                     {{"EPL_DEVICES", "2"}});
    job.await(1, "begins 3");
    job.note_fault();
    for (const size_t index : {0u, 1u}) {
      const TestTraining::End end = job.end_of(index);
      EXPECT_EQ(end.code, catches == "yes" ? 1 : 128 + SIGABRT);
      EXPECT_THAT(end.said,
                  HasSubstr(index == 1 ? "epl: device 3, micro batch 0: "
                                       : concat("epl: ", name_of(job, 1), " failed; it was last")));
      EXPECT_THAT(end.said, HasSubstr("device 3, micro batch 0: index out of range"));
    }
    EXPECT_EQ(job.left_behind(), "");
  }
}

// --- by the launcher -----------------------------------------------------------------------------

TEST(LaunchedTraining, NamesTheWorkerThatWasKilled) {
  TestTraining job;
  job.start_launcher({"--num_workers", "2"}, fault("kill", "step", 3, 1), kQuick);
  const TestTraining::End end = job.end_of(0);
  EXPECT_EQ(end.code, 128 + SIGKILL);
  EXPECT_THAT(end.said, ContainsRegex("epl-launch: worker 1 \\(process [0-9]+ on .*\\) was killed "
                                      "by signal 9"));
  EXPECT_EQ(job.left_behind(), "");
}

TEST(LaunchedTraining, NamesTheWorkerThatThrew) {
  TestTraining job;
  job.start_launcher({"--num_workers", "3"}, fault("throw", "recording", 3, 1), kQuick);
  const TestTraining::End end = job.end_of(0);
  EXPECT_EQ(end.code, 128 + SIGABRT);
  EXPECT_THAT(end.said, ContainsRegex("epl-launch: worker 1 \\(process [0-9]+ on "));
  EXPECT_THAT(end.said, HasSubstr("the user's own exception"));
  EXPECT_EQ(job.left_behind(), "");
}

// An exception between two steps, which main() catches. Worker 0 was named in every other run: it
// said that worker 1 "has finished", which counted as no blame.
TEST(LaunchedTraining, NamesTheWorkerWhoseExceptionWasCaught) {
  for (int round = 0; round < 3; ++round) {
    TestTraining job;
    job.start_launcher({"--num_workers", "2"}, fault("throw", "step", 3, 1, {"--catch", "yes"}),
                       kQuick);
    const TestTraining::End end = job.end_of(0);
    EXPECT_EQ(end.code, 1);
    EXPECT_THAT(end.said, ContainsRegex("epl-launch: worker 1 \\(process [0-9]+ on "));
    EXPECT_THAT(end.said, HasSubstr("caught: the user's own exception"));
    EXPECT_EQ(job.left_behind(), "");
  }
}

TEST(LaunchedTraining, EndsAStoppedWorker) {
  TestTraining job;
  job.start_launcher({"--num_workers", "2"}, fault("stop", "step", 3, 1), kQuick);
  job.await(0, "begins 3");
  job.note_fault();
  const TestTraining::End end = job.end_of(0);
  EXPECT_GT(end.code, 0);
  EXPECT_THAT(end.said, ContainsRegex("epl: worker 1 \\(pid [0-9]+ on host .*\\) is gone: it has "
                                      "been silent for 2 s"));
  EXPECT_EQ(job.left_behind(), "");
}

TEST(LaunchedTraining, GoesOnWithoutRoomForItsLogs) {
  TestTraining job;
  std::filesystem::create_directory(job.path("logs"));
  if (mount("tmpfs", job.path("logs").c_str(), "tmpfs", 0, "size=8k") != 0) {
    GTEST_SKIP() << "cannot mount a small tmpfs: " << std::strerror(errno);
  }
  job.start_launcher({"--num_workers", "2"}, {"--steps", "1000"}, kQuick);
  const TestTraining::End end = job.end_of(0);
  umount(job.path("logs").c_str());
  EXPECT_EQ(end.code, 0) << end.said;
  EXPECT_THAT(end.said, AllOf(HasSubstr("ends 999"), HasSubstr("No space left on device")));
  EXPECT_EQ(job.left_behind(), "");
}

}  // namespace
}  // namespace epl

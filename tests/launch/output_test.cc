// What workers print, and how they are started.
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/launch/launched.h"

namespace epl {
namespace {

class Output : public LaunchTest {
 protected:
  Outcome run(const std::vector<std::string>& words) {
    std::vector<std::string> all = {EPL_LAUNCH};
    all.insert(all.end(), words.begin(), words.end());
    return Running(all, folder()).wait();
  }
};

TEST_F(Output, OfAMillionLinesLosesNone) {
  script("seq 1000000");
  const Outcome outcome = launch({"--num_workers", "2"});
  EXPECT_EQ(outcome.code, 0);
  ASSERT_EQ(outcome.out.size(), 6888896u);
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 1000000);
  EXPECT_TRUE(outcome.out == log(0));
  EXPECT_TRUE(outcome.out == log(1));
}

TEST_F(Output, MayLackANewlineOrBeNoText) {
  script("printf 'caf\\xc3'; sleep 0.05; printf '\\xa9 \\xff\\xfe\\x00 end'");
  const Outcome outcome = launch({"--num_workers", "1"});
  const std::string bytes("caf\xc3\xa9 \xff\xfe\0 end", 13);
  EXPECT_EQ(log(0), bytes);
  EXPECT_EQ(outcome.out, bytes + "\n");
}

TEST_F(Output, OfAllWorkersIsShownWithDebug) {
  script("printf \"one $me\\ntwo\" >&2");
  const Outcome outcome = launch({"--num_workers", "2", "--debug"});
  for (const char* line : {"[worker 0] one 0\n", "[worker 1] one 1\n", "[worker 1] two\n"}) {
    EXPECT_TRUE(contains(outcome.err, line));
  }
  EXPECT_TRUE(contains(outcome.err, "EPL_WORKER_INDEX=1 EPL_WORKER_NUM=2"));
}

// Both used to come on stdout, so that a result could not be taken by `epl-launch ... > file`.
TEST_F(Output, AndErrorsStayApart) {
  script("echo result; echo warning >&2");
  const Outcome outcome = launch({"--num_workers", "2"});
  EXPECT_EQ(outcome.out, "result\n");
  EXPECT_TRUE(contains(outcome.err, "\nwarning\n"));
  EXPECT_EQ(log(1), "result\nwarning\n");
}

TEST_F(Output, AndErrorsKeepTheirOrderWhereTheyGoToOnePlace) {
  script("for i in $(seq 100); do echo out $i; echo err $i >&2; done");
  const std::string command = std::string(EPL_LAUNCH) + " --num_workers 1 --log_dir logs job.sh";
  const Outcome outcome = Running({"bash", "-c", command + " > all 2>&1"}, folder()).wait();
  EXPECT_EQ(outcome.code, 0);
  std::string expected;
  for (int i = 1; i <= 100; ++i) {
    expected += "out " + std::to_string(i) + "\nerr " + std::to_string(i) + "\n";
  }
  EXPECT_TRUE(contains(read("all"), expected));
}

TEST_F(Output, ThatNobodyReadsDoesNotStopTheJob) {
  script("seq 100000; mark done");
  const std::string command = std::string(EPL_LAUNCH) + " --num_workers 1 --log_dir logs job.sh";
  const Outcome outcome = Running({"bash", "-c", command + " | head -1"}, folder()).wait();
  EXPECT_EQ(outcome.out, "1\n");
  EXPECT_TRUE(eventually([&] { return exists("done"); }));
}

TEST_F(Output, OfAJobWithoutStandardFilesIsInItsLogs) {
  script("echo out; echo err >&2; read line; echo read $?");
  const std::string command = std::string(EPL_LAUNCH) + " --num_workers 2 --log_dir logs job.sh";
  const Outcome outcome = Running({"bash", "-c", command + " <&- >&- 2>&-"}, folder()).wait();
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(log(0), "out\nerr\nread 1\n");
  EXPECT_EQ(log(1), log(0));
}

TEST_F(Output, OnAFullDiskIsDrained) {
  ASSERT_EQ(mkdir(path("logs").c_str(), 0777), 0);
  if (mount("tmpfs", path("logs").c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "cannot mount a small tmpfs: " << std::strerror(errno);
  }
  script("seq 200000; echo end; mark done.$me");
  const Outcome outcome = launch({"--num_workers", "2"});
  const std::string kept = log(0);
  umount(path("logs").c_str());
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(exists("done.0") && exists("done.1"));
  EXPECT_TRUE(contains(outcome.out, "200000\nend\n"));
  EXPECT_LE(kept.size(), 65536u);
  const std::string note =
      "the log of worker 1 is incomplete, the job goes on: logs/worker-1.log: "
      "No space left on device";
  EXPECT_TRUE(contains(outcome.err, note));
  EXPECT_EQ(outcome.err.find(note), outcome.err.rfind(note));
}

TEST_F(Output, NeedsAFolderBeforeAnythingStarts) {
  std::ofstream(path("file")) << "";
  script("mark started");
  for (const char* folder : {"file/logs", "/proc/logs"}) {
    const Outcome outcome = run({"--num_workers", "1", "--log_dir", folder, "job.sh"});
    EXPECT_EQ(outcome.code, 2);
    EXPECT_TRUE(contains(outcome.err, std::string("cannot make the folder ") + folder));
  }
  ASSERT_EQ(mkdir(path("logs").c_str(), 0777), 0);
  ASSERT_EQ(mkdir(path("logs/worker-1.log").c_str(), 0777), 0);
  const Outcome outcome = launch({"--num_workers", "2"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_TRUE(contains(outcome.err, "cannot write the log logs/worker-1.log: Is a directory"));
  EXPECT_FALSE(exists("started"));
}

TEST_F(Output, GoesToAFolderThatSaysJobAndTime) {
  script("echo hello");
  EXPECT_EQ(run({"--num_workers", "1", "--task_label", "bert", "job.sh"}).code, 0);
  EXPECT_EQ(run({"--num_workers", "1", "--task_label", "bert", "job.sh"}).code, 0);
  int folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path("epl-logs"))) {
    EXPECT_EQ(entry.path().filename().string().rfind("bert-20", 0), 0u);
    EXPECT_TRUE(std::filesystem::exists(entry.path() / "worker-0.log"));
    ++folders;
  }
  EXPECT_EQ(folders, 2);
}

TEST_F(Output, ComesFromScriptsAndPrograms) {
  std::ofstream(path("job.py"))
      << "import os, sys\nprint(os.environ['EPL_WORKER_INDEX'], sys.argv[1:])";
  EXPECT_EQ(run({"--num_workers=1", "job.py", "--lr", "a b"}).out, "0 ['--lr', 'a b']\n");
  EXPECT_EQ(run({"--num_workers=1", "--", "printf", "%s", "-x"}).out, "-x\n");
  EXPECT_EQ(run({"--num_workers=1", "/bin/echo", "-x"}).out, "-x\n");
}

TEST_F(Output, SaysWhyAProgramCannotRun) {
  std::ofstream(path("plain")) << "data";
  Outcome outcome = run({"--num_workers=1", "nowhere"});
  EXPECT_EQ(outcome.code, 127);
  EXPECT_TRUE(contains(outcome.err, "there is no program \"nowhere\""));
  EXPECT_EQ(run({"--num_workers=1", "./nowhere.sh"}).code, 127);
  outcome = run({"--num_workers=1", "plain"});
  EXPECT_EQ(outcome.code, 126);
  EXPECT_TRUE(contains(outcome.err, "./plain is not executable"));
  EXPECT_EQ(run({"--num_workers=1", "/tmp"}).code, 126);
  chmod(path("plain").c_str(), 0755);
  outcome = run({"--num_workers=3", "plain"});
  EXPECT_EQ(outcome.code, 126);
  EXPECT_TRUE(contains(outcome.err, "cannot run ./plain: Exec format error"));
}

TEST_F(Output, OfWrongOptionsSaysWhatToTry) {
  EXPECT_EQ(run({"--num_worker", "2", "x"}).code, 2);
  const Outcome help = run({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_TRUE(contains(help.out, "epl-launch --num_workers 2"));
}

TEST_F(Output, ShowsThatEachWorkerKnowsItsPlace) {
  const Outcome outcome = run({"--num_workers=2", "--debug", EPL_PRINT_JOB_PLACE});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(
      contains(outcome.out, "[worker 0] epl-launch: worker 0 of 2, local 0 of 2, master 127"));
  EXPECT_TRUE(
      contains(outcome.out, "[worker 1] epl-launch: worker 1 of 2, local 1 of 2, master 127"));
}

TEST_F(Output, ShowsWhichWorkersAMachineRuns) {
  const Outcome outcome = run({"--num_workers=4", "--machine_list=192.0.2.1:2222,192.0.2.2:2222",
                               "--machine_rank=1", "--debug", EPL_PRINT_JOB_PLACE});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(contains(outcome.out, "worker 2 of 4, local 0 of 2, master 192.0.2.1:2222\n"));
  EXPECT_TRUE(contains(outcome.out, "worker 3 of 4, local 1 of 2, master 192.0.2.1:2222\n"));
  EXPECT_TRUE(contains(outcome.err, "2 workers of 4 (2 to 3) run"));
}

TEST_F(Output, UnderMpirunShowsOpenMpisPlace) {
  if (Running({"bash", "-c", "command -v mpirun"}, folder()).wait().code != 0) {
    GTEST_SKIP() << "there is no mpirun (Debian: openmpi-bin)";
  }
  const Outcome outcome =
      Running({"mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", EPL_PRINT_JOB_PLACE},
              folder())
          .wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "Open MPI: worker 0 of 2, local 0 of 2, master 127.0.0.1:"));
  EXPECT_TRUE(contains(outcome.out, "Open MPI: worker 1 of 2, local 1 of 2, master 127.0.0.1:"));
}

}  // namespace
}  // namespace epl

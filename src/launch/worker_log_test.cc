#include "launch/worker_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "launch/culprit.h"
#include "launch/terminal.h"

namespace epl {
namespace {

using Lines = std::vector<std::string>;

class WorkerLogTest : public testing::Test {
 protected:
  WorkerLogTest() : path_(testing::TempDir() + "worker_log_" + std::to_string(getpid())) {}
  ~WorkerLogTest() override { remove(path_.c_str()); }

  static void add(WorkerLog& log, const std::string& text) {
    log.add(Voice::kOut, text.data(), text.size());
  }
  std::string file() const {
    std::ifstream in(path_);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }

  std::string path_;
};

TEST_F(WorkerLogTest, KeepsBytesAsTheyCome) {
  WorkerLog log(path_, WorkerLog::Lines::kKept);
  const std::string bytes("a\0b\xff\xfe\r\n\xe2\x82", 9);
  add(log, bytes);
  EXPECT_EQ(file(), bytes);
}

TEST_F(WorkerLogTest, HandsOverWholeLines) {
  WorkerLog log(path_, WorkerLog::Lines::kKept);
  add(log, "one\ntw");
  EXPECT_EQ(log.take_lines(Voice::kOut), "one\n");
  EXPECT_EQ(log.take_lines(Voice::kOut), "");
  add(log, "o\nthree\nfour");
  EXPECT_EQ(log.take_lines(Voice::kOut), "two\nthree\n");
  EXPECT_EQ(log.take_rest(Voice::kOut), "four");
  EXPECT_EQ(log.take_rest(Voice::kOut), "");
}

TEST_F(WorkerLogTest, TellsErrorsFromOutput) {
  WorkerLog log(path_, WorkerLog::Lines::kKept);
  add(log, "one\n");
  log.add(Voice::kErrors, "no", 2);
  add(log, "two\n");
  log.add(Voice::kErrors, " luck\n", 6);
  EXPECT_EQ(log.take_lines(Voice::kOut), "one\ntwo\n");
  EXPECT_EQ(log.take_lines(Voice::kErrors), "no luck\n");
  EXPECT_EQ(file(), "one\nnotwo\n luck\n");
}

TEST_F(WorkerLogTest, DoesNotCollectALineWithoutEnd) {
  WorkerLog log(path_, WorkerLog::Lines::kKept);
  add(log, std::string(WorkerLog::kLongLine + 1, 'x'));
  EXPECT_EQ(log.take_lines(Voice::kOut).size(), WorkerLog::kLongLine + 1);
  WorkerLog unshown(path_, WorkerLog::Lines::kDropped);
  add(unshown, "a\n");
  EXPECT_EQ(unshown.take_lines(Voice::kOut), "");
}

TEST_F(WorkerLogTest, RemembersTheLastLines) {
  WorkerLog log(path_, WorkerLog::Lines::kDropped);
  EXPECT_EQ(log.last_lines(3), Lines{});
  add(log, "one");
  EXPECT_EQ(log.last_lines(3), Lines{"one"});
  add(log, "\n\nthree\nfour\n");
  EXPECT_EQ(log.last_lines(3), (Lines{"", "three", "four"}));
  EXPECT_EQ(log.last_lines(9), (Lines{"one", "", "three", "four"}));
  add(log, "10%\r20%\r30%");
  EXPECT_EQ(log.last_lines(1), (Lines{"30%"}));
}

TEST_F(WorkerLogTest, RemembersTheLastLinesOfMuchOutput) {
  WorkerLog log(path_, WorkerLog::Lines::kDropped);
  for (int i = 0; i < 200000; ++i) add(log, "line " + std::to_string(i) + "\n");
  EXPECT_EQ(log.last_lines(2), (Lines{"line 199998", "line 199999"}));
  add(log, std::string(1 << 20, 'x'));
  ASSERT_EQ(log.last_lines(1).size(), 1u);
  EXPECT_LT(log.last_lines(1)[0].size(), 2000u);
}

TEST(AsSeen, IsWhatATerminalShows) {
  EXPECT_EQ(as_seen(""), "");
  EXPECT_EQ(as_seen("\n"), "\n");
  EXPECT_EQ(as_seen("a\n"), "a\n");
  EXPECT_EQ(as_seen("a\r\n"), "a\n");
  EXPECT_EQ(as_seen("10%\r20%\n"), "20%\n");
  EXPECT_EQ(as_seen("10%\r20%\r"), "20%");
  EXPECT_EQ(as_seen("\ra"), "a");
  EXPECT_EQ(as_seen("\r"), "");
}

TEST(Culprit, IsTheFirstThatBlamesNobody) {
  const Death survivor{0, {1, 0}, {"epl: worker 1 (host h, pid 7) is gone", "bye"}};
  const Death aborted{2, {0, 6}, {"  what(): worker 1 (host h) is gone: it was in step 3"}};
  const Death cause{1, {3, 0}, {"epl: no such file"}};
  const Death killed{1, {0, 9}, {"epl: worker 5 (host h) is gone"}};
  EXPECT_EQ(find_culprit({survivor}), 0u);
  EXPECT_EQ(find_culprit({survivor, cause}), 1u);
  EXPECT_EQ(find_culprit({cause, survivor}), 0u);
  EXPECT_EQ(find_culprit({survivor, aborted, killed}), 2u);
  EXPECT_EQ(find_culprit({survivor, aborted}), 0u);
}

TEST(Culprit, MaySpeakOfItself) {
  EXPECT_FALSE(blames_another({1, {1, 0}, {"my worker 1 is gone mad"}}));
  EXPECT_FALSE(blames_another({1, {1, 0}, {"the disk is gone"}}));
  EXPECT_FALSE(blames_another({1, {1, 0}, {}}));
  EXPECT_FALSE(blames_another({1, {1, 0}, {"worker 1 (pid 7 on host h) failed; no luck"}}));
  EXPECT_TRUE(blames_another({1, {1, 0}, {"worker 12 is gone"}}));
  EXPECT_TRUE(blames_another({1, {1, 0}, {"epl: worker 0 (pid 7 on host h) failed; it was", "x"}}));
}

// A worker that leaves while others still train is the one to ask, not those who miss it.
TEST(Culprit, IsTheOneThatHasFinishedWhileOthersTrain) {
  const std::string missed =
      "epl: worker 1 (pid 8 on host h) has finished after step 3 while worker 0 (pid 7 on host h) "
      "is in "
      "step 4";
  EXPECT_TRUE(blames_another({0, {1, 0}, {missed}}));
  EXPECT_FALSE(blames_another({1, {1, 0}, {missed}}));
  const Death survivor{0, {1, 0}, {missed, "  try:      the same number of steps on all workers"}};
  const Death caught{1, {1, 0}, {"caught: no such file"}};
  EXPECT_EQ(find_culprit({survivor, caught}), 1u);
  EXPECT_EQ(find_culprit({caught, survivor}), 0u);
}

TEST(ProcessEnd, TellsItsReason) {
  EXPECT_EQ(end_text({3, 0}), "exited with code 3");
  EXPECT_EQ(end_text({0, 9}), "was killed by signal 9 (Killed)");
  EXPECT_EQ((ProcessEnd{3, 0}.exit_code()), 3);
  EXPECT_EQ((ProcessEnd{0, 11}.exit_code()), 139);
}

TEST(StatusLine, FitsOneRow) {
  EXPECT_EQ(one_row("abc", 10), "abc");
  EXPECT_EQ(one_row("abcdef", 3), "abc");
  EXPECT_EQ(one_row("a\tb\033[1mc\n", 20), "a b?[1mc?");
  EXPECT_EQ(one_row("h\xc3\xa9!", 4), "h\xc3\xa9!");  // é may take two columns
  EXPECT_EQ(one_row("h\xc3\xa9!", 2), "h");
  EXPECT_EQ(one_row("a\xff\xe2\x82", 10), "a???");
  EXPECT_EQ(one_row("abc", 0), "");
}

TEST(StatusLine, TellsTheTime) {
  EXPECT_EQ(elapsed_text(std::chrono::seconds(5)), "0:00:05");
  EXPECT_EQ(elapsed_text(std::chrono::seconds(3600 * 27 + 61)), "27:01:01");
}

}  // namespace
}  // namespace epl

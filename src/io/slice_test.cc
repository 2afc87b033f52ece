#include "io/slice.h"

#include <epl/env.h>

#include <numeric>

#include "base/text.h"
#include "config/test_environment.h"

namespace epl {
namespace {

std::vector<std::string> files(int64_t count) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < count; ++i) names.push_back(concat("f", i));
  return names;
}

// What each worker reads, as text: "f0 f1 | f2".
std::string cut(int64_t count, const std::vector<int>& replicas,
                FileRemainder remainder = FileRemainder::kError) {
  std::vector<std::string> parts;
  for (int worker = 0; worker < static_cast<int>(replicas.size()); ++worker) {
    parts.push_back(join(slice_files(files(count), {replicas, worker}, remainder, "a test"), " "));
  }
  return join(parts, " | ");
}

TEST(SliceFiles, DealsThemOutInRounds) {
  EXPECT_EQ(cut(2, {2, 2}), "f0 | f1");
  EXPECT_EQ(cut(4, {2, 2}), "f0 f2 | f1 f3");
  EXPECT_EQ(cut(6, {1, 1, 1}), "f0 f3 | f1 f4 | f2 f5");
}

TEST(SliceFiles, GivesEachWorkerInProportionToItsReplicas) {
  EXPECT_EQ(cut(3, {4, 2}), "f0 f1 | f2");
  EXPECT_EQ(cut(6, {4, 2}), "f0 f1 f3 f4 | f2 f5");
  EXPECT_EQ(cut(6, {2, 6, 4}), "f0 | f1 f2 f3 | f4 f5");
}

TEST(SliceFiles, DropsTheRemainder) {
  EXPECT_EQ(cut(3, {2, 2}, FileRemainder::kDrop), "f0 | f1");
  EXPECT_EQ(cut(4, {4, 2}, FileRemainder::kDrop), "f0 f1 | f2");
  EXPECT_EQ(cut(5, {4, 2}, FileRemainder::kDrop), "f0 f1 | f2");
  EXPECT_EQ(cut(6, {4, 2}, FileRemainder::kDrop), "f0 f1 f3 f4 | f2 f5");
}

TEST(SliceFiles, GivesSomeWorkersOneMore) {
  EXPECT_EQ(cut(3, {2, 2}, FileRemainder::kUnbalanced), "f0 f2 | f1");
  EXPECT_EQ(cut(4, {4, 2}, FileRemainder::kUnbalanced), "f0 f1 f3 | f2");
  EXPECT_EQ(cut(5, {4, 2}, FileRemainder::kUnbalanced), "f0 f1 f3 | f2 f4");
  EXPECT_EQ(cut(6, {4, 2}, FileRemainder::kUnbalanced), "f0 f1 f3 f4 | f2 f5");
  EXPECT_EQ(cut(7, {1, 1, 1}, FileRemainder::kUnbalanced), "f0 f3 f6 | f1 f4 | f2 f5");
}

TEST(SliceFiles, LeavesNoWorkerWithoutAFileWhereOthersHaveOneToSpare) {
  EXPECT_EQ(cut(2, {7, 1}, FileRemainder::kUnbalanced), "f0 | f1");
  EXPECT_EQ(cut(4, {7, 1}, FileRemainder::kUnbalanced), "f0 f1 f2 | f3");
}

TEST(SliceFiles, GivesOneWorkerAllOfThem) {
  EXPECT_EQ(cut(3, {1}), "f0 f1 f2");
  EXPECT_EQ(cut(3, {2}), "f0 f1 f2");
  EXPECT_EQ(cut(3, {4}, FileRemainder::kDrop), "f0 f1 f2");
}

TEST(SliceFiles, ReadsEveryFileOnceAndRoundsSharesDownOrUp) {
  const std::vector<std::vector<int>> shapes = {{1, 1}, {8, 8, 8}, {3, 5}, {7, 1}, {2, 3, 4, 1}};
  for (const std::vector<int>& replicas : shapes) {
    const int64_t total = std::accumulate(replicas.begin(), replicas.end(), int64_t{0});
    for (int64_t count = 10; count < 40; ++count) {
      SCOPED_TRACE(concat(count, " files, replicas ", join(replicas, " ")));
      std::vector<std::string> read;
      for (int worker = 0; worker < static_cast<int>(replicas.size()); ++worker) {
        const std::vector<std::string> mine =
            slice_files(files(count), {replicas, worker}, FileRemainder::kUnbalanced, "a test");
        const int64_t exact_down = count * replicas[worker] / total;
        EXPECT_GE(static_cast<int64_t>(mine.size()), exact_down);
        EXPECT_LE(static_cast<int64_t>(mine.size()), exact_down + 1);
        read.insert(read.end(), mine.begin(), mine.end());
      }
      std::vector<std::string> all = files(count);
      std::sort(all.begin(), all.end());
      std::sort(read.begin(), read.end());
      EXPECT_EQ(read, all);
    }
  }
}

TEST(SliceFiles, SaysWhichOptionHelpsAnUnevenList) {
  EXPECT_EQ(error_of([] {
              cut(3, {2, 2});
            }),
            "epl: 3 files cannot be cut evenly over 2 workers with 2 replicas each: that takes a "
            "multiple of 2\n"
            "  asked by: a test\n"
            "  try:      io.drop_last_files = true, which leaves out the last 1, or "
            "io.unbalanced_io_slicing = true, which gives some workers one more");
  EXPECT_EQ(error_of([] {
              cut(2, {4, 2});
            }),
            "epl: 2 files cannot be cut evenly over 2 workers with 4 + 2 replicas: that takes a "
            "multiple of 3\n"
            "  asked by: a test\n"
            "  try:      io.unbalanced_io_slicing = true, which gives some workers one more");
}

TEST(SliceFiles, DoesNotLeaveAWorkerWithoutAFile) {
  EXPECT_EQ(error_of([] {
              cut(1, {1, 1}, FileRemainder::kUnbalanced);
            }),
            "epl: 1 file cannot be cut over 2 workers with 1 replica each: worker 1 would have "
            "none\n"
            "  asked by: a test\n"
            "  try:      more files, or io.slicing = false with an epl::DistributedSampler, which "
            "cuts rows");
  EXPECT_EQ(error_of([] {
              cut(2, {4, 2}, FileRemainder::kDrop);
            }),
            "epl: 2 files cannot be cut over 2 workers with 4 + 2 replicas: worker 0 would have "
            "none\n"
            "  asked by: a test\n"
            "  try:      io.unbalanced_io_slicing = true, which gives some workers one more");
  EXPECT_NE(error_of([] { cut(0, {1}); }), "no error");
  EXPECT_NE(error_of([] { cut(0, {2, 2}); }), "no error");
}

TEST(SliceFiles, RefusesSharesThatCannotBe) {
  EXPECT_EQ(error_of([] {
              cut(2, {2, 0});
            }),
            "epl: a worker cannot have 0 replicas\n"
            "  asked by: epl::WorkerShares\n"
            "  try:      at least one replica a worker");
  EXPECT_EQ(error_of([] {
              slice_files(files(2), {{1, 1}, 2}, FileRemainder::kDrop, "a test");
            }),
            "epl: there is no worker 2 among 2\n"
            "  asked by: epl::WorkerShares");
}

class SliceFilesOfEnv : public EnvironmentFixture {
 protected:
  ~SliceFilesOfEnv() override {
    clear();
    init();
  }
};

TEST_F(SliceFilesOfEnv, HandsBackAllWhereSlicingIsOff) {
  init();
  EXPECT_EQ(slice_files(files(3)), files(3));
  EXPECT_EQ(slice_files({}), files(0));
}

TEST_F(SliceFilesOfEnv, FollowsTheConfiguration) {
  init(Config{{"io.slicing", true}});
  EXPECT_EQ(slice_files(files(3)), files(3));
  const std::string error = error_of([] { slice_files({}, SourceLocation{"train.cc", 9}); });
  EXPECT_NE(error.find("asked by: epl::slice_files() at train.cc:9\n"
                       "            io.slicing = true (code "),
            std::string::npos)
      << error;
}

TEST_F(SliceFilesOfEnv, RefusesBothOptionsAtOnce) {
  set("EPL_IO_SLICING", "true");
  set("EPL_IO_DROP_LAST_FILES", "true");
  set("EPL_IO_UNBALANCED_IO_SLICING", "true");
  EXPECT_EQ(error_of([] { init(); }),
            "epl: io.drop_last_files leaves the last files out and io.unbalanced_io_slicing deals "
            "them out\n"
            "  asked by: io.drop_last_files = true (environment EPL_IO_DROP_LAST_FILES)\n"
            "            io.unbalanced_io_slicing = true (environment "
            "EPL_IO_UNBALANCED_IO_SLICING)\n"
            "  try:      one of the two");
}

TEST_F(SliceFilesOfEnv, CountsRowsByTheDevicesOfThisWorker) {
  init();
  EXPECT_EQ(worker_batch_size(32), 32 * Env::get().cluster.local_devices());
  EXPECT_EQ(error_of([] {
              worker_batch_size(0, SourceLocation{"train.cc", 9});
            }),
            "epl: a device cannot take 0 rows of a step\n"
            "  asked by: epl::worker_batch_size(0) at train.cc:9\n"
            "  try:      at least one row a device");
}

}  // namespace
}  // namespace epl

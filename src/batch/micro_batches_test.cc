#include "batch/micro_batches.h"

#include <gmock/gmock.h>

#include "config/test_environment.h"

namespace epl {
namespace {

using testing::HasSubstr;

Shares shares(int replicas, int slices, int micro_batches) {
  Shares result;
  result.replicas = replicas;
  result.slices = slices;
  result.micro_batches = micro_batches;
  result.asked_by = "epl::replicate(1) at net.cc:3";
  return result;
}

std::vector<int64_t> first_rows(const std::vector<Batch>& batches) {
  std::vector<int64_t> rows;
  for (const Batch& batch : batches) rows.push_back(batch[0][0].item<int64_t>());
  return rows;
}

TEST(MicroBatches, LieInTheOrderReplicaMicroBatchSlice) {
  const Batch batch{torch::arange(24)};
  const DeviceBatches cut = cut_into_micro_batches(batch, shares(2, 2, 3), Config());
  ASSERT_EQ(cut.size(), 4u);
  EXPECT_EQ(first_rows(cut[0]), (std::vector<int64_t>{0, 4, 8}));
  EXPECT_EQ(first_rows(cut[1]), (std::vector<int64_t>{2, 6, 10}));
  EXPECT_EQ(first_rows(cut[2]), (std::vector<int64_t>{12, 16, 20}));
  EXPECT_EQ(cut[3][0][0].size(0), 2);
}

TEST(MicroBatches, OfASourceAreThoseOfTheBatch) {
  int64_t next = 0;
  const BatchSource source = [&] { return Batch{torch::arange(4) + 4 * next++}; };
  const DeviceBatches drawn = draw_micro_batches(source, shares(2, 2, 3), Config());
  EXPECT_EQ(next, 6);
  EXPECT_EQ(first_rows(drawn[1]), (std::vector<int64_t>{2, 6, 10}));
  EXPECT_EQ(first_rows(drawn[2]), (std::vector<int64_t>{12, 16, 20}));
}

TEST(MicroBatches, ThatDoNotDivideAreRefusedWithTheNumbers) {
  EXPECT_EQ(
      error_of([] { cut_into_micro_batches({torch::zeros({10})}, shares(4, 1, 1), Config()); }),
      "epl: cannot cut a batch of 10 rows evenly into 4 devices\n"
      "  asked by: epl::replicate(1) at net.cc:3\n"
      "  try:      a batch size that 4 divides, such as 12");
  EXPECT_THAT(
      error_of([] {
        cut_into_micro_batches({torch::zeros({10})}, shares(2, 1, 3),
                               Config{{"pipeline.num_micro_batch", 3}});
      }),
      HasSubstr("cannot cut a batch of 10 rows evenly into 3 micro batches on each of 2 devices"));
  EXPECT_THAT(error_of([] {
                draw_micro_batches([] { return Batch{torch::zeros({3})}; }, shares(1, 2, 1),
                                   Config());
              }),
              HasSubstr("cannot cut a micro batch of 3 rows evenly into 2 devices"));
}

}  // namespace
}  // namespace epl

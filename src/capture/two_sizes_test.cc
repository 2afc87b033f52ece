#include "capture/two_sizes.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "config/test_environment.h"

namespace epl {
namespace {

using testing::HasSubstr;

class TwoSizesTest : public testing::Test {
 protected:
  TwoSizesTest() : net(3, 2) {
    for (const auto& entry : net->named_parameters())
      parameters.emplace_back(entry.key(), entry.value());
  }

  TwoSizes compared(const StepFunction& step) {
    const Batch rows{torch::randn({4, 3})};
    const Batch more = repeat_rows(rows, 3);
    return compare_sizes(capture_step({step, rows, parameters, {}}).graph,
                         capture_step({step, more, parameters, {}}).graph, 3, "epl::replicate(3)");
  }

  torch::nn::Linear net;
  NamedTensors parameters;
};

TEST_F(TwoSizesTest, FindsTheBatchDimensionOfEveryValue) {
  const Batch rows{torch::randn({4, 3})};
  const StepFunction step = [&](const Batch& batch) { return net(batch[0]).t().pow(2).mean(); };
  const Capture small = capture_step({step, rows, parameters, {}});
  const TwoSizes sizes = compare_sizes(
      small.graph, capture_step({step, repeat_rows(rows, 2), parameters, {}}).graph, 2, "");
  for (const auto& leaf : small.graph.leaves) {
    const int expected = leaf.kind == Leaf::Kind::kInput ? 0 : -1;
    EXPECT_EQ(sizes.batch_dims[static_cast<size_t>(leaf.value)], expected);
  }
  bool transposed = false;
  for (ValueId id = 0; id < small.graph.value_count(); ++id) {
    transposed |= small.graph.value(id).type.sizes == std::vector<int64_t>{2, 4} &&
                  sizes.batch_dims[static_cast<size_t>(id)] == 1;
  }
  EXPECT_TRUE(transposed);
}

TEST_F(TwoSizesTest, RefusesRowsThatLookAtEachOther) {
  EXPECT_THAT(
      error_of([&] {
        compared([&](const Batch& b) {
          const auto y = net(b[0]);
          return y.mm(y.t()).mean();
        });
      }),
      HasSubstr("rows of the micro batch look at each other: the result of aten::mm is [4, 4]"));
}

TEST_F(TwoSizesTest, RefusesAStepThatDoesOtherOperators) {
  EXPECT_THAT(error_of([&] {
                compared([&](const Batch& b) {
                  const auto y = net(b[0]);
                  return b[0].size(0) > 5 ? y.relu().mean() : y.mean();
                });
              }),
              HasSubstr("the step does other operators for a smaller micro batch"));
}

}  // namespace
}  // namespace epl

// Pipelines give what the plain loop gives: any number of stages, micro batches and replicas, by
// every schedule.
#include "tests/parity/pipelines.h"

namespace epl::parity {
namespace {

struct Layout {
  int stages;
  int replicas;
};

class Pipelines : public testing::TestWithParam<Layout> {
 protected:
  static Variant layout(int micro_batches) {
    return pipeline(GetParam().stages, micro_batches, GetParam().replicas);
  }
};

// Tied to one another as well: for one layout all schedules give the same bits.
TEST_P(Pipelines, TrainByEverySchedule) {
  for (int micro_batches : {1, 2, 4, 8}) {
    const Variant variant = layout(micro_batches);
    const MakeBatch batch = rows(64);
    const Trace plain = train_plain(stack(GetParam().stages), batch, variant);
    Trace first;
    for (const std::string& schedule : schedules()) {
      SCOPED_TRACE(schedule + ", micro batches " + std::to_string(micro_batches));
      const Trace trace = train_on_devices(stack(GetParam().stages), batch,
                                           Variant(variant).with("pipeline.strategy", schedule));
      EXPECT_TRUE(compare(plain, trace, bit_equal(), variant));
      if (first.empty()) first = trace;
      EXPECT_TRUE(same_traces(first, trace));
    }
  }
}

TEST_P(Pipelines, TrainInterleaved) {
  const int scopes = 2 * GetParam().stages;
  for (int micro_batches : {1, 2, 4, 8}) {
    const Variant variant = layout(micro_batches)
                                .with("pipeline.strategy", "Interleaved")
                                .with("pipeline.num_stages", GetParam().stages);
    SCOPED_TRACE(micro_batches);
    EXPECT_TRUE(parity(stack(scopes), rows(64), bit_equal(), variant));
  }
}

// Four scopes on two stages, the first of which is entered once more.
TEST(Pipelines, InterleavedGoesRoundAgain) {
  const MakeProgram make = [] {
    auto net = std::make_shared<Stack>(5);
    return program(net, sgd(*net, 0.1), [net](const Batch& batch) {
      torch::Tensor x = batch[0];
      for (int i = 0; i < 5; ++i) {
        const With scope(stage(i % 4));
        x = net->layers[static_cast<size_t>(i)]->as<torch::nn::Linear>()->forward(x);
      }
      return cross_entropy(x, batch[1]);
    });
  };
  const Variant variant =
      pipeline(2, 4).with("pipeline.strategy", "Interleaved").with("pipeline.num_stages", 2);
  EXPECT_TRUE(parity(make, rows(32), bit_equal(), variant));
}

INSTANTIATE_TEST_SUITE_P(Layouts, Pipelines,
                         testing::Values(Layout{2, 1}, Layout{2, 2}, Layout{2, 4}, Layout{3, 1},
                                         Layout{3, 2}, Layout{3, 4}, Layout{4, 1}, Layout{4, 2},
                                         Layout{4, 4}),
                         [](const auto& info) {
                           return "Stages_" + std::to_string(info.param.stages) + "_replicas_" +
                                  std::to_string(info.param.replicas);
                         });

}  // namespace
}  // namespace epl::parity

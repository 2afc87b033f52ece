// Stages with different numbers of devices: rows are gathered and cut anew where they meet.
#include "tests/parity/pipelines.h"

namespace epl::parity {
namespace {

using torch::Tensor;

const Exactness kRounding = within(1e-5, "a micro batch is summed in slices");

MakeProgram sliced(const std::vector<int>& stages) {
  return [stages] {
    auto net = std::make_shared<Stack>(stages);
    return program(net, sgd(*net, 0.1, 0.9), classification(net));
  };
}

Variant layout(const std::vector<int>& stages, int micro_batches, int replicas) {
  const int devices = std::accumulate(stages.begin(), stages.end(), 0);
  return Variant().steps(3).stages(stages).devices(devices * replicas).micro_batches(micro_batches);
}

class Slices : public testing::TestWithParam<std::vector<int>> {};

TEST_P(Slices, Train) {
  for (int micro_batches : {1, 2, 4}) {
    for (int replicas : {1, 2}) {
      EXPECT_TRUE(parity(sliced(GetParam()), rows(96), kRounding,
                         layout(GetParam(), micro_batches, replicas)))
          << micro_batches << " micro batches, " << replicas << " replicas";
    }
  }
}

TEST_P(Slices, TrainByEverySchedule) {
  for (const std::string& schedule : schedules()) {
    EXPECT_TRUE(parity(sliced(GetParam()), rows(96), kRounding,
                       layout(GetParam(), 4, 1).with("pipeline.strategy", schedule)))
        << schedule;
  }
}

TEST_P(Slices, ClipSumAndDrawFromASource) {
  const Variant variant = layout(GetParam(), 2, 2);
  const MakeProgram make = sliced(GetParam());
  EXPECT_TRUE(parity(make, rows(96), kRounding, Variant(variant).clip_norm(0.1)));
  EXPECT_TRUE(parity(make, rows(96), kRounding, Variant(variant).clip_norm(0.1).clip_after()));
  EXPECT_TRUE(parity(make, rows(96), kRounding, Variant(variant).sum()));
  EXPECT_TRUE(parity(make, rows(96), kRounding, Variant(variant).from_source()));
  EXPECT_TRUE(parity(make, rows(96), kRounding, Variant(variant).with("debug.verify_steps", 2)));
}

INSTANTIATE_TEST_SUITE_P(Layouts, Slices,
                         testing::Values(std::vector<int>{2, 1}, std::vector<int>{1, 2},
                                         std::vector<int>{1, 2, 1}, std::vector<int>{2, 3},
                                         std::vector<int>{3, 2}, std::vector<int>{2, 2},
                                         std::vector<int>{4, 1, 2}),
                         [](const auto& info) {
                           std::string name = "Devices";
                           for (int devices : info.param) name += "_" + std::to_string(devices);
                           return name;
                         });

// The first stage reads a number of all its rows back into C++; those of the next are cut.
struct Normed : torch::nn::Module {
  Normed() : first(8, 8), last(8, 4) {
    register_module("first", first);
    register_module("last", last);
  }
  Tensor forward(const Batch& batch) {
    Tensor x;
    {
      const With scope(replicate(1, "first"));
      x = first(batch[0] / batch[0].abs().max().item<float>());
    }
    const With scope(replicate(2, "last"));
    return cross_entropy(last(x), batch[1]);
  }
  torch::nn::Linear first, last;
};

TEST(SlicesOfAPipeline, FollowAStageThatReadsItsRowsBack) {
  const MakeProgram make = [] {
    auto net = std::make_shared<Normed>();
    return program(net, sgd(*net, 0.1, 0.9),
                   [net](const Batch& batch) { return net->forward(batch); });
  };
  const MakeBatch batch = [](int) -> Batch { return {torch::randn({8, 8}), classes(4, {8})}; };
  EXPECT_TRUE(parity(make, batch, kRounding, layout({1, 2}, 1, 1)));
}

// Values of all kinds at a border of 1 to 2, 2 to 1 and over two borders: tied weights, a skip,
// masks, integers, sequences whose batch is not dim 0.
struct Mixed : torch::nn::Module {
  Tensor forward(const Batch& batch) {
    Tensor x, early, mask;
    {
      const With scope(stage(0));
      early = table(batch[0]);  // [batch, sequence, 6]
      mask = batch[0] > 4;
      x = first(early).transpose(0, 1);
    }
    {
      const With scope(stage(1, 2));
      x = torch::tanh(middle(x)).masked_fill(mask.t().unsqueeze(-1), 0.25);
    }
    const With scope(stage(2));
    x = x.transpose(0, 1) + early;
    const Tensor logits = torch::matmul(x, table->weight.t());
    return cross_entropy(logits.flatten(0, 1), batch[1].flatten());
  }

  torch::nn::Embedding table = register_module("table", torch::nn::Embedding(10, 6));
  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 6));
  torch::nn::Linear middle = register_module("middle", torch::nn::Linear(6, 6));
};

TEST(Slices, CutValuesOfAllKinds) {
  const MakeProgram make = [] {
    auto net = std::make_shared<Mixed>();
    return program(net, sgd(*net, 0.1, 0.9),
                   [net](const Batch& batch) { return net->forward(batch); });
  };
  const MakeBatch batch = [](int) -> Batch { return {classes(10, {16, 3}), classes(10, {16, 3})}; };
  for (int replicas : {1, 2}) {
    EXPECT_TRUE(parity(make, batch, kRounding, layout({1, 2, 1}, 2, replicas))) << replicas;
  }
}

// [sequence, batch] is flattened where stages of different widths meet: its rows are no stretch of
// it, so that each device of the next stage has them all.
struct Flattened : torch::nn::Module {
  Tensor forward(const Batch& batch) {
    Tensor x;
    {
      const With scope(stage(0, 2));
      x = first(batch[0]).transpose(0, 1).contiguous().view({-1, 6});
    }
    {
      const With scope(stage(1));
      x = torch::tanh(middle(x));
    }
    const With scope(stage(2, 3));
    return (last(x).view({3, -1, 6}) - 0.5).pow(2).mean();
  }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(4, 6));
  torch::nn::Linear middle = register_module("middle", torch::nn::Linear(6, 6));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(6, 6));
};

TEST(Slices, OfAFlattenedSequence) {
  const MakeProgram make = [] {
    auto net = std::make_shared<Flattened>();
    return program(net, sgd(*net, 0.1, 0.9),
                   [net](const Batch& batch) { return net->forward(batch); });
  };
  const MakeBatch batch = [](int) -> Batch { return {torch::randn({12, 3, 4})}; };
  EXPECT_TRUE(parity(make, batch, kRounding, layout({2, 1, 3}, 2, 1)));
}

// A stage whose rows look at each other, between stages that cut them otherwise.
struct Centred : torch::nn::Module {
  Tensor forward(const Batch& batch) {
    Tensor x;
    {
      const With scope(stage(0));
      x = first(batch[0]);
      x = x + x.flip(0);
    }
    {
      const With scope(stage(1, 2));
      x = torch::tanh(middle(x));
      x = x - x.mean(0) + x.roll(1, 0);
    }
    const With scope(stage(2, 3));
    return (last(x) - 0.5 * last(x).mean(0)).pow(2).mean().sqrt();
  }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(4, 6));
  torch::nn::Linear middle = register_module("middle", torch::nn::Linear(6, 6));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(6, 6));
};

TEST(Slices, WhoseRowsLookAtEachOther) {
  const MakeProgram make = [] {
    auto net = std::make_shared<Centred>();
    return program(net, sgd(*net, 0.1, 0.9),
                   [net](const Batch& batch) { return net->forward(batch); });
  };
  const MakeBatch batch = [](int) -> Batch { return {torch::randn({24, 4})}; };
  for (const std::string& schedule : schedules()) {
    EXPECT_TRUE(
        parity(make, batch, kRounding, layout({1, 2, 3}, 1, 1).with("pipeline.strategy", schedule)))
        << schedule;
  }
}

// Devices of one stage side by side.
TEST(Slices, LieByStage) {
  EXPECT_TRUE(parity(sliced({2, 1}), rows(96), kRounding,
                     layout({2, 1}, 2, 2).with("cluster.device_place_prefer_intra_node", false)));
}

TEST(Slices, BatchOfAnotherShape) {
  const MakeBatch batch = [](int step) { return rows(step % 2 == 0 ? 24 : 48)(step); };
  EXPECT_TRUE(parity(sliced({2, 1}), batch, kRounding, layout({2, 1}, 2, 2).steps(4)));
}

}  // namespace
}  // namespace epl::parity

// What cannot be split, by its exact words; and what is split in part only, as the plan says it.
#include <gmock/gmock.h>

#include "base/text.h"
#include "driver/test_trainer.h"

namespace epl {
namespace {

using torch::Tensor;

struct SplitErrors : TrainerFixture {
  static void devices(int count, std::vector<Setting> settings = {}) {
    set("EPL_DEVICES", std::to_string(count));
    init(Config(std::move(settings)));
  }
  static void colocated_on(int count) {
    devices(count, {{"cluster.colocate_split_and_replicate", true}});
  }
};

// A linear layer, its optimizer and one step.
struct OneLayer {
  explicit OneLayer(int64_t in = 3, int64_t out = 3) : layer(in, out) {
    optimizer = std::make_unique<torch::optim::SGD>(layer->parameters(), 0.1);
  }

  std::string error_of_step(const StepFunction& step, const Batch& batch) {
    Trainer trainer(layer, *optimizer, step);
    return error_of([&] { trainer.step(batch); });
  }
  std::string plan_of_step(const StepFunction& step, const Batch& batch) {
    Trainer trainer(layer, *optimizer, step);
    trainer.step(batch);
    return trainer.plan();
  }

  torch::nn::Linear layer;
  std::unique_ptr<torch::optim::SGD> optimizer;
};

std::string first_lines(const std::string& text, const std::string& begin) {
  std::istringstream lines(text);
  std::vector<std::string> found;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(begin, 0) == 0) found.push_back(line);
  }
  return join(found, "\n");
}

// --- sentences in the plan ----------------------------------------------------------------------

TEST_F(SplitErrors, AScopeWithNothingToCut) {
  devices(2);
  OneLayer net(1, 1);
  const Strategy scope = split(2, "all");
  const std::string plan = net.plan_of_step(
      [&](const Batch& batch) {
        const With all(scope);
        return net.layer(batch[0]).sum();
      },
      {torch::randn({1, 1})});
  EXPECT_EQ(
      first_lines(plan, "note"),
      "note      `weight` f32[1,1] is whole on every device: no dimension has 2 elements to be "
      "cut\nnote      `bias` f32[1] is whole on every device: no dimension has 2 elements to be "
      "cut\n"
      "note      nothing can be cut over 2 devices: every device does all of it (" +
          scope.asked_by() + ")");
}

TEST_F(SplitErrors, MoreDevicesThanAnyDimensionOfAParameter) {
  devices(4);
  OneLayer net(3, 3);
  const std::string plan = net.plan_of_step(
      [&](const Batch& batch) {
        const With all(split(4, "all"));
        return net.layer(batch[0]).sum();
      },
      {torch::randn({8, 3})});
  EXPECT_EQ(
      first_lines(plan, "note"),
      "note      `weight` f32[3,3] is whole on every device: no dimension has 4 elements to be "
      "cut\n"
      "note      `bias` f32[3] is whole on every device: no dimension has 4 elements to be cut");
}

TEST_F(SplitErrors, AValueThatIsReadBack) {
  devices(2);
  OneLayer net(4, 4);
  const std::string plan = net.plan_of_step(
      [&](const Batch& batch) {
        const With all(split(2, "all"));
        const Tensor y = net.layer(batch[0]);
        const double scale = y.abs().sum().item<double>() > 1e6 ? 0.5 : 1;
        return y.sum() * scale;
      },
      {torch::randn({8, 4})});
  EXPECT_EQ(first_lines(plan, "note"),
            "note      `weight` f32[4,4] is cut in dim 0: 2, 2\n"
            "note      `bias` f32[4] is cut in dim 0: 2, 2\n"
            "note      aten::_local_scalar_dense has no rule: every device does all of it\n"
            "note      aten::_local_scalar_dense reads a value back into C++: it is made whole on "
            "every device");
}

TEST_F(SplitErrors, AnOperatorWithoutARule) {
  devices(2);
  OneLayer net(4, 4);
  const std::string plan = net.plan_of_step(
      [&](const Batch& batch) {
        const With all(split(2, "all"));
        return torch::renorm(net.layer(batch[0]), 2, 0, 1.0).sum();
      },
      {torch::randn({8, 4})});
  EXPECT_NE(plan.find("note      aten::renorm has no rule: every device does all of it\n"),
            std::string::npos)
      << plan;
}

// --- devices ------------------------------------------------------------------------------------

TEST_F(SplitErrors, DevicesThatAreNoMultiple) {
  devices(3);
  OneLayer net;
  const Strategy scope = split(2, "all");
  EXPECT_EQ(net.error_of_step(
                [&](const Batch& batch) {
                  const With all(scope);
                  return net.layer(batch[0]).sum();
                },
                rows(6)),
            "epl: 3 devices cannot be shared out over model replicas of 2 devices\n  asked by: " +
                scope.asked_by() + "\n  try:      EPL_DEVICES=4");
}

TEST_F(SplitErrors, MoreDevicesThanThereAre) {
  devices(2);
  OneLayer net;
  const Strategy scope = split(4, "all");
  EXPECT_EQ(net.error_of_step(
                [&](const Batch& batch) {
                  const With all(scope);
                  return net.layer(batch[0]).sum();
                },
                rows(6)),
            "epl: 2 devices cannot be shared out over model replicas of 4 devices\n  asked by: " +
                scope.asked_by() + "\n  try:      EPL_DEVICES=4");
}

TEST_F(SplitErrors, ColocatedScopesOfDifferentCounts) {
  colocated_on(4);
  OneLayer net;
  const Strategy body = replicate(2, "body"), head = split(4, "head");
  EXPECT_EQ(net.error_of_step(
                [&](const Batch& batch) {
                  Tensor x;
                  {
                    const With scope(body);
                    x = batch[0] * 2;
                  }
                  const With scope(head);
                  return net.layer(x).sum();
                },
                rows(8)),
            "epl: TaskGraphs on the same devices have different device counts\n  asked by: " +
                body.asked_by() + "\n            " + head.asked_by() +
                "\n  try:      device_count 4 for all of them");
}

// --- parameters made under split ----------------------------------------------------------------

struct Experts : torch::nn::Module {
  Experts(int64_t count, const Strategy& strategy) {
    const With scope(strategy);
    weight = register_parameter("weight", torch::randn({count, 3, 3}));
  }
  Tensor forward(const Tensor& x) {
    return torch::bmm(x.unsqueeze(0).expand({weight.size(0), -1, -1}), weight).sum(0);
  }
  Tensor weight;
};

std::string error_of_experts(int64_t count, const Strategy& made_under,
                             const StepFunction& around) {
  auto net = std::make_shared<Experts>(count, made_under);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  Trainer trainer(net, optimizer, [&](const Batch& batch) {
    StepOutput output = around(batch);
    output.loss = output.loss + net->forward(batch[0]).square().mean();
    return output;
  });
  return error_of([&] { trainer.step(rows(8)); });
}

Tensor nothing(const Batch&) { return torch::zeros({}); }

TEST_F(SplitErrors, FewerExpertsThanDevices) {
  devices(4);
  set_default_strategy(replicate(4));
  const Strategy experts = split(4, "experts");
  EXPECT_EQ(error_of_experts(3, experts, nothing),
            "epl: cannot cut dim 0 of `weight` f32[3,3,3] over 4 devices\n  asked by: " +
                experts.asked_by() +
                "\n  try:      at least 4 rows, or make it outside of the scope");
}

TEST_F(SplitErrors, ExpertsMadeForOtherDevices) {
  devices(4);
  set_default_strategy(replicate(2));
  const Strategy experts = split(4, "experts");
  EXPECT_EQ(error_of_experts(8, experts, nothing),
            "epl: `weight` was made to be cut over 4 devices, but a model replica has 2\n"
            "  asked by: " +
                experts.asked_by() + "\n  try:      epl::split(2) around it");
}

TEST_F(SplitErrors, ExpertsOfFourUsedUnderSplitOverTwo) {
  devices(4);
  const Strategy experts = split(4, "experts");
  auto net = std::make_shared<Experts>(8, experts);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  Trainer trainer(net, optimizer, [&](const Batch& batch) {
    const With scope(split(2, "use"));
    return net->forward(batch[0]).square().mean();
  });
  EXPECT_EQ(error_of([&] { trainer.step(rows(8)); }), "no error");
}

TEST_F(SplitErrors, ASparseGradient) {
  devices(2);
  torch::nn::Embedding words(torch::nn::EmbeddingOptions(10, 4).sparse(true));
  torch::optim::SGD optimizer(words->parameters(), 0.1);
  const Strategy scope = split(2, "all");
  Trainer trainer(words, optimizer, [&](const Batch& batch) {
    const With all(scope);
    return words(batch[0]).sum();
  });
  EXPECT_EQ(error_of([&] { trainer.step({torch::arange(8)}); }),
            concat("epl: the gradient of `weight` is sparse, which cannot be cut over devices\n"
                   "  asked by: ",
                   scope.asked_by(),
                   "\n  try:      EmbeddingOptions::sparse(false), or the table outside of the "
                   "split scope"));
}

TEST_F(SplitErrors, ASparseGradientInAStage) {
  devices(3);
  torch::nn::Embedding words(torch::nn::EmbeddingOptions(10, 4).sparse(true));
  torch::nn::Linear last(4, 4);
  auto net = torch::nn::Sequential(words, last);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const Strategy scope = split(2, "table");
  Trainer trainer(net, optimizer, [&](const Batch& batch) {
    Tensor x;
    {
      const With table(scope);
      x = words(batch[0]);
    }
    const With rest(replicate(1, "rest"));
    return last(x).sum();
  });
  EXPECT_THAT(error_of([&] { trainer.step({torch::arange(8)}); }),
              testing::HasSubstr("epl: the gradient of `0.weight` is sparse, which cannot be cut "
                                 "over devices"));
}

TEST_F(SplitErrors, ExpertsWithoutAStrategyAround) {
  devices(2);
  const Strategy experts = split(2, "experts");
  EXPECT_EQ(error_of_experts(4, experts, nothing),
            "epl: `weight` was made to be cut over 2 devices, but the step that uses it has no "
            "strategy: every device would have all of it\n  asked by: " +
                experts.asked_by() +
                "\n  try:      epl::set_default_strategy(epl::replicate(2)) before the step");
}

// A step may write its number of rows down; it is first tried with those of one device.
TEST_F(SplitErrors, NoneForAStepThatKnowsItsRows) {
  devices(2);
  OneLayer net(6, 4);
  EXPECT_EQ(net.error_of_step(
                [&](const Batch& batch) {
                  const With all(split(2, "all"));
                  return net.layer(batch[0].view({8, 6})).sum();
                },
                {torch::randn({8, 6})}),
            "no error");
}

// The gradient of what a softmax does not see is 0 but for rounding, which Adam makes steps of.
TEST_F(SplitErrors, NoneForRoundingWhereAGradientIsZero) {
  devices(2, {{"debug.verify_steps", 3}});
  torch::manual_seed(1);
  torch::nn::Linear layer(16, 16);
  auto shift = torch::nn::Linear(16, 1);
  auto net = torch::nn::Sequential(layer, shift);
  torch::optim::Adam optimizer(net->parameters(), 0.01);
  Trainer trainer(net, optimizer, [&](const Batch& batch) {
    const With all(split(2, "all"));
    const Tensor x = layer(batch[0]);
    return torch::nn::functional::cross_entropy(x + shift(torch::tanh(x)), batch[1]);
  });
  for (int i = 0; i < 3; ++i) {
    trainer.step({torch::randn({64, 16}), torch::randint(16, {64}, torch::kLong)});
  }
}

// LibTorch sees only what falls into a device's piece; numbers that fall into none are no zeros.
TEST_F(SplitErrors, NumbersOfNoClassAndNoWord) {
  devices(2);
  torch::nn::Embedding words(5001, 1);
  torch::nn::Linear head(1, 5001);
  auto net = torch::nn::Sequential(words, head);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  Trainer trainer(net, optimizer, [&](const Batch& batch) {
    const With scope(split(2, "all"));
    return torch::nn::functional::cross_entropy(head(words(batch[0])), batch[1]);
  });
  const Tensor good = torch::arange(64) * 70;
  const auto with = [&](int64_t number) {
    Tensor changed = good.clone();
    changed[7] = number;
    return changed;
  };
  for (int i = 0; i < 2; ++i) trainer.step({good, good});  // recorded, and looked at again
  EXPECT_NE(trainer.plan().find("`0.weight` f32[5001,1] is cut in dim 0"), std::string::npos);
  EXPECT_NE(trainer.plan().find("`1.weight` f32[5001,1] is cut in dim 0"), std::string::npos);
  const Tensor before = head->weight.detach().clone();
  for (const auto& [numbers, classes, wrong] :
       {std::tuple(with(5001), good, "5001"), std::tuple(with(-1), good, "-1"),
        std::tuple(good, with(5001), "5001"), std::tuple(good, with(-2), "-2")}) {
    const Batch batch = {numbers, classes};
    EXPECT_THAT(error_of([&] { trainer.step(batch); }),
                testing::HasSubstr(concat("index ", wrong,
                                          " is out of bounds for a dimension of size 5001 "
                                          "(which is cut over devices)")));
  }
  EXPECT_TRUE(at::equal(head->weight.detach(), before));
  trainer.step({good, with(-100)});  // is ignored
}

TEST_F(SplitErrors, AfterAnErrorTheNextStepWorks) {
  devices(2);
  OneLayer net;
  int count = 4;
  Trainer trainer(net.layer, *net.optimizer, [&](const Batch& batch) {
    const With all(split(count, "all"));
    return net.layer(batch[0]).sum();
  });
  EXPECT_NE(error_of([&] { trainer.step(rows(6)); }), "no error");
  count = 2;
  EXPECT_EQ(error_of([&] { trainer.step(rows(6)); }), "no error");
}

}  // namespace
}  // namespace epl

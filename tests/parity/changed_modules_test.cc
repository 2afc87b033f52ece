// What a program changes of its modules and parameters between steps without a word to the
// optimizer: hooks, layers without parameters, options of losses. A recording went on with what it
// had seen.
#include "tests/models/mlp.h"
#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

using torch::Tensor;

Batch batch(int) { return {torch::randn({8, 8}), classes(4, {8})}; }

const Exactness kRounding = within(1e-5, "sums over devices in another order");

testing::AssertionResult in_layouts(const MakeProgram& make) {
  auto result = parity(make, batch, bit_equal(), Variant().steps(7));
  if (!result) return result << " on one device";
  result = parity(make, batch, kRounding, Variant().steps(7).devices(2));
  return result ? result : result << " on two devices";
}

// --- hooks
// ----------------------------------------------------------------------------------------

MakeProgram with_hooks(std::function<void(models::Mlp& net, int step)> change) {
  return [change] {
    auto net = std::make_shared<models::Mlp>(8, 16, 2, 4);
    Program result = program(net, sgd(*net, 0.1), classification(net));
    result.before_step = [=](int step) { change(*net, step); };
    return result;
  };
}

unsigned add_hook(models::Mlp& net, double factor) {
  return net.parameters()[0].register_hook([factor](Tensor grad) { return grad * factor; });
}

TEST(HookOfAParameter, IsAddedBetweenSteps) {
  EXPECT_TRUE(in_layouts(with_hooks([](models::Mlp& net, int step) {
    if (step == 3) add_hook(net, 3);
  })));
}

TEST(HookOfAParameter, IsRemovedBetweenSteps) {
  EXPECT_TRUE(in_layouts(with_hooks([](models::Mlp& net, int step) {
    if (step == 0) add_hook(net, 3);
    if (step == 4) net.parameters()[0].remove_hook(0);
  })));
}

TEST(HookOfAParameter, IsExchangedBetweenSteps) {
  EXPECT_TRUE(in_layouts(with_hooks([](models::Mlp& net, int step) {
    if (step == 0) add_hook(net, 3);
    if (step != 4) return;
    net.parameters()[0].remove_hook(0);
    add_hook(net, 0.5);
  })));
}

// --- modules
// --------------------------------------------------------------------------------------

struct Net : torch::nn::Module {
  Tensor forward(const Tensor& x) { return layers->forward(drop(x)) + shift; }
  torch::nn::Dropout drop = register_module("drop", torch::nn::Dropout(0.0));
  torch::nn::Sequential layers = register_module(
      "layers",
      torch::nn::Sequential(torch::nn::Linear(8, 16), torch::nn::ReLU(), torch::nn::Linear(16, 4)));
  torch::nn::CrossEntropyLoss cross = register_module("cross", torch::nn::CrossEntropyLoss());
  torch::nn::SmoothL1Loss smooth = register_module("smooth", torch::nn::SmoothL1Loss());
  torch::nn::HuberLoss huber = register_module("huber", torch::nn::HuberLoss());
  torch::nn::KLDivLoss divergence = register_module("divergence", torch::nn::KLDivLoss());
  Tensor shift = register_buffer("shift", torch::zeros({4}));
};

MakeProgram with_net(std::function<void(Net& net, int step)> change) {
  return [change] {
    auto net = std::make_shared<Net>();
    Program result = program(net, sgd(*net, 0.1), [net](const Batch& rows) {
      const Tensor y = net->forward(rows[0]);
      const Tensor target = rows[0].slice(1, 0, 4);
      return net->cross(y, rows[1]) + net->smooth(y, target) + net->huber(y, target) +
             net->divergence(y.log_softmax(1), target.softmax(1));
    });
    result.before_step = [=](int step) { change(*net, step); };
    return result;
  };
}

MakeProgram with_net_at_step_4(std::function<void(Net& net)> change) {
  return with_net([change](Net& net, int step) {
    if (step == 4) change(net);
  });
}

TEST(Modules, AreReplacedBetweenSteps) {
  EXPECT_TRUE(in_layouts(with_net_at_step_4([](Net& net) {
    torch::nn::Dropout other(0.5);
    other->eval();
    net.drop = net.replace_module("drop", other);
    net.drop->train();
    net.drop->options.p(1);  // draws nothing that would differ from part to part
  })));
}

TEST(Modules, GrowBetweenSteps) {
  EXPECT_TRUE(
      in_layouts(with_net_at_step_4([](Net& net) { net.layers->push_back(torch::nn::Tanh()); })));
}

TEST(Modules, AreAssignedBetweenSteps) {
  EXPECT_TRUE(in_layouts(with_net_at_step_4([](Net& net) { net.drop = torch::nn::Dropout(1); })));
}

TEST(Modules, OfLossesGetOtherOptions) {
  EXPECT_TRUE(
      in_layouts(with_net_at_step_4([](Net& net) { net.cross->options.label_smoothing(0.2); })));
  EXPECT_TRUE(in_layouts(with_net_at_step_4([](Net& net) { net.smooth->options.beta(0.1); })));
  EXPECT_TRUE(in_layouts(with_net_at_step_4([](Net& net) { net.huber->options.delta(0.1); })));
  EXPECT_TRUE(in_layouts(
      with_net_at_step_4([](Net& net) { net.divergence->options.reduction(torch::kBatchMean); })));
}

TEST(Buffer, IsAssignedBetweenSteps) {
  EXPECT_TRUE(in_layouts(
      with_net_at_step_4([](Net& net) { net.shift = torch::arange(4).to(torch::kFloat); })));
}

struct Student : torch::nn::Cloneable<Student> {
  Student() { reset(); }
  void reset() override { layer = register_module("layer", torch::nn::Linear(8, 4)); }
  Tensor forward(const Tensor& x) { return layer(x); }
  torch::nn::Linear layer{nullptr};
};

// The trainer goes on with the old one, which nobody else holds.
TEST(Teacher, ThatTheTrainerKnowsIsAnotherOneBetweenSteps) {
  EXPECT_TRUE(in_layouts([] {
    auto student = std::make_shared<Student>();
    auto teacher = std::make_shared<std::shared_ptr<Student>>(std::make_shared<Student>());
    Program result = program(student, sgd(*student, 0.1), [=](const Batch& rows) {
      const Tensor target = (*teacher)->forward(rows[0]).detach();
      return (student->forward(rows[0]) - target).square().mean() +
             student->layer->weight.square().mean();
    });
    result.turns[0].modules = {{"student", student}, {"teacher", *teacher}};
    result.before_step = [=](int step) {
      if (step == 4) *teacher = std::dynamic_pointer_cast<Student>(student->clone());
    };
    return result;
  }));
}

// What a loop holds while it steps is no sign of anything: the step is not recorded again.
TEST(Teacher, AndParametersMayBeHeldInTheLoop) {
  at::set_num_threads(1);
  epl::init();
  auto net = std::make_shared<Net>();
  auto optimizer = sgd(*net, 0.1);
  int calls = 0;
  epl::Trainer trainer(net, *optimizer, [&](const Batch& rows) {
    ++calls;
    return cross_entropy(net->forward(rows[0]), rows[1]);
  });
  for (int i = 0; i < 8; ++i) {
    const auto parameters = net->parameters();
    const auto module = net;
    const Tensor output = net->forward(torch::randn({2, 8}));
    trainer.step(batch(i));
    const auto buffers = net->buffers();
  }
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace epl::parity

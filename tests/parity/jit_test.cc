// Modules that torch::jit::load reads, as modules of a trainer. The mode that eval() sets on such a
// module was ignored: the trainer did not know of it.
#include <epl/jit.h>
#include <torch/script.h>

#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

torch::jit::Module scripted() {
  torch::jit::Module norm("norm");
  norm.register_parameter("scale", torch::randn({6}), false);
  norm.register_buffer("shift", torch::randn({6}));
  norm.register_attribute("training", c10::BoolType::get(), true);
  norm.define(R"(
def forward(self, x):
    if self.training:
        x = x * 2.0
    return x * self.scale + self.shift
)");
  torch::jit::Module net("net");
  net.register_parameter("weight", torch::randn({6, 3}), false);
  net.register_attribute("training", c10::BoolType::get(), true);
  net.register_module("norm", norm);
  net.define("def forward(self, x):\n  return torch.mm(self.norm.forward(x), self.weight)\n");
  return net;
}

Program program_of(torch::jit::Module net, std::shared_ptr<torch::nn::Module> named) {
  for (const auto& parameter : net.parameters()) torch::Tensor(parameter).requires_grad_();
  std::vector<torch::Tensor> parameters;
  for (const auto& parameter : net.parameters()) parameters.push_back(parameter);
  auto optimizer = std::make_shared<torch::optim::SGD>(parameters, 0.1);
  Program made{{Turn{{{"", named}}, {optimizer}, [net](const Batch& batch) mutable {
                       return cross_entropy(net.forward({batch[0]}).toTensor(), batch[1]);
                     }}}};
  made.before_step = [net](int i) mutable { net.train(i % 2 == 0); };
  return made;
}

TEST(JitModule, FollowsTrainAndEval) {
  EXPECT_TRUE(parity(
      [] {
        torch::jit::Module net = scripted();
        return program_of(net, module_of(net));
      },
      [](int) {
        return Batch{torch::randn({8, 6}), classes(3, {8})};
      },
      within(1e-6, "the executor of TorchScript may join operators")));
}

TEST(JitModule, ShowsItsTensorsByTheirPathsAndItsModes) {
  torch::jit::Module net = scripted();
  const auto shown = module_of(net);
  std::vector<std::string> names;
  for (const auto& item : shown->named_parameters()) names.push_back(item.key());
  for (const auto& item : shown->named_buffers()) names.push_back(item.key());
  EXPECT_EQ(names, (std::vector<std::string>{"weight", "norm.scale", "norm.shift"}));
  EXPECT_TRUE(shown->named_parameters()["weight"].is_same(net.attr("weight").toTensor()));
  net.eval();
  EXPECT_FALSE(shown->is_training());
  EXPECT_FALSE(shown->children()[0]->is_training());
  shown->train();
  EXPECT_TRUE(net.is_training());
  EXPECT_TRUE(net.attr("norm").toModule().is_training());
}

}  // namespace
}  // namespace epl::parity

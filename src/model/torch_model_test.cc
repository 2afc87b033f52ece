// What LibTorch's modules and optimizers say of themselves as a Model.
#include "model/torch_model.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "model/model_state.h"
#include "model/test_optimizers.h"

namespace epl {
namespace {

using testing::ElementsAre;

std::vector<std::string> names(const NamedTensors& tensors) {
  std::vector<std::string> result;
  for (const auto& [name, tensor] : tensors) result.push_back(name);
  return result;
}

struct Net : torch::nn::Module {
  Net() : linear(3, 2), norm(2) {
    register_module("linear", linear);
    register_module("norm", norm);
  }

  torch::nn::Linear linear;
  torch::nn::BatchNorm1d norm;
};

TEST(TorchModel, NamesWhatOptimizersUpdateAndThenTheRest) {
  const auto net = std::make_shared<Net>();
  torch::optim::SGD sgd(net->linear->parameters(), 0.1);
  const TorchModel model({{"", net}}, {sgd});
  EXPECT_THAT(names(model.parameters()), ElementsAre("linear.weight", "linear.bias"));
  EXPECT_THAT(names(model.state()), ElementsAre("norm.weight", "norm.bias", "norm.running_mean",
                                                "norm.running_var", "norm.num_batches_tracked"));
  EXPECT_TRUE(model.trains(net->linear->weight));
  EXPECT_FALSE(model.trains(net->norm->weight));
}

TEST(TorchModel, TellsTensorsOfModulesWithOneNameApart) {
  const auto first = std::make_shared<torch::nn::LinearImpl>(2, 2);
  const auto second = std::make_shared<torch::nn::LinearImpl>(2, 2);
  torch::optim::SGD of_first(first->parameters(), 0.1);
  torch::optim::SGD of_second(second->parameters(), 0.1);
  const TorchModel model({{"net", first}, {"net", second}}, {of_first, of_second});
  EXPECT_THAT(names(model.parameters()),
              ElementsAre("net.weight", "net.bias", "net.weight_2", "net.bias_2"));
  EXPECT_THAT(model.names_of(1), ElementsAre("net.weight_2", "net.bias_2"));
}

TEST(TorchModel, NamesTensorsThatOnlyAnOptimizerHasByTheirPlace) {
  torch::optim::SGD sgd({torch::zeros({2}, torch::requires_grad())}, 0.1);
  const TorchModel model({}, {sgd});
  EXPECT_THAT(names(model.parameters()), ElementsAre("optimizer0.parameter0"));
}

TEST(TorchModel, FindsParametersThatAreAddedAndMoved) {
  const auto net = std::make_shared<Net>();
  torch::optim::SGD first(net->linear->parameters(), 0.1);
  torch::optim::SGD second(net->norm->parameters(), 0.1);
  TorchModel model({{"", net}}, {first, second});
  EXPECT_FALSE(model.refresh());
  auto& from = second.param_groups()[0].params();
  first.param_groups()[0].params().push_back(from.back());
  from.pop_back();
  EXPECT_TRUE(model.refresh());
  EXPECT_FALSE(model.refresh());
  EXPECT_THAT(model.optimizers_of(net->norm->bias), ElementsAre(0));
  EXPECT_EQ(model.number_of(net->norm->bias, 0), 2);
  net->register_module("more", torch::nn::Linear(1, 1));
  EXPECT_TRUE(model.refresh());
  EXPECT_THAT(names(model.state()), testing::Contains("more.weight"));
}

TEST(TorchModel, SetsTheModeOfEachModuleBackAfterEval) {
  const auto net = std::make_shared<Net>();
  net->norm->eval();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  const TorchModel model({{"", net}}, {sgd});
  {
    const Model::EvalMode eval(model);
    EXPECT_FALSE(net->is_training());
    EXPECT_FALSE(net->linear->is_training());
  }
  EXPECT_TRUE(net->is_training());
  EXPECT_TRUE(net->linear->is_training());
  EXPECT_FALSE(net->norm->is_training());
}

TEST(TorchModel, HasAnotherKeyInAnotherMode) {
  const auto net = std::make_shared<Net>();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  const TorchModel model({{"", net}}, {sgd});
  const auto modes = [&] {
    std::vector<int64_t> key;
    model.append_modes(key);
    return key;
  };
  const auto before = modes();
  EXPECT_EQ(modes(), before);
  net->norm->eval();
  const auto in_eval = modes();
  EXPECT_NE(in_eval, before);
  net->norm->train();
  EXPECT_EQ(modes(), before);
  net->linear->weight.requires_grad_(false);
  EXPECT_NE(modes(), before);
}

// --- the map of its state -----------------------------------------------------------------------

TEST(StateOfModel, HasWhatTheRulesOfItsOptimizersKeep) {
  const auto net = std::make_shared<Net>();
  torch::optim::Adam adam(net->linear->parameters(), torch::optim::AdamOptions(0.1));
  OwnAdam own(net->norm->parameters(), 0.1);
  const TorchModel model({{"", net}}, {adam, own});
  const StateMap map = state_of(model, GradientHistory(), Placement());
  EXPECT_EQ(print_state_map(map, Placement(), Cluster()),
            "parameter linear.weight f32[2,3]: R on all workers, memory\n"
            "state linear.weight/exp_avg f32[2,3]: R on all workers, pages\n"
            "state linear.weight/exp_avg_sq f32[2,3]: R on all workers, pages\n"
            "parameter linear.bias f32[2]: R on all workers, memory\n"
            "state linear.bias/exp_avg f32[2]: R on all workers, pages\n"
            "state linear.bias/exp_avg_sq f32[2]: R on all workers, pages\n"
            "parameter norm.weight f32[2]: R on all workers, memory\n"
            "parameter norm.bias f32[2]: R on all workers, memory\n"
            "buffer norm.running_mean f32[2]: R on all workers, memory\n"
            "buffer norm.running_var f32[2]: R on all workers, memory\n"
            "buffer norm.num_batches_tracked i64[]: R on all workers, memory\n");
}

TEST(StateOfModel, TellsTheStatesOfTwoOptimizersApart) {
  const auto net = std::make_shared<torch::nn::LinearImpl>(2, 2);
  torch::optim::Adagrad first({net->bias});
  torch::optim::Adagrad second({net->bias});
  const TorchModel model({{"", net}}, {first, second});
  const StateMap map = state_of(model, GradientHistory(), Placement());
  EXPECT_NE(map.find("bias/sum"), nullptr);
  EXPECT_NE(map.find("bias/1.sum"), nullptr);
}

TEST(StateOfModel, HasWhatEarlierStepsHavePutWhere) {
  const auto net = std::make_shared<torch::nn::LinearImpl>(4, 4);
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  const TorchModel model({{"", net}}, {sgd});
  Placement two;
  two.role_devices = {1, 1};
  two.role_stages = {0, 1};
  GradientHistory history;
  const GradientHistory::Asker asker{two, true};
  history.add("weight", net->weight, Home{{0, 1}, {{0, {0, 2}, 4}, {0, {2, 2}, 4}}}, asker);
  const StateMap map = state_of(model, history, two);
  EXPECT_EQ(map.find("weight/momentum_buffer")->home->roles, (std::vector<int>{0, 1}));
  EXPECT_FALSE(map.find("bias")->home.has_value());
  const StateMap elsewhere = state_of(model, history, Placement());
  EXPECT_EQ(elsewhere.layout_of("weight"), Layout::cut(0));
  EXPECT_TRUE(elsewhere.find("weight")->home->roles.empty());
}

}  // namespace
}  // namespace epl

#include "model/saved_states.h"

#include <gtest/gtest.h>

#include "model/test_optimizers.h"
#include "model/torch_optimizer.h"
#include "state/optimizer_states.h"

namespace epl {
namespace {

using torch::Tensor;

// The same optimizer on two workers, the second with parameters and states of its own.
struct TwoWorkers {
  explicit TwoWorkers(const OptimizerCase& which)
      : here(which.make(parameters_here)), there(which.make(parameters_there)) {
    train(*here, 2);
    train(*there, 1);
  }

  std::vector<Tensor> parameters_here = some_parameters();
  std::vector<Tensor> parameters_there = some_parameters();
  OptimizerPointer here;
  OptimizerPointer there;
};

std::vector<Tensor> tensors_of_state(torch::optim::Optimizer& optimizer, size_t number) {
  TorchOptimizer view(optimizer);
  return state_tensors(view, number);
}

std::string file_of(const torch::optim::Optimizer& optimizer) {
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  std::ostringstream out;
  archive.save_to(out);
  return out.str();
}

TEST(SavedStates, ArriveAtTheSameParametersElsewhereAndLeaveTheOthers) {
  for (const OptimizerCase& each : optimizer_cases()) {
    SCOPED_TRACE(each.name);
    TwoWorkers workers(each);
    std::vector<Tensor> before;
    for (const Tensor& tensor : tensors_of_state(*workers.there, 0)) {
      before.push_back(tensor.clone());
    }
    const std::set<StateKey> from{state_key(workers.parameters_here[1]),
                                  state_key(workers.parameters_here[3])};
    const std::set<StateKey> to{state_key(workers.parameters_there[1]),
                                state_key(workers.parameters_there[3])};
    add_saved_states(*workers.there, saved_states(*workers.here, from), to);
    for (size_t i = 0; i < workers.parameters_here.size(); ++i) {
      const auto sent = tensors_of_state(*workers.here, i);
      const auto arrived = tensors_of_state(*workers.there, i);
      ASSERT_EQ(arrived.size(), each.tensors.size());
      for (size_t tensor = 0; tensor < sent.size(); ++tensor) {
        EXPECT_EQ(arrived[tensor].equal(sent[tensor]), i == 1 || i == 3) << "parameter " << i;
        if (i == 0) {
          EXPECT_TRUE(arrived[tensor].equal(before[tensor]));
        }
      }
    }
  }
}

TEST(SavedStates, LeaveTheOptimizerAsItWas) {
  for (const OptimizerCase& each : optimizer_cases()) {
    TwoWorkers workers(each);
    const std::string before = file_of(*workers.here);
    saved_states(*workers.here, {state_key(workers.parameters_here[2])});
    EXPECT_EQ(file_of(*workers.here), before) << each.name;
  }
}

TEST(SavedStates, BringNoOptions) {
  const std::vector<Tensor> parameters = some_parameters();
  torch::optim::Adam here(parameters, torch::optim::AdamOptions(0.5));
  torch::optim::Adam there(parameters, torch::optim::AdamOptions(0.25));
  train(here, 1);
  add_saved_states(there, saved_states(here, {state_key(parameters[0])}),
                   {state_key(parameters[0])});
  EXPECT_EQ(there.param_groups()[0].options().get_lr(), 0.25);
}

// Its save() writes nothing.
TEST(SavedStates, OfAnOptimizerWithoutAFileAreNone) {
  const std::vector<Tensor> parameters = some_parameters();
  OwnOptimizer here(parameters, std::make_unique<OwnOptions>());
  OwnOptimizer there(parameters, std::make_unique<OwnOptions>());
  train(here, 1);
  add_saved_states(there, saved_states(here, {state_key(parameters[0])}),
                   {state_key(parameters[0])});
  EXPECT_TRUE(there.state().empty());
  EXPECT_EQ(here.state().size(), parameters.size());
}

}  // namespace
}  // namespace epl

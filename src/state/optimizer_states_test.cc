#include "state/optimizer_states.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "model/test_optimizers.h"
#include "model/torch_optimizer.h"

namespace epl {
namespace {

using torch::Tensor;

// A view of one of LibTorch's, and the tensors of its parameters' states.
using States = std::vector<std::vector<Tensor>>;

States states_of(ModelOptimizer& optimizer) {
  States all;
  for (size_t i = 0; i < optimizer.listed().size(); ++i) all.push_back(state_tensors(optimizer, i));
  return all;
}

TEST(StateTensors, AreThoseOfTheTableInItsOrder) {
  for (const OptimizerCase& each : optimizer_cases()) {
    SCOPED_TRACE(each.name);
    const OptimizerPointer optimizer = each.make(some_parameters());
    train(*optimizer, 2);
    TorchOptimizer view(*optimizer);
    for (size_t number = 0; number < view.listed().size(); ++number) {
      const std::vector<Tensor> tensors = state_tensors(view, number);
      ASSERT_EQ(tensors.size(), each.tensors.size());
      const ParameterState state = view.state(number);
      size_t next = 0;
      for (size_t i = 0; i < view.row()->tensors.size(); ++i) {
        if (!state.exists || !state.tensors[i]->defined()) continue;
        EXPECT_EQ(view.row()->tensors[i].name, each.tensors[next]);
        EXPECT_TRUE(state.tensors[i]->is_same(tensors[next++]));
      }
    }
  }
}

TEST(StateTensors, AreNoneBeforeTheFirstGradientAndOfStrangers) {
  const std::vector<Tensor> parameters = some_parameters();
  torch::optim::Adam adam(parameters);
  TorchOptimizer view(adam);
  EXPECT_TRUE(state_tensors(view, 0).empty());
  OwnOptimizer own(parameters, std::make_unique<OwnOptions>());
  train(own, 1);
  TorchOptimizer view_of_own(own);
  EXPECT_TRUE(view_of_own.state(0).exists);
  EXPECT_TRUE(state_tensors(view_of_own, 0).empty());
}

TEST(StateTensors, OfOptimizersOfTheUsersOwnAreKnownWhereTheirStatesAreLibTorchs) {
  OwnAdam own(some_parameters(), 0.1);
  train(own, 1);
  TorchOptimizer view(own);
  EXPECT_EQ(view.row(), nullptr);
  EXPECT_EQ(state_tensors(view, 0).size(), 2);
}

TEST(LentStates, AreCopiesAndTheOwnOnesComeBack) {
  for (const OptimizerCase& each : optimizer_cases()) {
    SCOPED_TRACE(each.name);
    const OptimizerPointer optimizer = each.make(some_parameters());
    train(*optimizer, 2);
    TorchOptimizer view(*optimizer);
    const States own = states_of(view);
    States before;
    for (const auto& tensors : own) {
      before.emplace_back();
      for (const Tensor& tensor : tensors) before.back().push_back(tensor.clone());
    }
    {
      const LentStates lent(view);
      const States copies = states_of(view);
      for (size_t i = 0; i < own.size(); ++i) {
        for (size_t k = 0; k < own[i].size(); ++k) {
          EXPECT_TRUE(copies[i][k].equal(own[i][k]));
          EXPECT_EQ(copies[i][k].strides(), own[i][k].strides());
          EXPECT_NE(copies[i][k].data_ptr(), own[i][k].data_ptr());
        }
      }
      train(*optimizer, 1);
    }
    const States after = states_of(view);
    for (size_t i = 0; i < own.size(); ++i) {
      ASSERT_EQ(after[i].size(), own[i].size());
      for (size_t k = 0; k < own[i].size(); ++k) {
        EXPECT_TRUE(after[i][k].is_same(own[i][k]));
        EXPECT_TRUE(after[i][k].equal(before[i][k]));
      }
      const ParameterState state = view.state(i);
      if (state.step != nullptr) {
        EXPECT_EQ(*state.step, 2);
      }
    }
  }
}

TEST(LentStates, LeaveNoneWhereThereWereNone) {
  torch::optim::Adam adam(some_parameters());
  TorchOptimizer view(adam);
  {
    const LentStates lent(view);
    train(adam, 1);
    EXPECT_FALSE(adam.state().empty());
  }
  EXPECT_TRUE(adam.state().empty());
}

TEST(LentStates, OfAnUnknownOptimizerAreRefused) {
  OwnAdam own(some_parameters());
  TorchOptimizer view(own);
  EXPECT_THROW(LentStates{view}, InternalError);
}

TEST(HasSeenGradient, IsSaidByAStateThatAGradientMadeAndByACountedStep) {
  const std::vector<Tensor> parameters = some_parameters();
  torch::optim::SGD sgd(parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
  TorchOptimizer view(sgd);
  EXPECT_FALSE(has_seen_gradient(view.state(0)));
  train(sgd, 1);
  EXPECT_TRUE(has_seen_gradient(view.state(0)));
  torch::optim::Adagrad adagrad(parameters);
  TorchOptimizer view_of_adagrad(adagrad);
  EXPECT_FALSE(has_seen_gradient(view_of_adagrad.state(0)));
  train(adagrad, 1);
  EXPECT_TRUE(has_seen_gradient(view_of_adagrad.state(0)));
}

TEST(StatePerParameter, IsWhatAStepMakes) {
  for (const OptimizerCase& each : optimizer_cases()) {
    const OptimizerPointer optimizer = each.make(some_parameters());
    EXPECT_EQ(state_per_parameter(TorchOptimizer(*optimizer)), each.tensors.size()) << each.name;
  }
}

TEST(StatePerParameter, IsThatOfAdamForUnknownOptionsAndNothingForNoParameters) {
  OwnOptimizer own(some_parameters(), std::make_unique<OwnOptions>());
  EXPECT_EQ(state_per_parameter(TorchOptimizer(own)), 2);
  torch::optim::Adam none(std::vector<torch::optim::OptimizerParamGroup>{});
  EXPECT_EQ(state_per_parameter(TorchOptimizer(none)), 0);
}

}  // namespace
}  // namespace epl

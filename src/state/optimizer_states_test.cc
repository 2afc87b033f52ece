#include "state/optimizer_states.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "config/libtorch.h"
#include "state/optimizer_table.h"
#include "state/test_optimizers.h"

namespace epl {
namespace {

using torch::Tensor;

TEST(StateTensors, AreThoseOfTheTableInItsOrder) {
  for (const OptimizerCase& each : optimizer_cases()) {
    SCOPED_TRACE(each.name);
    const std::vector<Tensor> parameters = some_parameters();
    const OptimizerPointer optimizer = each.make(parameters);
    train(*optimizer, 2);
    for (const Tensor& parameter : parameters) {
      const std::vector<Tensor> tensors = state_tensors(*optimizer, parameter);
      ASSERT_EQ(tensors.size(), each.tensors.size());
      if (tensors.empty()) continue;
      auto& state = *optimizer->state().at(state_key(parameter));
      size_t next = 0;
      for (const StateTensor& member : row_of(state)->tensors) {
        if (!member.in(state).defined()) continue;
        EXPECT_EQ(member.name, each.tensors[next]);
        EXPECT_TRUE(member.in(state).is_same(tensors[next++]));
      }
    }
  }
}

TEST(StateTensors, AreNoneBeforeTheFirstGradientAndOfStrangers) {
  const std::vector<Tensor> parameters = some_parameters();
  torch::optim::Adam adam(parameters);
  EXPECT_TRUE(state_tensors(adam, parameters[0]).empty());
  EXPECT_TRUE(state_tensors(adam, torch::zeros({3})).empty());
  OwnOptimizer own(parameters, std::make_unique<OwnOptions>());
  train(own, 1);
  EXPECT_TRUE(state_tensors(own, parameters[0]).empty());
}

TEST(StateTensors, OfOptimizersOfTheUsersOwnAreKnownWhereTheirStatesAreLibTorchs) {
  const std::vector<Tensor> parameters = some_parameters();
  OwnAdam own(parameters, 0.1);
  train(own, 1);
  EXPECT_EQ(state_tensors(own, parameters[0]).size(), 2);
}

TEST(CopyOfState, HasMemoryOfItsOwnAndAllElseAlike) {
  for (const OptimizerCase& each : optimizer_cases()) {
    SCOPED_TRACE(each.name);
    const OptimizerPointer optimizer = each.make(some_parameters());
    train(*optimizer, 2);
    for (const auto& [key, state] : optimizer->state()) {
      const auto copy = copy_of_state(*state);
      const OptimizerRow* const row = row_of(*copy);
      ASSERT_EQ(row, row_of(*state));
      if (row->step != nullptr) {
        EXPECT_EQ(row->step(*copy), 2);
      }
      for (const StateTensor& member : row->tensors) {
        const Tensor& own = member.in(*copy);
        const Tensor& theirs = member.in(*state);
        ASSERT_EQ(own.defined(), theirs.defined()) << member.name;
        if (!own.defined()) continue;
        EXPECT_TRUE(own.equal(theirs)) << member.name;
        EXPECT_EQ(own.strides(), theirs.strides()) << member.name;
        EXPECT_NE(own.data_ptr(), theirs.data_ptr()) << member.name;
      }
    }
  }
}

TEST(CopyOfState, OfAnUnknownStateIsRefused) {
  EXPECT_THROW(copy_of_state(OwnState()), InternalError);
}

TEST(HasSeenGradient, IsSaidByAStateThatAGradientMadeAndByACountedStep) {
  const std::vector<Tensor> parameters = some_parameters();
  torch::optim::SGD sgd(parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
  train(sgd, 1);
  EXPECT_TRUE(has_seen_gradient(*sgd.state().at(state_key(parameters[0]))));
  torch::optim::Adagrad adagrad(parameters);
  auto& state = *adagrad.state().at(state_key(parameters[0]));
  EXPECT_FALSE(has_seen_gradient(state));
  train(adagrad, 1);
  EXPECT_TRUE(has_seen_gradient(state));
}

TEST(StatePerParameter, IsWhatAStepMakes) {
  for (const OptimizerCase& each : optimizer_cases()) {
    EXPECT_EQ(state_per_parameter(*each.make(some_parameters())), each.tensors.size()) << each.name;
  }
}

TEST(StatePerParameter, IsThatOfAdamForUnknownOptionsAndNothingForNoParameters) {
  const OwnOptimizer own(some_parameters(), std::make_unique<OwnOptions>());
  EXPECT_EQ(state_per_parameter(own), 2);
  const torch::optim::Adam none(std::vector<torch::optim::OptimizerParamGroup>{});
  EXPECT_EQ(state_per_parameter(none), 0);
}

}  // namespace
}  // namespace epl

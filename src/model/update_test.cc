#include "runtime/update.h"

#include <epl/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "model/test_update.h"
#include "model/torch_optimizer.h"

namespace epl {
namespace {

using torch::optim::Adagrad;
using torch::optim::AdagradOptions;
using torch::optim::Adam;
using torch::optim::AdamOptions;
using torch::optim::AdamW;
using torch::optim::AdamWOptions;
using torch::optim::SGD;
using torch::optim::SGDOptions;

// --- optimizers changed between steps --------------------------------------------------------

TEST(Update, FollowsAParameterGroupAddedLater) {
  Twins twins(maker<AdamW>(AdamWOptions(0.01)), {at::randn({40})});
  twins.step();
  const Tensor values = at::randn({8});
  twins.their_parameters.push_back(parameter_like(values));
  twins.our_parameters.push_back(parameter_like(values));
  const auto group = [](const Tensor& parameter) {
    return OptimizerParamGroup({parameter}, std::make_unique<AdamWOptions>(0.2));
  };
  twins.expected->add_param_group(group(twins.their_parameters.back()));
  twins.actual->add_param_group(group(twins.our_parameters.back()));
  for (int step = 0; step < 2; ++step) twins.step();
  twins.expect_same();
}

TEST(Update, StartsAnewAfterTheStateIsCleared) {
  Twins twins(maker<AdamW>(AdamWOptions(0.01)), {at::randn({40}), at::randn({3})});
  twins.step();
  twins.expected->state().clear();
  twins.actual->state().clear();
  for (int step = 0; step < 2; ++step) twins.step();
  twins.expect_same();
}

TEST(Update, FollowsAParameterMovedToAnotherGroup) {
  Twins twins(maker<SGD>(SGDOptions(0.1)), {{at::randn({4}), at::randn({5})}, {at::randn({6})}});
  for (Optimizer* optimizer : {twins.expected.get(), twins.actual.get()}) {
    optimizer->param_groups()[1].options().set_lr(0.5);
    std::swap(optimizer->param_groups()[0].params()[1], optimizer->param_groups()[1].params()[0]);
  }
  twins.step();
  twins.expect_same();
  for (Optimizer* optimizer : {twins.expected.get(), twins.actual.get()}) {
    auto& first = optimizer->param_groups()[0].params();
    auto& second = optimizer->param_groups()[1].params();
    second.insert(second.begin(), first.back());
    first.pop_back();
  }
  twins.step();
  twins.expect_same();
}

TEST(Update, FollowsOptionsReplacedAsAWhole) {
  Twins twins(maker<SGD>(SGDOptions(0.1)), {at::randn({40})});
  twins.step();
  for (Optimizer* optimizer : {twins.expected.get(), twins.actual.get()})
    optimizer->param_groups()[0].set_options(
        std::make_unique<SGDOptions>(SGDOptions(0.2).momentum(0.9).nesterov(true)));
  for (int step = 0; step < 2; ++step) twins.step();
  twins.expect_same();
}

TEST(Update, FollowsStepsThatTheUserTakesInBetween) {
  Twins twins(maker<Adam>(AdamOptions(0.01)), {at::randn({40})});
  for (int step = 0; step < 4; ++step) {
    if (step % 2 == 0) {
      twins.step();
    } else {
      const Tensor gradient = at::randn({40});
      twins.their_parameters[0].mutable_grad() = gradient;
      twins.our_parameters[0].mutable_grad() = gradient;
      twins.expected->step();
      twins.actual->step();
      twins.our_parameters[0].mutable_grad() = Tensor();
    }
    twins.expect_same();
  }
}

// LibTorch's C++ modules list a shared parameter once for each module that holds it.
TEST(Update, StepsAParameterAsOftenAsItIsListed) {
  const Tensor value = at::randn({10});
  const Tensor theirs = parameter_like(value), ours = parameter_like(value);
  SGD expected({theirs, theirs}, SGDOptions(0.1).momentum(0.9));
  SGD actual({ours, ours}, SGDOptions(0.1).momentum(0.9));
  const auto update = make_update(actual);
  const Tensor gradient = at::randn({10});
  theirs.mutable_grad() = gradient;
  for (int step = 0; step < 2; ++step) {
    expected.step();
    update->apply({{ours, gradient}});
  }
  expect_same(expected, actual);
  EXPECT_FALSE(ours.grad().defined());
}

// A state of which a part is there would be taken for one that has been made.
TEST(Update, MakesNoStateWhereThereIsNoRoomForAllOfIt) {
  Tensor parameter = at::ones({4}).requires_grad_();
  Adam adam({parameter}, AdamOptions(0.1));
  TorchOptimizer view(adam);
  const auto update = make_update(static_cast<ModelOptimizer&>(view));
  int made = 0;
  update->make_states_by([&](const Tensor& like) {
    if (++made == 2) throw std::runtime_error("full");
    return at::zeros_like(like);
  });
  EXPECT_THROW(update->apply({{parameter, at::ones({4})}}), std::runtime_error);
  EXPECT_EQ(made, 2);
  EXPECT_TRUE(adam.state().empty());
  EXPECT_TRUE(parameter.equal(at::ones({4})));
}

TEST(Update, CountsAsAChangeInPlaceWhereLibTorchDoes) {
  Twins adam(maker<Adam>(AdamOptions(0.1)), {at::randn({4})});
  Twins sgd(maker<SGD>(SGDOptions(0.1)), {at::randn({4})});
  const auto before = adam.our_parameters[0]._version();
  adam.step();
  sgd.step();
  EXPECT_GT(adam.our_parameters[0]._version(), before);
  EXPECT_EQ(sgd.our_parameters[0]._version(), sgd.their_parameters[0]._version());
}

TEST(Update, RefusesAParameterOfAnotherOptimizer) {
  Tensor parameter = at::ones({2}).requires_grad_(), stranger = at::ones({2}).requires_grad_();
  SGD optimizer({parameter}, SGDOptions(0.1));
  EXPECT_THROW(make_update(optimizer)->apply({{stranger, at::ones({2})}}), InternalError);
}

// --- gradients that LibTorch has its own way with --------------------------------------------

Tensor sparse_rows(int64_t step) {
  return at::sparse_coo_tensor(torch::tensor({{step % 4, (step + 2) % 4}}), at::randn({2, 3}),
                               {4, 3});
}

TEST(Update, TakesSparseGradientsWhereLibTorchDoes) {
  for (const Maker& make : {maker<SGD>(SGDOptions(0.1)), maker<Adagrad>(AdagradOptions(0.1))}) {
    Twins twins(make, {at::randn({4, 3}), at::randn({5})});
    for (int step = 0; step < 3; ++step) twins.step({sparse_rows(step), at::randn({5})});
    twins.expect_same();
    twins.step();
    twins.expect_same();
  }
}

TEST(Update, KeepsASparseMomentumBufferToLibTorch) {
  Twins twins(maker<SGD>(SGDOptions(0.1).momentum(0.9)), {at::randn({4, 3})});
  for (int step = 0; step < 3; ++step) twins.step({sparse_rows(step)});
  twins.expect_same();
}

TEST(Update, PassesOnWhatLibTorchSaysOfSparseGradients) {
  Twins twins(maker<AdamW>(AdamWOptions(0.1)), {at::randn({4, 3})});
  try {
    twins.update->apply({{twins.our_parameters[0], sparse_rows(0)}});
    FAIL() << "a sparse gradient went through";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("AdamW does not support sparse gradients"));
  }
  EXPECT_FALSE(twins.our_parameters[0].grad().defined());
}

TEST(Update, TakesAGradientOfAnotherElementType) {
  Twins twins(maker<SGD>(SGDOptions(0.1)), {at::randn({6})});
  twins.step({at::randn({6}, at::kDouble)});
  twins.expect_same();
}

TEST(Update, LaysTheMomentumBufferAsTheParameterLies) {
  Twins twins(maker<SGD>(SGDOptions(0.1).momentum(0.9)), {at::randn({3, 5})});
  for (int step = 0; step < 3; ++step) twins.step({at::randn({5, 3}).t()});
  EXPECT_TRUE(same_bits(twins.their_parameters[0], twins.our_parameters[0]));
  const Tensor theirs = contents_of(*twins.expected->state().begin()->second).tensors[0];
  const Tensor ours = contents_of(*twins.actual->state().begin()->second).tensors[0];
  EXPECT_TRUE(same_bits(theirs.contiguous(), ours));
}

// --- optimizers without a kernel -------------------------------------------------------------

// Adds the gradient's sign and counts its steps.
class SignDescent : public Optimizer {
 public:
  explicit SignDescent(std::vector<OptimizerParamGroup> groups)
      : Optimizer(std::move(groups), std::make_unique<SGDOptions>(0.1)) {}

  Tensor step(LossClosure = nullptr) override {
    torch::NoGradGuard no_grad;
    ++steps;
    for (auto& group : param_groups())
      for (Tensor& parameter : group.params())
        if (parameter.grad().defined()) parameter.sub_(parameter.grad().sign(), 0.5);
    return {};
  }

  int steps = 0;
};

// Its step() is not AdamW's, although it is one.
class HalfAdamW : public AdamW {
 public:
  using AdamW::AdamW;
  Tensor step(LossClosure closure = nullptr) override {
    for (auto& group : param_groups())
      for (Tensor& parameter : group.params())
        if (parameter.grad().defined()) parameter.mutable_grad() = parameter.grad() / 2;
    return AdamW::step(std::move(closure));
  }
};

TEST(Update, RunsAnyOtherOptimizerAsItIs) {
  const Maker make = [](std::vector<OptimizerParamGroup> groups) {
    return std::make_unique<SignDescent>(std::move(groups));
  };
  Twins twins(make, {at::randn({6}), at::randn({2, 2})});
  EXPECT_FALSE(twins.update->fused());
  EXPECT_THAT(twins.update->name(), testing::StartsWith("LibTorch epl::"));
  EXPECT_THAT(twins.update->name(), testing::EndsWith("SignDescent"));
  const Tensor mine = at::ones({6});
  twins.our_parameters[0].mutable_grad() = mine;
  twins.step({Tensor(), at::randn({2, 2})});
  EXPECT_TRUE(same_bits(twins.their_parameters[0], twins.our_parameters[0]));
  EXPECT_TRUE(same_bits(twins.their_parameters[1], twins.our_parameters[1]));
  EXPECT_TRUE(twins.our_parameters[0].grad().is_same(mine));
  EXPECT_EQ(static_cast<SignDescent&>(*twins.actual).steps, 1);
}

TEST(Update, DoesNotTakeASubclassForItsBase) {
  Twins twins(maker<HalfAdamW>(AdamWOptions(0.1)), {at::randn({6})});
  EXPECT_FALSE(twins.update->fused());
  for (int step = 0; step < 2; ++step) twins.step();
  twins.expect_same();
}

TEST(Update, SaysWhyThereIsNoLbfgs) {
  torch::optim::LBFGS optimizer({at::ones({2}).requires_grad_()}, 1.0);
  try {
    make_update(optimizer);
    FAIL() << "LBFGS was taken";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "epl: torch::optim::LBFGS needs a closure that evaluates the model several times "
                 "in a step; EPL evaluates it once\n"
                 "  asked by: the optimizer of the trainer\n"
                 "  try:      torch::optim::AdamW, or any optimizer whose step() works from the "
                 "gradients alone");
  }
}

}  // namespace
}  // namespace epl

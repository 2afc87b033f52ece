// Five optimizers in all their options: parameters, state and archives have LibTorch's bits.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "model/test_update.h"
#include "runtime/update.h"

namespace epl {
namespace {

using torch::optim::Adagrad;
using torch::optim::AdagradOptions;
using torch::optim::Adam;
using torch::optim::AdamOptions;
using torch::optim::AdamW;
using torch::optim::AdamWOptions;
using torch::optim::RMSprop;
using torch::optim::RMSpropOptions;
using torch::optim::SGD;
using torch::optim::SGDOptions;

std::string saved(const Optimizer& optimizer) {
  std::ostringstream out;
  torch::save(optimizer, out);
  return out.str();
}

void load_saved(Optimizer& optimizer, const std::string& archive) {
  std::istringstream in(archive);
  torch::load(optimizer, in);
}

// Sizes around the vector widths and above the grain of a thread, and dense layouts that are not
// row by row.
std::vector<Tensor> values_of_all_shapes(at::ScalarType type = at::kFloat) {
  torch::manual_seed(7);
  const auto options = at::TensorOptions().dtype(type);
  std::vector<Tensor> values;
  for (int64_t size : {1, 7, 8, 31, 1000, 100003}) values.push_back(at::randn({size}, options));
  values.push_back(at::randn({}, options));
  values.push_back(at::randn({0}, options));
  values.push_back(at::randn({3, 0, 2}, options));
  values.push_back(at::randn({37, 21}, options).t());
  values.push_back(at::randn({4, 3, 5, 7}, options).contiguous(at::MemoryFormat::ChannelsLast));
  values.push_back(at::randn({6, 1, 9}, options).permute({2, 0, 1}));
  return values;
}

struct Case {
  std::string name;
  std::string update_name;
  Maker make;
};

template <typename OptimizerType, typename Options>
Case make_case(const std::string& name, const std::string& update_name, Options options) {
  return {name, update_name, maker<OptimizerType>(std::move(options))};
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (double decay : {0.0, 0.05}) {
    const std::string suffix = decay == 0 ? "" : "WithWeightDecay";
    const auto sgd = [&](const std::string& name, double momentum, double dampening,
                         bool nesterov) {
      cases.push_back(make_case<SGD>(
          "Sgd" + name + suffix, "fused SGD",
          SGDOptions(0.1).momentum(momentum).dampening(dampening).nesterov(nesterov).weight_decay(
              decay)));
    };
    sgd("Plain", 0, 0, false);
    sgd("Momentum", 0.9, 0, false);
    sgd("Dampened", 0.9, 0.3, false);
    sgd("Nesterov", 0.9, 0, true);
    for (bool amsgrad : {false, true}) {
      const std::string flavour = std::string(amsgrad ? "Amsgrad" : "") + suffix;
      cases.push_back(make_case<Adam>(
          "Adam" + flavour, "fused Adam",
          AdamOptions(3e-3).betas({0.8, 0.97}).eps(1e-7).weight_decay(decay).amsgrad(amsgrad)));
      cases.push_back(make_case<AdamW>(
          "AdamW" + flavour, "fused AdamW",
          AdamWOptions(3e-3).betas({0.85, 0.99}).eps(1e-6).weight_decay(decay).amsgrad(amsgrad)));
    }
    for (bool centered : {false, true})
      for (double momentum : {0.0, 0.7})
        cases.push_back(make_case<RMSprop>(std::string("Rmsprop") + (centered ? "Centered" : "") +
                                               (momentum > 0 ? "Momentum" : "") + suffix,
                                           "fused RMSprop",
                                           RMSpropOptions(0.02)
                                               .alpha(0.9)
                                               .eps(1e-7)
                                               .centered(centered)
                                               .momentum(momentum)
                                               .weight_decay(decay)));
    for (double lr_decay : {0.0, 0.1})
      cases.push_back(make_case<Adagrad>(
          std::string("Adagrad") + (lr_decay > 0 ? "Slowing" : "") + suffix, "fused Adagrad",
          AdagradOptions(0.05).lr_decay(lr_decay).weight_decay(decay).initial_accumulator_value(
              0.01)));
  }
  return cases;
}

TEST(EveryOptimizer, IsFusedUnderItsName) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.name);
    Twins twins(c.make, {at::ones({2})});
    EXPECT_TRUE(twins.update->fused());
    EXPECT_EQ(twins.update->name(), c.update_name);
  }
}

TEST(EveryOptimizer, GivesTheBitsOfLibTorchInFloat) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.name);
    Twins twins(c.make, values_of_all_shapes(at::kFloat));
    for (int step = 0; step < 5; ++step) {
      SCOPED_TRACE(step);
      twins.step();
      twins.expect_same();
    }
  }
}

TEST(EveryOptimizer, GivesTheBitsOfLibTorchInDouble) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.name);
    Twins twins(c.make, values_of_all_shapes(at::kDouble));
    for (int step = 0; step < 5; ++step) {
      SCOPED_TRACE(step);
      twins.step();
      twins.expect_same();
    }
  }
}

TEST(EveryOptimizer, GivesTheSameBitsOnOneThreadAndOnSeveral) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.name);
    const std::vector<Tensor> values = {at::randn({200001}), at::randn({5}), at::randn({70000})};
    Twins one(c.make, values), several(c.make, values);
    const int threads = at::get_num_threads();
    for (int step = 0; step < 3; ++step) {
      const std::vector<Tensor> gradients = one.random_gradients();
      at::set_num_threads(1);
      one.step(gradients);
      at::set_num_threads(3);
      several.step(gradients);
      at::set_num_threads(threads);
    }
    one.expect_same();
    several.expect_same();
    expect_same(*one.actual, *several.actual);
  }
}

TEST(EveryOptimizer, HandsExtremeValuesOnAsLibTorchDoes) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.name);
    const float inf = std::numeric_limits<float>::infinity();
    const std::vector<float> extremes = {0.0f,   -0.0f, 1e-42f, -1e-38f, 3e38f, -3e38f,
                                         1e-20f, 1e20f, inf,    -inf,    1.0f,  -1.0f};
    Twins twins(c.make, {at::randn({12})});
    for (int step = 0; step < 3; ++step) twins.step({torch::tensor(extremes).roll(step)});
    for (size_t i = 0; i < 12; ++i) {
      const float theirs = twins.their_parameters[0].data_ptr<float>()[i];
      const float ours = twins.our_parameters[0].data_ptr<float>()[i];
      EXPECT_TRUE(theirs == ours || (std::isnan(theirs) && std::isnan(ours)))
          << i << ": " << theirs << " and " << ours;
    }
  }
}

TEST(EveryOptimizer, ReadsTheOptionsOfEachGroupAnew) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.name);
    Twins twins(c.make, {{at::randn({40}), at::randn({3, 5})}, {at::randn({17})}});
    for (int step = 0; step < 5; ++step) {
      for (Optimizer* optimizer : {twins.expected.get(), twins.actual.get()}) {
        optimizer->param_groups()[0].options().set_lr(0.01 * (step + 1));
        optimizer->param_groups()[1].options().set_lr(0.1 / (step + 1));
      }
      twins.step();
      twins.expect_same();
    }
  }
}

TEST(EveryOptimizer, LeavesParametersWithoutGradientAlone) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.name);
    Twins twins(c.make, {at::randn({40}), at::randn({3, 5}), at::randn({9})});
    for (int step = 0; step < 6; ++step) {
      std::vector<Tensor> gradients = twins.random_gradients();
      gradients[step % 3] = Tensor();
      if (step < 3) gradients[2] = Tensor();
      twins.step(gradients);
      twins.expect_same();
    }
  }
}

TEST(EveryOptimizer, MayBeAppliedInSeveralPartsOfAStep) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.name);
    Twins twins(c.make, {{at::randn({40}), at::randn({3, 5})}, {at::randn({9})}});
    for (int step = 0; step < 4; ++step) {
      const std::vector<Tensor> gradients = twins.random_gradients();
      for (size_t i = 0; i < 3; ++i) twins.their_parameters[i].mutable_grad() = gradients[i];
      twins.expected->step();
      twins.update->apply({{twins.our_parameters[2], gradients[2]}});
      twins.update->apply({});
      twins.update->apply(
          {{twins.our_parameters[1], gradients[1]}, {twins.our_parameters[0], gradients[0]}});
      twins.expect_same();
    }
  }
}

// Both optimizers drive the very same parameters one after the other, so keys are equal too.
TEST(EveryOptimizer, SavesTheBytesThatLibTorchSaves) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.name);
    const std::vector<Tensor> start = {at::randn({40}), at::randn({3, 5}), at::randn({9, 4}).t()};
    std::vector<Tensor> parameters;
    for (const Tensor& value : start) parameters.push_back(parameter_like(value));
    std::vector<std::vector<Tensor>> gradients(3);
    for (auto& of_step : gradients)
      for (const Tensor& value : start)
        of_step.push_back(at::randn_like(value, at::TensorOptions(), at::MemoryFormat::Preserve));

    const auto expected = c.make({OptimizerParamGroup(parameters)});
    for (const auto& of_step : gradients) {
      for (size_t i = 0; i < start.size(); ++i) parameters[i].mutable_grad() = of_step[i];
      expected->step();
    }
    torch::NoGradGuard no_grad;
    for (size_t i = 0; i < start.size(); ++i) parameters[i].copy_(start[i]);
    const auto actual = c.make({OptimizerParamGroup(parameters)});
    const auto update = make_update(*actual);
    for (const auto& of_step : gradients) {
      std::vector<ParameterGradient> given;
      for (size_t i = 0; i < start.size(); ++i) given.push_back({parameters[i], of_step[i]});
      update->apply(given);
    }
    EXPECT_TRUE(saved(*expected) == saved(*actual));
  }
}

TEST(EveryOptimizer, WritesCheckpointsThatLibTorchContinues) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.name);
    Twins twins(c.make, {at::randn({40}), at::randn({3, 5})});
    for (int step = 0; step < 3; ++step) twins.step();
    Twins continued(c.make, twins.our_parameters);
    load_saved(*continued.expected, saved(*twins.actual));
    load_saved(*continued.actual, saved(*twins.expected));
    continued.expect_same();
    const std::vector<Tensor> gradients = twins.random_gradients();
    twins.step(gradients);
    continued.step(gradients);
    continued.expect_same();
    expect_same(*twins.expected, *continued.expected);
  }
}

TEST(EveryOptimizer, FollowsACheckpointLoadedInTheMiddle) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.name);
    Twins twins(c.make, {at::randn({40}), at::randn({3, 5})});
    twins.step();
    const std::string theirs = saved(*twins.expected), ours = saved(*twins.actual);
    for (int step = 0; step < 2; ++step) twins.step();
    load_saved(*twins.expected, theirs);
    load_saved(*twins.actual, ours);
    for (int step = 0; step < 2; ++step) twins.step();
    twins.expect_same();
  }
}

TEST(EveryOptimizer, FollowsAGradientThatLiesOtherThanItsParameter) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.name);
    Twins twins(c.make, {at::randn({37, 21}), at::randn({21, 37}).t()});
    for (int step = 0; step < 4; ++step) {
      // Once the state lies as the parameter does, gradients of any layout follow.
      if (step == 0)
        twins.step();
      else
        twins.step({at::randn({21, 37}).t(), at::randn({37, 21})});
      twins.expect_same();
    }
  }
}

TEST(EveryOptimizer, FollowsAGradientThatIsOneNumberExpanded) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.name);
    Twins twins(c.make, {at::randn({50})});
    for (int step = 0; step < 3; ++step) twins.step({at::randn({1}).expand({50})});
    EXPECT_TRUE(twins.our_parameters[0].allclose(twins.their_parameters[0], 1e-6, 1e-7));
  }
}

TEST(EveryOptimizer, LeavesOtherElementTypesToLibTorch) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.name);
    Twins twins(c.make, {at::randn({40}), at::randn({40}).to(at::kBFloat16), at::randn({7})});
    for (int step = 0; step < 3; ++step) {
      twins.step();
      twins.expect_same();
    }
  }
}

TEST(EveryOptimizer, LeavesParametersWithGapsToLibTorch) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.name);
    Twins twins(c.make, {at::randn({40}), at::randn({4})});
    for (auto* side : {&twins.their_parameters, &twins.our_parameters})
      (*side)[0].set_data(at::arange(80, at::kFloat).view({40, 2}).select(1, 0));
    for (int step = 0; step < 3; ++step) {
      twins.step();
      twins.expect_same();
    }
  }
}

TEST(EveryOptimizer, KeepsTheGradientsOfTheUser) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.name);
    Twins twins(c.make, {at::randn({4}), at::randn({4}).to(at::kBFloat16), at::randn({2})});
    const Tensor mine = at::ones({4}), other = at::ones({4}).to(at::kBFloat16);
    twins.our_parameters[0].mutable_grad() = mine;
    twins.our_parameters[1].mutable_grad() = other;
    std::vector<Tensor> gradients = twins.random_gradients();
    gradients[0] = Tensor();
    twins.step(gradients);
    twins.expect_same();
    EXPECT_TRUE(twins.our_parameters[0].grad().is_same(mine));
    EXPECT_TRUE(twins.our_parameters[1].grad().is_same(other));
    EXPECT_FALSE(twins.our_parameters[2].grad().defined());
  }
}

}  // namespace
}  // namespace epl

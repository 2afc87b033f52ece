// A model that is no torch::nn::Module, with an optimizer that is none of torch::optim: what
// another front end needs to have its models trained is an implementation of Model and
// ModelOptimizer, and no copies of them in LibTorch's terms.
#include <ATen/ATen.h>
#include <torch/serialize/archive.h>

#include <filesystem>
#include <map>

#include "driver/test_trainer.h"
#include "driver/trainer_impl.h"
#include "model/model.h"

namespace epl {
namespace {

using torch::Tensor;

// SGD with momentum as a few lines of arithmetic. Its states are a map by name.
class PlainSgd final : public ModelOptimizer {
 public:
  struct State {
    Tensor momentum_buffer;
  };

  explicit PlainSgd(const NamedTensors& parameters, bool own_step = false)
      : row_(own_step ? nullptr : &row_of(UpdateKernel::kSgd)) {
    for (const auto& [name, tensor] : parameters) {
      listed_.push_back({tensor, 0});
      names_.push_back(name);
    }
  }

  std::string name() const override { return "PlainSgd"; }
  const OptimizerRow* row() const override { return row_; }
  int64_t look() override { return 0; }
  size_t groups() const override { return 1; }
  const OptimizerRow* options_row(size_t) const override { return row_; }
  OptionValues options(size_t) const override { return {learning_rate, momentum}; }

  ParameterState state(size_t number) override {
    const auto found = states.find(names_[number]);
    return found == states.end() ? ParameterState{} : parts_of(found->second);
  }
  ParameterState make_state(size_t number) override { return parts_of(states[names_[number]]); }
  void drop_state(size_t number) override { states.erase(names_[number]); }

  void step() override {
    const torch::NoGradGuard no_grad;
    ++own_steps;
    for (size_t i = 0; i < listed_.size(); ++i) {
      const Tensor& parameter = listed_[i].parameter;
      if (!parameter.grad().defined()) continue;
      Tensor& buffer = states[names_[i]].momentum_buffer;
      buffer = buffer.defined() ? buffer * momentum + parameter.grad() : parameter.grad().clone();
      parameter.detach().sub_(buffer * learning_rate);
    }
  }

  std::string saved_states(const std::vector<size_t>&) override { return ""; }
  void add_saved_states(const std::string&, const std::vector<size_t>&) override {}

  double learning_rate = 0.1;
  double momentum = 0.5;
  int own_steps = 0;
  std::map<std::string, State> states;

 private:
  ParameterState parts_of(State& state) const {
    ParameterState parts;
    parts.exists = true;
    parts.row = row_;
    parts.tensors[0] = &state.momentum_buffer;
    return parts;
  }

  const OptimizerRow* const row_;
  std::vector<std::string> names_;
};

NamedTensors some_weights() {
  torch::manual_seed(3);
  return {{"first", torch::randn({3, 4}).requires_grad_()},
          {"second", torch::randn({4, 2}).requires_grad_()},
          {"bias", torch::randn({2}).requires_grad_()}};
}

class PlainModel final : public Model {
 public:
  // `optimizer` stays the test's to look at.
  PlainModel(NamedTensors weights, std::unique_ptr<PlainSgd> optimizer, Tensor seen)
      : Model(one(std::move(optimizer))), weights_(std::move(weights)), seen_(std::move(seen)) {
    find_tensors();
  }

  void save(torch::serialize::OutputArchive& archive) const override {
    for (const auto& [name, tensor] : all_tensors()) archive.write(name, tensor);
  }
  void load(torch::serialize::InputArchive& archive) override {
    const torch::NoGradGuard no_grad;
    for (const auto& [name, tensor] : all_tensors()) {
      Tensor read;
      archive.read(name, read);
      tensor.detach().copy_(read);
    }
  }

 private:
  static Optimizers one(std::unique_ptr<PlainSgd> optimizer) {
    Optimizers optimizers;
    optimizers.push_back(std::move(optimizer));
    return optimizers;
  }
  NamedTensors named_parameters() const override { return weights_; }
  NamedTensors named_buffers() const override { return {{"seen", seen_}}; }
  void append_own_modes(std::vector<int64_t>& key) const override { key.push_back(training_); }
  std::function<void()> begin_eval() const override {
    training_ = 0;
    return [this] { training_ = 1; };
  }

  const NamedTensors weights_;
  const Tensor seen_;
  mutable int64_t training_ = 1;
};

// The same weights twice: trained by EPL and by arithmetic.
struct SecondFront : TrainerFixture {
  // Counts its calls in `seen`, where that is given.
  static StepFunction step_of(const NamedTensors& weights, const Tensor& seen = {}) {
    return [weights, seen](const Batch& batch) {
      const Tensor hidden = torch::tanh(batch[0].matmul(weights[0].second));
      const Tensor out = hidden.matmul(weights[1].second) + weights[2].second;
      if (seen.defined()) seen.add_(1);
      return (out - batch[1]).square().mean();
    };
  }
  static StepFunction step_in_stages(const NamedTensors& weights) {
    return [weights](const Batch& batch) {
      Tensor hidden;
      {
        const With scope(replicate(1, "first stage"));
        hidden = torch::tanh(batch[0].matmul(weights[0].second));
      }
      const With scope(replicate(1, "second stage"));
      const Tensor out = hidden.matmul(weights[1].second) + weights[2].second;
      return (out - batch[1]).square().mean();
    };
  }

  Trainer trainer(const StepFunction& function, bool own_step = false) {
    auto made = std::make_unique<PlainSgd>(ours, own_step);
    optimizer = made.get();
    auto model = std::make_unique<PlainModel>(ours, std::move(made), seen);
    return Trainer::of(
        std::make_unique<Trainer::Impl>(std::move(model), function, TrainerOptions()));
  }

  double train_by_arithmetic(const Batch& batch) {
    std::vector<Tensor> weights;
    for (const auto& [name, tensor] : theirs) weights.push_back(tensor);
    const Tensor loss = step_of(theirs)(batch).loss;
    const auto gradients = torch::autograd::grad({loss}, weights);
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < weights.size(); ++i) {
      Tensor& buffer = momentum[i];
      buffer = buffer.defined() ? buffer * 0.5 + gradients[i] : gradients[i].clone();
      weights[i].sub_(buffer * 0.1);
    }
    return loss.item<double>();
  }

  void expect_same_weights() {
    for (size_t i = 0; i < ours.size(); ++i) {
      EXPECT_TRUE(ours[i].second.allclose(theirs[i].second, 1e-5, 1e-6)) << ours[i].first;
      const auto state = optimizer->states.find(ours[i].first);
      ASSERT_NE(state, optimizer->states.end());
      EXPECT_TRUE(state->second.momentum_buffer.allclose(momentum[i], 1e-5, 1e-6));
    }
  }

  NamedTensors ours = some_weights();
  NamedTensors theirs = some_weights();
  std::map<size_t, Tensor> momentum;
  Tensor seen = torch::zeros({}, torch::kLong);
  PlainSgd* optimizer = nullptr;
};

TEST_F(SecondFront, TrainsAsItsArithmeticDoes) {
  Trainer trainer = this->trainer(step_of(ours, seen));
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(trainer.step(rows(4, i)).loss, train_by_arithmetic(rows(4, i)), 1e-6);
  }
  expect_same_weights();
  EXPECT_EQ(optimizer->own_steps, 0);
  EXPECT_EQ(seen.item<int64_t>(), 4);
}

TEST_F(SecondFront, FollowsALearningRateThatChanges) {
  Trainer trainer = this->trainer(step_of(ours, seen));
  trainer.step(rows(4));
  optimizer->learning_rate = 0;
  std::vector<Tensor> before;
  for (const auto& [name, tensor] : ours) before.push_back(tensor.detach().clone());
  trainer.step(rows(4));
  for (size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(ours[i].second.equal(before[i]));
}

TEST_F(SecondFront, TrainsOnReplicasAndMicroBatches) {
  set("EPL_DEVICES", "2");
  init(Config{{"pipeline.num_micro_batch", 2}});
  Trainer trainer = this->trainer(step_of(ours));
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(trainer.step(rows(8, i)).loss, train_by_arithmetic(rows(8, i)), 1e-6);
  }
  expect_same_weights();
}

TEST_F(SecondFront, TrainsInStages) {
  set("EPL_DEVICES", "2");
  init(Config{{"pipeline.num_micro_batch", 2}});
  Trainer trainer = this->trainer(step_in_stages(ours));
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(trainer.step(rows(8, i)).loss, train_by_arithmetic(rows(8, i)), 1e-6);
  }
  expect_same_weights();
}

TEST_F(SecondFront, RunsAStepOfItsOwnWhereItHasNoRule) {
  Trainer trainer = this->trainer(step_of(ours), /*own_step=*/true);
  for (int i = 0; i < 3; ++i) {
    trainer.step(rows(4, i));
    train_by_arithmetic(rows(4, i));
  }
  expect_same_weights();
  EXPECT_EQ(optimizer->own_steps, 3);
  EXPECT_FALSE(ours[0].second.grad().defined());
}

// The plain program of a verified step is its own: states are lent to it and come back.
TEST_F(SecondFront, IsVerified) {
  init(Config{{"debug.verify_steps", 3}});
  Trainer trainer = this->trainer(step_of(ours));
  for (int i = 0; i < 4; ++i) {
    trainer.step(rows(4, i));
    train_by_arithmetic(rows(4, i));
  }
  expect_same_weights();
  EXPECT_GT(optimizer->own_steps, 0);
}

TEST_F(SecondFront, SavesAndLoadsAsItSays) {
  const std::string path = (std::filesystem::path(testing::TempDir()) / "second_front").string();
  Trainer trainer = this->trainer(step_of(ours));
  trainer.step(rows(4));
  trainer.save(path);
  const Tensor saved = ours[0].second.detach().clone();
  trainer.step(rows(4));
  EXPECT_FALSE(ours[0].second.equal(saved));
  trainer.load(path);
  EXPECT_TRUE(ours[0].second.equal(saved));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace epl

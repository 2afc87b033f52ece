#include "model/torch_optimizer_rows.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <typeinfo>

#include "base/check.h"

namespace epl {
namespace {

using AnyOptimizer = torch::optim::Optimizer;
using AnyOptions = torch::optim::OptimizerOptions;
using AnyState = torch::optim::OptimizerParamState;

// --- members, by the accessors that TORCH_ARG makes ---------------------------------------------

template <typename State, at::Tensor& (State::*kMember)()>
at::Tensor& tensor_in(AnyState& state) {
  return (static_cast<State&>(state).*kMember)();
}

template <typename State>
int64_t& step_in(AnyState& state) {
  return static_cast<State&>(state).step();
}

template <typename Options, const double& (Options::*kMember)() const>
double number_in(const AnyOptions& options) {
  return (static_cast<const Options&>(options).*kMember)();
}

template <typename Options, const bool& (Options::*kMember)() const>
double switch_in(const AnyOptions& options) {
  return (static_cast<const Options&>(options).*kMember)() ? 1 : 0;
}

template <typename Options, size_t kIndex>
double beta_in(const AnyOptions& options) {
  return std::get<kIndex>(static_cast<const Options&>(options).betas());
}

// --- states of which other workers keep a part ---------------------------------------------------

// What LibTorch calls where a program saves the optimizer by itself.
template <typename State>
class PartialState final : public State {
 public:
  explicit PartialState(const State& from) : State(from) {}

  std::array<at::Tensor, kMostStateTensors> hidden;

  using State::serialize;
  void serialize(torch::serialize::OutputArchive& /*archive*/) const override {
    throw Error(
        "the states of this optimizer lie on several workers, of which each keeps those that it "
        "updates: a file of this one's would have nothing for the rest",
        "zero.level",
        "trainer.gather_optimizer_states() on all workers before worker 0 saves the optimizer, or "
        "trainer.save()");
  }
};

// --- the rows ---------------------------------------------------------------------------------

template <typename Optimizer, typename Options, typename State>
TorchOptimizerRow row_for(UpdateKernel kernel) {
  TorchOptimizerRow row;
  row.row = &row_of(kernel);
  row.make_state = []() -> std::unique_ptr<AnyState> { return std::make_unique<State>(); };
  row.whole = [](const AnyState& state) -> std::unique_ptr<AnyState> {
    return std::make_unique<State>(static_cast<const State&>(state));
  };
  row.partial = [](const AnyState& state) -> std::unique_ptr<AnyState> {
    return std::make_unique<PartialState<State>>(static_cast<const State&>(state));
  };
  row.hidden = [](AnyState& partial, size_t tensor) -> at::Tensor& {
    return static_cast<PartialState<State>&>(partial).hidden[tensor];
  };
  row.is_partial = [](const AnyState& state) {
    return typeid(state) == typeid(PartialState<State>);
  };
  // A subclass may do anything in its step().
  row.is_row_of = [](const AnyOptimizer& optimizer) {
    return typeid(optimizer) == typeid(Optimizer);
  };
  row.has_options = [](const AnyOptions& options) {
    return dynamic_cast<const Options*>(&options) != nullptr;
  };
  row.has_state = [](const AnyState& state) {
    return dynamic_cast<const State*>(&state) != nullptr;
  };
  return row;
}

TorchOptimizerRow torch_sgd() {
  using Options = torch::optim::SGDOptions;
  using State = torch::optim::SGDParamState;
  auto row = row_for<torch::optim::SGD, Options, State>(UpdateKernel::kSgd);
  row.tensors = {tensor_in<State, &State::momentum_buffer>};
  row.options = {number_in<Options, &Options::lr>, number_in<Options, &Options::momentum>,
                 number_in<Options, &Options::dampening>,
                 number_in<Options, &Options::weight_decay>,
                 switch_in<Options, &Options::nesterov>};
  return row;
}

template <typename Optimizer, typename Options, typename State>
TorchOptimizerRow torch_adam(UpdateKernel kernel) {
  auto row = row_for<Optimizer, Options, State>(kernel);
  row.tensors = {tensor_in<State, &State::exp_avg>, tensor_in<State, &State::exp_avg_sq>,
                 tensor_in<State, &State::max_exp_avg_sq>};
  row.step = step_in<State>;
  row.options = {number_in<Options, &Options::lr>,
                 beta_in<Options, 0>,
                 beta_in<Options, 1>,
                 number_in<Options, &Options::eps>,
                 number_in<Options, &Options::weight_decay>,
                 switch_in<Options, &Options::amsgrad>};
  return row;
}

TorchOptimizerRow torch_rmsprop() {
  using Options = torch::optim::RMSpropOptions;
  using State = torch::optim::RMSpropParamState;
  auto row = row_for<torch::optim::RMSprop, Options, State>(UpdateKernel::kRmsprop);
  row.tensors = {tensor_in<State, &State::square_avg>, tensor_in<State, &State::momentum_buffer>,
                 tensor_in<State, &State::grad_avg>};
  row.step = step_in<State>;
  row.options = {number_in<Options, &Options::lr>,       number_in<Options, &Options::alpha>,
                 number_in<Options, &Options::eps>,      number_in<Options, &Options::weight_decay>,
                 number_in<Options, &Options::momentum>, switch_in<Options, &Options::centered>};
  return row;
}

TorchOptimizerRow torch_adagrad() {
  using Options = torch::optim::AdagradOptions;
  using State = torch::optim::AdagradParamState;
  auto row = row_for<torch::optim::Adagrad, Options, State>(UpdateKernel::kAdagrad);
  row.tensors = {tensor_in<State, &State::sum>};
  row.step = step_in<State>;
  row.options = {number_in<Options, &Options::lr>, number_in<Options, &Options::lr_decay>,
                 number_in<Options, &Options::weight_decay>, number_in<Options, &Options::eps>};
  return row;
}

template <typename Matches>
const TorchOptimizerRow* first_row(const Matches& matches) {
  const auto& rows = torch_optimizer_rows();
  const auto found = std::find_if(rows.begin(), rows.end(), matches);
  return found == rows.end() ? nullptr : &*found;
}

}  // namespace

const std::vector<TorchOptimizerRow>& torch_optimizer_rows() {
  static const std::vector<TorchOptimizerRow> rows{
      torch_sgd(),
      torch_adam<torch::optim::Adam, torch::optim::AdamOptions, torch::optim::AdamParamState>(
          UpdateKernel::kAdam),
      torch_adam<torch::optim::AdamW, torch::optim::AdamWOptions, torch::optim::AdamWParamState>(
          UpdateKernel::kAdamW),
      torch_rmsprop(),
      torch_adagrad(),
  };
  return rows;
}

OptionValues TorchOptimizerRow::values_of(const AnyOptions& of_group) const {
  OptionValues values = {};
  for (size_t i = 0; i < options.size(); ++i) values[i] = options[i](of_group);
  return values;
}

const TorchOptimizerRow* torch_row_of(const AnyOptimizer& optimizer) {
  return first_row([&](const TorchOptimizerRow& row) { return row.is_row_of(optimizer); });
}

const TorchOptimizerRow* torch_row_of(const AnyOptions& options) {
  return first_row([&](const TorchOptimizerRow& row) { return row.has_options(options); });
}

const TorchOptimizerRow* torch_row_of(const AnyState& state) {
  return first_row([&](const TorchOptimizerRow& row) { return row.has_state(state); });
}

}  // namespace epl

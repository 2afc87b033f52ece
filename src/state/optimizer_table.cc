#include "state/optimizer_table.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <tuple>
#include <typeinfo>

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

bool always(const AnyOptions&) { return true; }

template <typename Options, const bool& (Options::*kMember)() const>
bool if_switched_on(const AnyOptions& options) {
  return (static_cast<const Options&>(options).*kMember)();
}

// --- the rows ---------------------------------------------------------------------------------

template <typename Optimizer, typename Options, typename State>
OptimizerRow row_for(const char* name, UpdateKernel kernel) {
  OptimizerRow row;
  row.name = name;
  row.kernel = kernel;
  row.make_state = []() -> std::unique_ptr<AnyState> { return std::make_unique<State>(); };
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

OptimizerRow row_of_sgd() {
  using Options = torch::optim::SGDOptions;
  using State = torch::optim::SGDParamState;
  auto row = row_for<torch::optim::SGD, Options, State>("SGD", UpdateKernel::kSgd);
  const auto with_momentum = [](const AnyOptions& options) {
    return static_cast<const Options&>(options).momentum() != 0;
  };
  row.tensors = {{"momentum_buffer", with_momentum, tensor_in<State, &State::momentum_buffer>}};
  row.options = {{"lr", number_in<Options, &Options::lr>},
                 {"momentum", number_in<Options, &Options::momentum>},
                 {"dampening", number_in<Options, &Options::dampening>},
                 {"weight_decay", number_in<Options, &Options::weight_decay>},
                 {"nesterov", switch_in<Options, &Options::nesterov>}};
  return row;
}

// Adam and AdamW differ in what weight decay means.
template <typename Optimizer, typename Options, typename State>
OptimizerRow row_of_adam(const char* name, UpdateKernel kernel) {
  auto row = row_for<Optimizer, Options, State>(name, kernel);
  row.tensors = {{"exp_avg", always, tensor_in<State, &State::exp_avg>},
                 {"exp_avg_sq", always, tensor_in<State, &State::exp_avg_sq>},
                 {"max_exp_avg_sq", if_switched_on<Options, &Options::amsgrad>,
                  tensor_in<State, &State::max_exp_avg_sq>}};
  row.step = step_in<State>;
  row.options = {{"lr", number_in<Options, &Options::lr>},
                 {"betas", beta_in<Options, 0>},
                 {"betas", beta_in<Options, 1>},
                 {"eps", number_in<Options, &Options::eps>},
                 {"weight_decay", number_in<Options, &Options::weight_decay>},
                 {"amsgrad", switch_in<Options, &Options::amsgrad>}};
  return row;
}

OptimizerRow row_of_rmsprop() {
  using Options = torch::optim::RMSpropOptions;
  using State = torch::optim::RMSpropParamState;
  auto row = row_for<torch::optim::RMSprop, Options, State>("RMSprop", UpdateKernel::kRmsprop);
  const auto with_momentum = [](const AnyOptions& options) {
    return static_cast<const Options&>(options).momentum() > 0;
  };
  row.tensors = {{"square_avg", always, tensor_in<State, &State::square_avg>},
                 {"momentum_buffer", with_momentum, tensor_in<State, &State::momentum_buffer>},
                 {"grad_avg", if_switched_on<Options, &Options::centered>,
                  tensor_in<State, &State::grad_avg>}};
  row.step = step_in<State>;
  row.options = {{"lr", number_in<Options, &Options::lr>},
                 {"alpha", number_in<Options, &Options::alpha>},
                 {"eps", number_in<Options, &Options::eps>},
                 {"weight_decay", number_in<Options, &Options::weight_decay>},
                 {"momentum", number_in<Options, &Options::momentum>},
                 {"centered", switch_in<Options, &Options::centered>}};
  return row;
}

// The constructor alone reads initial_accumulator_value.
OptimizerRow row_of_adagrad() {
  using Options = torch::optim::AdagradOptions;
  using State = torch::optim::AdagradParamState;
  auto row = row_for<torch::optim::Adagrad, Options, State>("Adagrad", UpdateKernel::kAdagrad);
  row.begins = StateBegins::kWithOptimizer;
  row.tensors = {{"sum", always, tensor_in<State, &State::sum>}};
  row.step = step_in<State>;
  row.options = {{"lr", number_in<Options, &Options::lr>},
                 {"lr_decay", number_in<Options, &Options::lr_decay>},
                 {"weight_decay", number_in<Options, &Options::weight_decay>},
                 {"eps", number_in<Options, &Options::eps>}};
  return row;
}

template <typename Matches>
const OptimizerRow* first_row(const Matches& matches) {
  const auto& rows = optimizer_table();
  const auto found = std::find_if(rows.begin(), rows.end(), matches);
  return found == rows.end() ? nullptr : &*found;
}

}  // namespace

const std::vector<OptimizerRow>& optimizer_table() {
  static const std::vector<OptimizerRow> rows{
      row_of_sgd(),
      row_of_adam<torch::optim::Adam, torch::optim::AdamOptions, torch::optim::AdamParamState>(
          "Adam", UpdateKernel::kAdam),
      row_of_adam<torch::optim::AdamW, torch::optim::AdamWOptions, torch::optim::AdamWParamState>(
          "AdamW", UpdateKernel::kAdamW),
      row_of_rmsprop(),
      row_of_adagrad(),
  };
  return rows;
}

bool OptimizerRow::keeps_state(const AnyOptions& options) const {
  return step != nullptr || std::any_of(tensors.begin(), tensors.end(),
                                        [&](const auto& each) { return each.exists(options); });
}

const OptimizerRow* row_of(const AnyOptimizer& optimizer) {
  return first_row([&](const OptimizerRow& row) { return row.is_row_of(optimizer); });
}

const OptimizerRow* row_of(const AnyOptions& options) {
  return first_row([&](const OptimizerRow& row) { return row.has_options(options); });
}

const OptimizerRow* row_of(const AnyState& state) {
  return first_row([&](const OptimizerRow& row) { return row.has_state(state); });
}

}  // namespace epl

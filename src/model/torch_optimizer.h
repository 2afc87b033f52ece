// An optimizer of torch::optim, or of the user's own class, as EPL sees it.
//
//   torch::optim::AdamW adam(net->parameters(), 1e-3);
//   TorchOptimizer optimizer(adam);                       // which must outlive it
//   const auto update = make_update(optimizer);
//
// States are the objects that LibTorch itself would make, under its keys, so that
// torch::save(adam) writes what it would have written.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "config/libtorch.h"
#include "model/torch_optimizer_rows.h"
#include "runtime/update.h"
#include "state/model_optimizer.h"

namespace epl {

// What Optimizer::state() is: states by state_key(parameter).
using OptimizerStates =
    std::remove_reference_t<decltype(std::declval<torch::optim::Optimizer&>().state())>;

class TorchOptimizer final : public ModelOptimizer {
 public:
  // Throws epl::Error for torch::optim::LBFGS, whose step() has to evaluate the model itself.
  explicit TorchOptimizer(torch::optim::Optimizer& optimizer);

  torch::optim::Optimizer& torch() const { return optimizer_; }

  std::string name() const override;
  const OptimizerRow* row() const override { return known_ == nullptr ? nullptr : known_->row; }
  int64_t look() override;
  size_t groups() const override { return optimizer_.param_groups().size(); }
  const OptimizerRow* options_row(size_t group) const override;
  OptionValues options(size_t group) const override;
  ParameterState state(size_t number) override;
  ParameterState make_state(size_t number) override;
  void drop_state(size_t number) override { optimizer_.state().erase(keys_[number]); }
  void set_partial(size_t number, bool partial) override;
  bool is_partial(size_t number) const override;
  void step() override { optimizer_.step(); }
  std::string saved_states(const std::vector<size_t>& numbers) override;
  void add_saved_states(const std::string& text, const std::vector<size_t>& numbers) override;

 private:
  void list();
  void drop_orphans();
  ParameterState parts_of(torch::optim::OptimizerParamState& state) const;
  const TorchOptimizerRow* known_options(size_t group) const;

  torch::optim::Optimizer& optimizer_;
  const TorchOptimizerRow* const known_;
  std::vector<StateKey> keys_;  // of listed()
  int64_t version_ = 0;
};

// The update of an optimizer that is nobody else's: for tests and measurements.
std::unique_ptr<Update> make_update(torch::optim::Optimizer& optimizer);

}  // namespace epl

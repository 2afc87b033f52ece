// The parameter update: what optimizer.step() does, in one pass over memory.
//
// An Update drives one of the user's optimizers. For SGD, Adam, AdamW, RMSprop and Adagrad a fused
// kernel reads the same options and keeps the same state objects under the same keys, so that
// torch::save(optimizer) writes what LibTorch would have written after the same steps. Any other
// optimizer runs as it is.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <string>
#include <vector>

namespace epl {

// One parameter and its gradient of this step. `gradient` may be sparse; it is never undefined:
// a parameter without a gradient is left out, as LibTorch skips it.
struct ParameterGradient {
  at::Tensor parameter;
  at::Tensor gradient;
};

class Update {
 public:
  virtual ~Update() = default;

  // Updates just these parameters, which belong to the optimizer. Options (learning rate, ...) are
  // read anew each time. May be called several times a step with disjoint parameters.
  virtual void apply(const std::vector<ParameterGradient>& gradients) = 0;

  virtual std::string name() const = 0;  // "fused AdamW", "LibTorch LBFGS"
  virtual bool fused() const = 0;
};

// The fused update of a known optimizer, else the optimizer itself. The optimizer must outlive it.
std::unique_ptr<Update> make_update(torch::optim::Optimizer& optimizer);

}  // namespace epl

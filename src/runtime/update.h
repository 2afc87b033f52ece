// The parameter update: what optimizer.step() does, in one pass over memory.
//
// An Update drives one optimizer of a model. For SGD, Adam, AdamW, RMSprop and Adagrad a fused
// kernel reads the same options and keeps the same states as the front end's own step(), so that
// torch::save(optimizer) writes what LibTorch would have written after the same steps. Any other
// optimizer runs as it is.
//
// The fused kernels take ordinary float and double parameters on the CPU; LibTorch's own step takes
// the rest of them: other element types and devices, sparse gradients, parameters with gaps in
// memory or listed twice. Parameters and state have LibTorch's bits, with two exceptions:
//   - SGD's first momentum buffer lies in memory as the parameter does, where LibTorch lays it as
//     the gradient; the values are the same.
//   - Where a gradient is one number expanded, LibTorch run with ATEN_CPU_CAPABILITY=avx512 rounds
//     its products before they are added; EPL does not. They differ in the last bit.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "layout/shard.h"
#include "state/model_optimizer.h"

namespace epl {

// One parameter and its gradient of this step. `gradient` may be sparse; it is never undefined:
// a parameter without a gradient is left out, as LibTorch skips it. What other devices of this
// worker have computed for it lies in `addends`: the gradient is the sum, in this order. A fused
// update reads them as it goes; only where LibTorch's own step is needed are they first added into
// `gradient`.
//
// Where the parameter is cut over devices, each has the gradient of its piece: then `gradient` is
// undefined, and what no piece covers (it belongs to other workers) is not updated, at least not
// meaningfully.
//
// Where other workers have the same gradient, and update other elements of it, `owned` are those of
// this one: in the order in which the parameter lies in memory, or of a piece in the order of its
// own. What the gradient holds elsewhere has no meaning.
struct GradientPiece {
  Shard shard;  // of the parameter
  at::Tensor gradient;
  std::vector<at::Tensor> addends = {};
  std::optional<Piece> owned = {};
};

struct ParameterGradient {
  at::Tensor parameter;
  at::Tensor gradient;
  std::vector<at::Tensor> addends = {};
  std::vector<GradientPiece> pieces = {};
  std::optional<Piece> owned = {};

  // Whether some of it is updated elsewhere, so that its state here is not all there is.
  bool is_partly_owned() const {
    return owned || std::any_of(pieces.begin(), pieces.end(),
                                [](const GradientPiece& piece) { return piece.owned.has_value(); });
  }
};

class Update {
 public:
  // Elements that are worth a thread of their own: some 20 microseconds of SGD, 60 of AdamW.
  static constexpr int64_t kGrain = 131072;

  virtual ~Update() = default;

  // Updates just these parameters, which belong to the optimizer. Options (learning rate, ...) are
  // read anew each time, and so are groups and state, which the user may change or load in between.
  // May be called several times a step with disjoint parameters, by one thread at a time; an
  // optimizer that is not fused sees each call as one step().
  void apply(const std::vector<ParameterGradient>& gradients);

  // From now on gradients are multiplied by this first: one over the loss scale.
  void scale_gradients(double factor) { gradient_scale_ = factor; }

  // Who makes the zeros that a state of a parameter begins with; else zeros_by_page() does.
  using MakeZeros = std::function<at::Tensor(const at::Tensor& parameter)>;
  void make_states_by(MakeZeros make) { make_zeros_ = std::move(make); }

  // Where the numbers are worked on that lie at an address, of a parameter or a state, by whoever
  // knows rules (not by an optimizer's own step()); else where they lie.
  using WorkPlace = std::function<void*(void* data)>;
  void work_at(WorkPlace place) { work_place_ = std::move(place); }

  // The same in three parts, so that several threads share the work: prepare() gives the number of
  // elements; run() does those in [begin, end), side by side with other ranges; finish() comes
  // last.
  virtual int64_t prepare(const std::vector<ParameterGradient>& gradients) = 0;
  virtual void run(int64_t begin, int64_t end) const = 0;
  virtual void finish() = 0;

  virtual std::string name() const = 0;  // "fused AdamW", "LibTorch my::Lion"
  virtual bool fused() const = 0;

 protected:
  double gradient_scale() const { return gradient_scale_; }
  const MakeZeros& make_zeros() const { return make_zeros_; }
  void* work_place(void* data) const { return work_place_ ? work_place_(data) : data; }

 private:
  double gradient_scale_ = 1;
  MakeZeros make_zeros_;
  WorkPlace work_place_;
};

// The fused update of an optimizer whose rule is known, else the optimizer itself, which must
// outlive the update.
std::unique_ptr<Update> make_update(ModelOptimizer& optimizer);

}  // namespace epl

#include "runtime/update.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/Type.h>
#include <c10/util/flat_hash_map.h>
#include <torch/optim/lbfgs.h>

#include <algorithm>
#include <array>
#include <typeinfo>
#include <utility>

#include "base/check.h"
#include "config/libtorch.h"
#include "runtime/device_memory.h"
#include "runtime/update_kernels.h"
#include "runtime/update_rules.h"
#include "runtime/update_state.h"

namespace epl {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerOptions;

// --- LibTorch's own step ---------------------------------------------------------------------

// While it lives, the optimizer's parameters have just these gradients; afterwards the user's own.
class BorrowedGradients {
 public:
  BorrowedGradients(Optimizer& optimizer, const std::vector<ParameterGradient>& gradients) {
    for (auto& group : optimizer.param_groups())
      for (at::Tensor& parameter : group.params())
        own_.emplace_back(parameter, std::exchange(parameter.mutable_grad(), at::Tensor()));
    for (const auto& one : gradients) one.parameter.mutable_grad() = one.gradient;
  }

  // Backwards, so that a parameter listed twice gets what it had at first.
  ~BorrowedGradients() {
    for (auto it = own_.rbegin(); it != own_.rend(); ++it)
      it->first.mutable_grad() = std::move(it->second);
  }

  BorrowedGradients(const BorrowedGradients&) = delete;
  BorrowedGradients& operator=(const BorrowedGradients&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> own_;
};

void step_of_libtorch(Optimizer& optimizer, const std::vector<ParameterGradient>& gradients) {
  BorrowedGradients borrowed(optimizer, gradients);
  optimizer.step();
}

at::Tensor sum_of(at::Tensor sum, const std::vector<at::Tensor>& addends) {
  for (const at::Tensor& addend : addends)
    sum = sum.layout() == at::kStrided ? sum.add_(addend) : sum + addend;
  return sum;
}

// The gradient with all that other devices have for it.
at::Tensor summed(const ParameterGradient& gradient) {
  at::NoGradGuard no_grad;
  if (gradient.pieces.empty()) return sum_of(gradient.gradient, gradient.addends);
  at::Tensor whole = at::zeros_like(gradient.parameter.detach());
  for (const auto& piece : gradient.pieces)
    whole.narrow(piece.shard.dim, piece.shard.piece.begin, piece.shard.piece.length)
        .copy_(sum_of(piece.gradient, piece.addends));
  return whole;
}

// --- where a parameter stands in the optimizer -----------------------------------------------

class ParameterIndex {
 public:
  struct Place {
    size_t group = 0;
    bool repeated = false;  // listed more than once: LibTorch steps it once for each
    StateKey key;           // of its state
  };

  explicit ParameterIndex(Optimizer& optimizer) : optimizer_(optimizer) { rebuild(); }

  // Users may add groups and exchange parameters between steps, so all are compared: less than a
  // nanosecond each.
  void refresh() {
    const auto& groups = optimizer_.param_groups();
    size_t i = 0;
    for (size_t group = 0; group < groups.size(); ++group)
      for (const at::Tensor& parameter : groups[group].params()) {
        const Listed listed{parameter.unsafeGetTensorImpl(), group};
        if (i == listed_.size() || listed_[i] != listed) return rebuild();
        ++i;
      }
    if (i != listed_.size()) rebuild();
  }

  const Place& find(const at::Tensor& parameter) const {
    const auto it = places_.find(parameter.unsafeGetTensorImpl());
    EPL_ASSERT(it != places_.end(), "an update of a parameter that its optimizer does not hold");
    return it->second;
  }

 private:
  using Listed = std::pair<const c10::TensorImpl*, size_t>;  // a parameter and its group

  void rebuild() {
    listed_.clear();
    places_.clear();
    const auto& groups = optimizer_.param_groups();
    for (size_t group = 0; group < groups.size(); ++group)
      for (const at::Tensor& parameter : groups[group].params()) {
        c10::TensorImpl* impl = parameter.unsafeGetTensorImpl();
        listed_.emplace_back(impl, group);
        const auto [it, added] = places_.emplace(impl, Place{group, false, state_key(parameter)});
        if (!added) it->second.repeated = true;
      }
  }

  Optimizer& optimizer_;
  std::vector<Listed> listed_;
  ska::flat_hash_map<const c10::TensorImpl*, Place> places_;
};

// --- what the kernels can do -----------------------------------------------------------------

// LibTorch picks its kernels for the processor and for ATEN_CPU_CAPABILITY and does not export the
// choice; it shows in how `a + alpha * b` rounds. (1 + 2^-12)^2 - 1 is 2^-11 + 2^-24, of which two
// roundings lose the last bit.
Rounding rounding_of_libtorch() {
  static const Rounding rounding = [] {
    const float x = 1 + 0x1p-12f;
    const at::Tensor b = at::full({1}, x);
    return at::full({1}, -1.0f).add_(b, x).item<float>() == 0x1p-11f ? Rounding::kSeparate
                                                                     : Rounding::kFused;
  }();
  return rounding;
}

// --- the two kinds of Update -----------------------------------------------------------------

template <typename Rule>
class FusedUpdate final : public Update {
 public:
  FusedUpdate(Optimizer& optimizer, const OptimizerRow& row)
      : optimizer_(optimizer), row_(row), index_(optimizer), rounding_(rounding_of_libtorch()) {}

  int64_t prepare(const std::vector<ParameterGradient>& gradients) override {
    at::NoGradGuard no_grad;
    index_.refresh();
    jobs_.clear();
    others_.clear();
    total_ = 0;
    for (const auto& gradient : gradients)
      if (!add_job(gradient)) others_.push_back({gradient.parameter, summed(gradient), {}, {}});
    return total_;
  }

  void run(int64_t begin, int64_t end) const override {
    auto job = std::upper_bound(jobs_.begin(), jobs_.end(), begin,
                                [](int64_t at, const Job& job) { return at < job.end; });
    for (; job != jobs_.end() && job->begin < end; ++job)
      run_job(*job, std::max(begin, job->begin) - job->begin, std::min(end, job->end) - job->begin);
  }

  void finish() override {
    at::NoGradGuard no_grad;
    rearranged_.clear();
    if (!others_.empty()) step_of_libtorch(optimizer_, others_);
    others_.clear();
    DeviceMemory::count_pages();  // of states that were made
  }

  std::string name() const override { return "fused " + row_.name; }
  bool fused() const override { return true; }

 private:
  using Step = typename Rule::Step;

  // The elements of all parameters of one apply() are numbered through, so that threads share
  // many small parameters as evenly as one large one.
  struct Job {
    Step step;
    int64_t begin;
    int64_t end;
    std::vector<const void*> sources;  // the gradient is their sum; empty where it is one tensor
  };

  // Adds the job of one parameter; false where LibTorch has to do it.
  bool add_job(const ParameterGradient& one) {
    const at::Tensor& parameter = one.parameter;
    const ParameterIndex::Place& place = index_.find(parameter);
    const at::ScalarType type = parameter.scalar_type();
    if (type != at::kFloat && type != at::kDouble) return false;
    if (place.repeated || !is_plain(parameter) || !has_plain_gradient(one)) return false;

    const OptimizerOptions& options = optimizer_.param_groups()[place.group].options();
    KernelState state;
    if (!prepare_state(row_, options, optimizer_.state(), place.key, parameter, state))
      return false;
    Step step;
    rule_.fill(step, options, state);
    step.type = type == at::kFloat ? ElementType::kFloat : ElementType::kDouble;
    step.rounding = rounding_;
    step.parameter = parameter.data_ptr();
    if (Rule::kBumpsVersion) parameter.unsafeGetTensorImpl()->bump_version();
    for (const auto& piece : one.pieces) add_piece(step, parameter, piece);
    if (!one.pieces.empty()) return true;
    step.gradient = lying_like(parameter, one.gradient).data_ptr();
    jobs_.push_back({step, total_, total_ + parameter.numel(), {}});
    total_ = jobs_.back().end;
    if (one.addends.empty()) return true;
    jobs_.back().sources.push_back(step.gradient);
    for (const at::Tensor& addend : one.addends)
      jobs_.back().sources.push_back(lying_like(parameter, addend).data_ptr());
    return true;
  }

  static bool has_plain_gradient(const ParameterGradient& one) {
    const auto plain = [&](const at::Tensor& gradient) {
      return is_plain(gradient) && gradient.dtype() == one.parameter.dtype();
    };
    if (one.pieces.empty())
      return one.parameter.is_non_overlapping_and_dense() && plain(one.gradient) &&
             one.gradient.sizes() == one.parameter.sizes();
    return one.parameter.is_contiguous() &&
           std::all_of(one.pieces.begin(), one.pieces.end(),
                       [&](const GradientPiece& piece) { return plain(piece.gradient); });
  }

  // A piece is a run of elements for each index of the dimensions before the one that is cut.
  void add_piece(const Step& whole, const at::Tensor& parameter, const GradientPiece& piece) {
    const auto sizes = parameter.sizes();
    const auto dim = static_cast<size_t>(piece.shard.dim);
    const int64_t inner = c10::multiply_integers(sizes.slice(dim + 1));
    const int64_t rows = c10::multiply_integers(sizes.slice(0, dim));
    const int64_t length = piece.shard.piece.length * inner;
    if (length == 0) return;
    std::vector<void*> sources{contiguous_data(piece.gradient)};
    for (const at::Tensor& addend : piece.addends) sources.push_back(contiguous_data(addend));
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t at = row * sizes[dim] * inner + piece.shard.piece.begin * inner;
      const void* const gradient = advanced(sources[0], whole.type, row * length);
      jobs_.push_back({moved(whole, at, gradient), total_, total_ + length, {}});
      total_ += length;
      if (sources.size() == 1) continue;
      for (void* source : sources)
        jobs_.back().sources.push_back(advanced(source, whole.type, row * length));
    }
  }

  static void run_job(const Job& job, int64_t begin, int64_t end) {
    if (job.sources.empty()) return update_range(job.step, begin, end);
    // Summed piece by piece in the first cache, so that no gradient is written back to memory.
    alignas(64) std::array<double, 1024> sum;
    const int64_t piece = job.step.type == ElementType::kFloat ? 2048 : 1024;
    for (int64_t at = begin; at < end; at += piece) {
      const int64_t until = std::min(at + piece, end);
      sum_range(job.step.type, job.sources.data(), static_cast<int>(job.sources.size()), at, until,
                sum.data());
      update_range(moved(job.step, at, sum.data()), 0, until - at);
    }
  }

  void* contiguous_data(const at::Tensor& gradient) {
    if (gradient.is_contiguous()) return gradient.data_ptr();
    rearranged_.push_back(gradient.contiguous());
    return rearranged_.back().data_ptr();
  }

  const at::Tensor& lying_like(const at::Tensor& parameter, const at::Tensor& gradient) {
    if (lies_like(parameter, gradient)) return gradient;
    rearranged_.push_back(at::empty_like(parameter, {}, at::MemoryFormat::Preserve));
    return rearranged_.back().copy_(gradient);
  }

  Optimizer& optimizer_;
  const OptimizerRow& row_;
  ParameterIndex index_;
  Rounding rounding_;
  Rule rule_;
  std::vector<Job> jobs_;
  int64_t total_ = 0;
  std::vector<at::Tensor> rearranged_;     // gradients copied to lie as their parameters do
  std::vector<ParameterGradient> others_;  // LibTorch does these
};

class LibTorchUpdate final : public Update {
 public:
  explicit LibTorchUpdate(Optimizer& optimizer) : optimizer_(optimizer), index_(optimizer) {}

  int64_t prepare(const std::vector<ParameterGradient>& gradients) override {
    index_.refresh();
    gradients_.clear();
    for (const auto& gradient : gradients) {
      index_.find(gradient.parameter);
      gradients_.push_back({gradient.parameter, summed(gradient), {}, {}});
    }
    return 0;
  }

  void run(int64_t, int64_t) const override {}

  void finish() override {
    step_of_libtorch(optimizer_, gradients_);
    gradients_.clear();
  }

  std::string name() const override {
    return "LibTorch " + c10::demangle(typeid(optimizer_).name());
  }
  bool fused() const override { return false; }

 private:
  Optimizer& optimizer_;
  ParameterIndex index_;
  std::vector<ParameterGradient> gradients_;
};

std::unique_ptr<Update> make_fused_update(Optimizer& optimizer, const OptimizerRow& row) {
  switch (row.kernel) {
    case UpdateKernel::kSgd:
      return std::make_unique<FusedUpdate<SgdRule>>(optimizer, row);
    case UpdateKernel::kAdam:
      return std::make_unique<FusedUpdate<AdamRule>>(optimizer, row);
    case UpdateKernel::kAdamW:
      return std::make_unique<FusedUpdate<AdamWRule>>(optimizer, row);
    case UpdateKernel::kRmsprop:
      return std::make_unique<FusedUpdate<RmspropRule>>(optimizer, row);
    case UpdateKernel::kAdagrad:
      return std::make_unique<FusedUpdate<AdagradRule>>(optimizer, row);
  }
  EPL_ASSERT(false, "a row whose kernel is not known");
}

}  // namespace

void Update::apply(const std::vector<ParameterGradient>& gradients) {
  const int64_t elements = prepare(gradients);
  at::parallel_for(0, elements, kGrain, [&](int64_t begin, int64_t end) { run(begin, end); });
  finish();
}

std::unique_ptr<Update> make_update(Optimizer& optimizer) {
  EPL_CHECK(typeid(optimizer) != typeid(torch::optim::LBFGS),
            "torch::optim::LBFGS needs a closure that evaluates the model several times in a step; "
            "EPL evaluates it once",
            "the optimizer of the trainer",
            "torch::optim::AdamW, or any optimizer whose step() works from the gradients alone");
  const OptimizerRow* const row = row_of(optimizer);
  if (row == nullptr) return std::make_unique<LibTorchUpdate>(optimizer);
  return make_fused_update(optimizer, *row);
}

}  // namespace epl

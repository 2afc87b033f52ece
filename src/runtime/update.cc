#include "runtime/update.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/flat_hash_map.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "runtime/device_memory.h"
#include "runtime/update_kernels.h"
#include "runtime/update_rules.h"
#include "runtime/update_state.h"

namespace epl {
namespace {

// --- the optimizer's own step ----------------------------------------------------------------

// While it lives, the optimizer's parameters have just these gradients; afterwards the user's own.
class BorrowedGradients {
 public:
  BorrowedGradients(const ModelOptimizer& optimizer,
                    const std::vector<ParameterGradient>& gradients) {
    for (const auto& [parameter, group] : optimizer.listed())
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

void step_of_its_own(ModelOptimizer& optimizer, const std::vector<ParameterGradient>& gradients) {
  BorrowedGradients borrowed(optimizer, gradients);
  optimizer.step();
}

at::Tensor sum_of(at::Tensor sum, const std::vector<at::Tensor>& addends) {
  for (const at::Tensor& addend : addends)
    sum = sum.layout() == at::kStrided ? sum.add_(addend) : sum + addend;
  return sum;
}

// What this worker owns, and zeros elsewhere. Elements are counted as `like` lies in memory.
at::Tensor owned_alone(const at::Tensor& gradient, const at::Tensor& like, const Piece& owned) {
  const auto in_order = [](const at::Tensor& tensor) {
    return tensor.as_strided({tensor.numel()}, {1});
  };
  const at::Tensor alike = at::empty_like(like.detach()).copy_(gradient);
  at::Tensor alone = at::zeros_like(alike);
  in_order(alone)
      .narrow(0, owned.begin, owned.length)
      .copy_(in_order(alike).narrow(0, owned.begin, owned.length));
  return alone;
}

// The gradient with all that other devices have for it.
at::Tensor summed(const ParameterGradient& gradient) {
  if (gradient.pieces.empty()) {
    const at::Tensor sum = sum_of(gradient.gradient, gradient.addends);
    return gradient.owned ? owned_alone(sum, gradient.parameter, *gradient.owned) : sum;
  }
  at::Tensor whole = at::zeros_like(gradient.parameter.detach());
  for (const auto& piece : gradient.pieces) {
    at::Tensor sum = sum_of(piece.gradient, piece.addends);
    if (piece.owned) sum = owned_alone(sum, sum.contiguous(), *piece.owned);
    whole.narrow(piece.shard.dim, piece.shard.piece.begin, piece.shard.piece.length).copy_(sum);
  }
  return whole;
}

// In memory of its own: another optimizer may have the same parameter.
at::Tensor summed(const ParameterGradient& gradient, double scale) {
  at::NoGradGuard no_grad;
  const at::Tensor sum = summed(gradient);
  return scale == 1 ? sum : sum * scale;
}

// --- where a parameter stands in the optimizer -----------------------------------------------

class ParameterIndex {
 public:
  struct Place {
    size_t number = 0;  // in the optimizer's list
    size_t group = 0;
    bool repeated = false;  // listed more than once: LibTorch steps it once for each
  };

  explicit ParameterIndex(ModelOptimizer& optimizer) : optimizer_(optimizer) { rebuild(); }

  // Users may add groups and exchange parameters between steps.
  void refresh() {
    if (optimizer_.look() != version_) rebuild();
  }

  const Place& find(const at::Tensor& parameter) const {
    const auto it = places_.find(parameter.unsafeGetTensorImpl());
    EPL_ASSERT(it != places_.end(), "an update of a parameter that its optimizer does not hold");
    return it->second;
  }

 private:
  void rebuild() {
    version_ = optimizer_.look();
    places_.clear();
    const auto& listed = optimizer_.listed();
    for (size_t number = 0; number < listed.size(); ++number) {
      const auto [it, added] = places_.emplace(listed[number].parameter.unsafeGetTensorImpl(),
                                               Place{number, listed[number].group, false});
      if (!added) it->second.repeated = true;
    }
  }

  ModelOptimizer& optimizer_;
  int64_t version_ = 0;
  ska::flat_hash_map<const c10::TensorImpl*, Place> places_;
};

// --- options, read once a group and step -----------------------------------------------------

class GroupOptions {
 public:
  explicit GroupOptions(const ModelOptimizer& optimizer) : optimizer_(optimizer) {}

  // What was read before is out of date: users may change options between steps.
  void begin() {
    ++turn_;
    groups_.resize(optimizer_.groups());
  }

  const RuleOptions& of(size_t group) {
    Group& entry = groups_[group];
    if (entry.turn == turn_) return entry.options;
    entry.turn = turn_;
    return entry.options = rule_options(*optimizer_.row(), optimizer_.options(group));
  }

 private:
  struct Group {
    int64_t turn = 0;
    RuleOptions options;
  };

  const ModelOptimizer& optimizer_;
  int64_t turn_ = 0;
  std::vector<Group> groups_;
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
  explicit FusedUpdate(ModelOptimizer& optimizer)
      : optimizer_(optimizer),
        index_(optimizer),
        options_(optimizer),
        rounding_(rounding_of_libtorch()) {}

  int64_t prepare(const std::vector<ParameterGradient>& gradients) override {
    at::NoGradGuard no_grad;
    index_.refresh();
    options_.begin();
    jobs_.clear();
    others_.clear();
    total_ = 0;
    for (const auto& gradient : gradients) {
      if (!add_job(gradient)) {
        others_.push_back({gradient.parameter, summed(gradient, gradient_scale()), {}, {}});
        const bool partly = gradient.is_partly_owned();
        if (partly) partial_others_.push_back(index_.find(gradient.parameter).number);
      }
    }
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
    for (size_t number : partial_others_) optimizer_.set_partial(number, false);
    if (!others_.empty()) step_of_its_own(optimizer_, others_);
    others_.clear();
    for (size_t number : std::exchange(partial_others_, {})) {
      if (optimizer_.state(number).exists) optimizer_.set_partial(number, true);
    }
    DeviceMemory::count_pages();  // of states that were made
  }

  std::string name() const override { return "fused " + optimizer_.row()->name; }
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

    const RuleOptions& options = options_.of(place.group);
    KernelState state;
    const StateHome home = one.is_partly_owned() ? StateHome::kShared : StateHome::kHere;
    const StateOf which{place.number, home};
    if (!prepare_state(optimizer_, which, options, parameter, state, make_zeros())) return false;
    for (void*& array : state.arrays) array = array == nullptr ? nullptr : work_place(array);
    Step step;
    rule_.fill(step, options.values, state);
    step.type = type == at::kFloat ? ElementType::kFloat : ElementType::kDouble;
    step.rounding = rounding_;
    step.scale = gradient_scale();
    step.parameter = work_place(parameter.data_ptr());
    if (Rule::kBumpsVersion) parameter.unsafeGetTensorImpl()->bump_version();
    for (const auto& piece : one.pieces) add_piece(step, parameter, piece);
    if (!one.pieces.empty()) return true;
    add_whole(step, one);
    return true;
  }

  // All elements of a parameter, or those that this worker owns: a run of them.
  void add_whole(const Step& whole, const ParameterGradient& one) {
    const Piece owned = one.owned.value_or(Piece{0, one.parameter.numel()});
    const auto source = [&](const at::Tensor& gradient) {
      return advanced(lying_like(one.parameter, gradient).data_ptr(), whole.type, owned.begin);
    };
    const void* const first = source(one.gradient);
    jobs_.push_back({moved(whole, owned.begin, first), total_, total_ + owned.length, {}});
    total_ = jobs_.back().end;
    if (one.addends.empty()) return;
    jobs_.back().sources.push_back(first);
    for (const at::Tensor& addend : one.addends) jobs_.back().sources.push_back(source(addend));
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
    const Piece owned = piece.owned.value_or(Piece{0, rows * length});
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t from = std::max(row * length, owned.begin);
      const int64_t until = std::min((row + 1) * length, owned.begin + owned.length);
      if (from >= until) continue;
      const int64_t at =
          row * sizes[dim] * inner + piece.shard.piece.begin * inner + from - row * length;
      const void* const gradient = advanced(sources[0], whole.type, from);
      jobs_.push_back({moved(whole, at, gradient), total_, total_ + until - from, {}});
      total_ = jobs_.back().end;
      if (sources.size() == 1) continue;
      for (void* source : sources)
        jobs_.back().sources.push_back(advanced(source, whole.type, from));
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

  ModelOptimizer& optimizer_;
  ParameterIndex index_;
  GroupOptions options_;
  Rounding rounding_;
  Rule rule_;
  std::vector<Job> jobs_;
  int64_t total_ = 0;
  std::vector<at::Tensor> rearranged_;     // gradients copied to lie as their parameters do
  std::vector<ParameterGradient> others_;  // LibTorch does these
  std::vector<size_t> partial_others_;     // of which other workers keep parts of the states
};

class OwnUpdate final : public Update {
 public:
  explicit OwnUpdate(ModelOptimizer& optimizer) : optimizer_(optimizer), index_(optimizer) {}

  int64_t prepare(const std::vector<ParameterGradient>& gradients) override {
    index_.refresh();
    gradients_.clear();
    for (const auto& gradient : gradients) {
      index_.find(gradient.parameter);
      gradients_.push_back({gradient.parameter, summed(gradient, gradient_scale()), {}, {}});
    }
    return 0;
  }

  void run(int64_t, int64_t) const override {}

  void finish() override {
    step_of_its_own(optimizer_, gradients_);
    gradients_.clear();
  }

  std::string name() const override { return "LibTorch " + optimizer_.name(); }
  bool fused() const override { return false; }

 private:
  ModelOptimizer& optimizer_;
  ParameterIndex index_;
  std::vector<ParameterGradient> gradients_;
};

std::unique_ptr<Update> make_fused_update(ModelOptimizer& optimizer) {
  switch (optimizer.row()->kernel) {
    case UpdateKernel::kSgd:
      return std::make_unique<FusedUpdate<SgdRule>>(optimizer);
    case UpdateKernel::kAdam:
      return std::make_unique<FusedUpdate<AdamRule>>(optimizer);
    case UpdateKernel::kAdamW:
      return std::make_unique<FusedUpdate<AdamWRule>>(optimizer);
    case UpdateKernel::kRmsprop:
      return std::make_unique<FusedUpdate<RmspropRule>>(optimizer);
    case UpdateKernel::kAdagrad:
      return std::make_unique<FusedUpdate<AdagradRule>>(optimizer);
  }
  EPL_ASSERT(false, "a row whose kernel is not known");
}

}  // namespace

void Update::apply(const std::vector<ParameterGradient>& gradients) {
  const int64_t elements = prepare(gradients);
  at::parallel_for(0, elements, kGrain, [&](int64_t begin, int64_t end) { run(begin, end); });
  finish();
}

std::unique_ptr<Update> make_update(ModelOptimizer& optimizer) {
  if (optimizer.row() == nullptr) return std::make_unique<OwnUpdate>(optimizer);
  return make_fused_update(optimizer);
}

}  // namespace epl

#include "verify/verify_step.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <set>

#include "base/check.h"
#include "config/settings.h"
#include "model/model_snapshot.h"
#include "runtime/finite_gradients.h"
#include "runtime/merge_outputs.h"

namespace epl {
namespace {

Batch copies(const Batch& batch) {
  Batch result;
  for (const auto& tensor : batch) {
    result.push_back(tensor.detach().clone().requires_grad_(tensor.requires_grad()));
  }
  return result;
}

std::vector<at::Tensor> gradients_of(const Model& model) {
  std::vector<at::Tensor> gradients;
  for (const auto& [name, tensor] : model.parameters()) {
    if (tensor.grad().defined()) gradients.push_back(tensor.grad());
  }
  return gradients;
}

// Gradients and state of the devices so far.
class Sum {
 public:
  explicit Sum(const Model& model) : model_(model) {}

  void add_gradients() {
    const torch::NoGradGuard no_grad;
    const auto& parameters = model_.parameters();
    gradients_.resize(parameters.size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor now = parameters[i].second.grad();
      if (!now.defined()) continue;
      gradients_[i] = gradients_[i].defined() ? gradients_[i] + now : now;
      parameters[i].second.mutable_grad() = at::Tensor();
    }
  }

  void add_state(const StateSnapshot& state) {
    const torch::NoGradGuard no_grad;
    const auto tensors = state.tensors();
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (states_.size() <= i) states_.push_back(at::zeros_like(tensors[i]));
      states_[i] += tensors[i];
    }
  }

  // Leaves the sums of all workers as the gradients, and the mean of the state.
  void finish(const PlainRequest& request, const StateSnapshot& state) {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < gradients_.size(); ++i) {
      if (!gradients_[i].defined()) continue;
      if (request.workers != nullptr) {
        gradients_[i] = dense(gradients_[i]).contiguous().clone();
        request.workers->all_reduce({gradients_[i]}, ReduceOp::kSum);
      }
      model_.parameters()[i].second.mutable_grad() = gradients_[i];
    }
    const auto tensors = state.tensors();
    for (size_t i = 0; i < states_.size(); ++i) {
      if (!states_[i].is_floating_point() || request.devices == 1) continue;
      if (request.workers != nullptr) request.workers->all_reduce({states_[i]}, ReduceOp::kSum);
      at::Tensor(tensors[i]).copy_(states_[i].div_(request.devices));
    }
  }

 private:
  static at::Tensor dense(const at::Tensor& tensor) {
    return tensor.layout() == c10::kStrided ? tensor : tensor.to_dense();
  }

  const Model& model_;
  std::vector<at::Tensor> gradients_;
  std::vector<at::Tensor> states_;
};

// The loop that the documentation promises: all rows at once.
void train_undivided(const Model& model, const StepFunction& step, const PlainRequest& request,
                     PlainStep& result) {
  const at::Tensor random = request.random_state(0);
  if (random.defined()) at::Generator(at::detail::getDefaultCPUGenerator()).set_state(random);
  const at::Tensor loss = step(copies(request.whole)).loss;
  result.loss = loss.item<double>();
  loss.backward(at::full_like(loss, request.loss_scale));
  const torch::NoGradGuard no_grad;
  unscale_gradients(gradients_of(model), request.loss_scale);
  clip_gradients(gradients_of(model), request.clip);
}

// As EPL cuts the rows, one part after the other.
void train_divided(const Model& model, const StepFunction& step, const PlainRequest& request,
                   const StateSnapshot& state, PlainStep& result) {
  Sum sum(model);
  const size_t devices = request.batches.size();
  for (size_t device = 0; device < devices; ++device) {
    if (device > 0) state.restore();
    const at::Tensor random = request.random_state(static_cast<int>(device));
    if (random.defined()) at::Generator(at::detail::getDefaultCPUGenerator()).set_state(random);
    for (const auto& batch : request.batches[device]) {
      const at::Tensor loss = step(copies(batch)).loss;
      result.loss +=
          loss.item<double>() / static_cast<double>(request.batches[device].size() * devices);
      loss.backward(at::full_like(loss, request.seed * request.loss_scale));
    }
    sum.add_state(state);
    if ((device + 1) % static_cast<size_t>(request.slices) != 0) continue;  // a replica's gradients
    if (request.clips_locally) {
      const torch::NoGradGuard no_grad;
      clip_gradients(gradients_of(model), request.clip, request.local_scale, request.loss_scale);
    }
    sum.add_gradients();
  }
  sum.finish(request, state);
  const torch::NoGradGuard no_grad;
  unscale_gradients(gradients_of(model), request.loss_scale);
  if (!request.clips_locally) {
    clip_gradients(gradients_of(model), request.clip);
  }
}

struct Deviation {
  std::string name = "none";
  double relative = 0;
  double here = 0;
  double there = 0;

  // Relative to the largest element, or to `least`: single elements near zero carry no more
  // precision than that.
  void take(const std::string& candidate, const at::Tensor& epl, const at::Tensor& plain,
            double least = 0) {
    if (plain.numel() == 0) return;
    const at::Tensor a = epl.to_dense().flatten().to(at::kDouble);
    const at::Tensor b = plain.to_dense().flatten().to(at::kDouble);
    const at::Tensor off = (a - b).abs();
    const int64_t at = off.argmax().item<int64_t>();
    const double scale = std::max({b.abs().max().item<double>(), least, 1e-30});
    double value = off[at].item<double>() / scale;
    if (std::isnan(value)) {
      const bool both = a.isnan().equal(b.isnan());
      value = both ? 0 : std::numeric_limits<double>::infinity();
    }
    if (value > relative || name == "none") {
      *this = {candidate, value, a[at].item<double>(), b[at].item<double>()};
    }
  }
};

at::Tensor dense(const at::Tensor& tensor) {
  return tensor.layout() == c10::kStrided ? tensor : tensor.to_dense();
}

double largest_of(const std::map<std::string, at::Tensor>& gradients) {
  double largest = 0;
  for (const auto& [name, gradient] : gradients) {
    if (gradient.numel() > 0) largest = std::max(largest, gradient.abs().max().item<double>());
  }
  return largest;
}

// Sums over parts of the rows have another order; what travels between workers in half precision
// comes back with that precision.
double tolerance_for(const PlainStep& plain, const Config& config) {
  constexpr double kOtherOrder = 10;
  constexpr double kHalf = 1e-2;
  constexpr double kLower = 3e-2;  // bfloat16 has 8 bits
  const double asked = config.get<double>("debug.verify_tolerance");
  const double allowed = plain.parts > 1 && plain.divided.empty() ? asked * kOtherOrder : asked;
  if (plain.rounds_otherwise) return std::max(allowed, kLower);
  return config.get<bool>("communication.fp16") ? std::max(allowed, kHalf) : allowed;
}

// Where the true gradient is 0 (a bias before a norm, the key's bias of an attention) both programs
// have but rounding, which optimizers such as Adam blow up to whole steps: there what the
// plain program has is taken.
at::Tensor without_noise(const at::Tensor& here, const at::Tensor& plain,
                         const at::Tensor& gradient_here, const at::Tensor& gradient,
                         double largest) {
  constexpr double kNoise = 1e-6;
  const at::Tensor tiny =
      (gradient.abs() <= kNoise * largest).logical_and(gradient_here.abs() <= kNoise * largest);
  const at::Tensor any = (gradient != 0).logical_or(gradient_here != 0);
  return at::where(tiny.logical_and(any), plain, here);
}

}  // namespace

PlainStep run_plain_step(const Model& model, const StepFunction& step, const PlainRequest& request,
                         const StateSnapshot& state) {
  ModelSnapshot before(model);
  struct Restore {  // also where the user's code throws
    ModelSnapshot& snapshot;
    const StateSnapshot& state;
    ~Restore() {
      snapshot.restore();
      state.restore();
    }
  } restore{before, state};
  PlainStep result;
  result.divided = request.divided;
  for (const auto& [name, tensor] : model.parameters()) tensor.mutable_grad() = at::Tensor();
  if (request.divided.empty()) {
    train_undivided(model, step, request, result);
  } else {
    train_divided(model, step, request, state, result);
  }
  for (const auto& [name, tensor] : model.parameters()) {
    if (tensor.grad().defined()) result.gradients[name] = dense(tensor.grad()).clone();
  }
  before.give_zeros_where_gradients_were();
  std::set<c10::TensorImpl*> unknown;
  for (const auto& optimizer : model.optimizers()) {
    if (can_be_set_back(*optimizer)) {
      optimizer->step();
      continue;
    }
    result.left_out.push_back(optimizer->name());
    for (const auto& [parameter, group] : optimizer->listed()) {
      unknown.insert(parameter.unsafeGetTensorImpl());
    }
  }
  for (const auto& [name, tensor] : model.all_tensors()) {
    if (unknown.count(tensor.unsafeGetTensorImpl()) != 0) continue;
    result.tensors[name] = tensor.detach().clone();
  }
  return result;
}

std::optional<Batch> whole_batch(const DeviceBatches& batches, int slices, Communicator* workers) {
  std::vector<Batch> parts;  // in the order of rows: replica, micro batch, slice
  const auto per_replica = static_cast<size_t>(slices);
  for (size_t first = 0; first < batches.size(); first += per_replica) {
    for (size_t i = 0; i < batches[first].size(); ++i) {
      for (size_t slice = 0; slice < per_replica; ++slice) {
        parts.push_back(batches[first + slice][i]);
      }
    }
  }
  if (parts.size() == 1 && workers == nullptr) return parts[0];
  Batch whole;
  for (size_t i = 0; i < parts[0].size(); ++i) {
    std::vector<at::Tensor> tensors;
    for (const Batch& part : parts) tensors.push_back(part[i].detach());
    const bool several = tensors.size() > 1 || workers != nullptr;
    if (several && tensors[0].dim() == 0) return std::nullopt;
    at::Tensor joined = at::cat(tensors);
    if (workers != nullptr) joined = at::cat(gather_from_workers({joined}, *workers));
    whole.push_back(joined.requires_grad_(parts[0][i].requires_grad()));
  }
  return whole;
}

std::string compare_with_plain(const PlainStep& plain, const Model& model,
                               const std::map<std::string, at::Tensor>& gradients, double loss,
                               int64_t step, const Config& config) {
  const torch::NoGradGuard no_grad;
  const double largest = largest_of(plain.gradients);
  Deviation tensor_off;
  for (const auto& [name, tensor] : model.all_tensors()) {
    const auto compared = plain.tensors.find(name);
    if (compared == plain.tensors.end()) continue;
    const at::Tensor& expected = compared->second;
    const auto own = gradients.find(name);
    const auto theirs = plain.gradients.find(name);
    const bool both = own != gradients.end() && theirs != plain.gradients.end();
    const at::Tensor found =
        both ? without_noise(tensor.detach(), expected, dense(own->second), theirs->second, largest)
             : tensor.detach();
    tensor_off.take(name, found, expected);
  }
  Deviation gradient_off;
  for (const auto& [name, gradient] : plain.gradients) {
    const auto here = gradients.find(name);
    EPL_CHECK(here != gradients.end(),
              concat("step ", step, " has no gradient of `", name, "`, but the plain program has"),
              config.asked_by("debug.verify_steps"));
    constexpr double kLeast = 1e-2;  // of the largest gradient of all
    gradient_off.take(name, dense(here->second), gradient, kLeast * largest);
  }
  Deviation loss_off;
  loss_off.take("loss", at::scalar_tensor(loss, at::kDouble),
                at::scalar_tensor(plain.loss, at::kDouble));
  std::string report =
      concat("verify step ", step, ": loss ", loss, " (plain ", plain.loss, "), worst parameter `",
             tensor_off.name, "` off by ", tensor_off.relative, ", worst gradient `",
             gradient_off.name, "` off by ", gradient_off.relative);
  if (!plain.divided.empty()) {
    report += concat("; the plain program was cut into the same parts: ", plain.divided);
  }
  if (mixes_precisions(config)) {
    report += "; the plain program computed in mixed precision as well (amp.level = \"O1\")";
  }
  for (const std::string& name : plain.left_out) {
    report += concat("; parameters of ", name,
                     " are not compared, only their gradients: EPL cannot set its state back");
  }
  const double tolerance = tolerance_for(plain, config);
  const Deviation& of_tensors =
      tensor_off.relative >= gradient_off.relative ? tensor_off : gradient_off;
  const Deviation& worst = of_tensors.relative > tolerance ? of_tensors : loss_off;
  EPL_CHECK(worst.relative <= tolerance,
            concat("step ", step, " is not what the plain program gives: `", worst.name, "` has ",
                   worst.here, " where the plain program has ", worst.there, "; ", report),
            config.asked_by("debug.verify_steps"),
            "what the step reads besides its batch: C++ variables that change, memory written "
            "through pointers, random numbers; docs/exactness.md");
  return report;
}

}  // namespace epl

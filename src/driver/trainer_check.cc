// gradient_checkpoint.check_gradients: before the first step of a recording in which something runs
// again, the same step runs with all kept, from the same state and with the same random numbers.
// Same kernels on the same numbers: every gradient of every device must have the same bits. It
// takes the memory of a step that keeps all, once.
#include <ATen/ATen.h>

#include <cstring>
#include <iostream>
#include <utility>

#include "base/check.h"
#include "driver/trainer_impl.h"
#include "runtime/step_end.h"

namespace epl {
namespace {

// Up to the moment in which the gradients of all workers are there; nothing is updated.
class EndBeforeUpdate final : public StepEnd {
 public:
  EndBeforeUpdate(BoundStep& bound, StepEndRequest request)
      : StepEnd(bound, std::move(request)), bound_(bound) {}

  std::vector<at::Tensor> gradients;

 private:
  void report() override {}
  bool accepts_loss() override {
    for (const at::Tensor& gradient : bound_.gradients().of_devices()) {
      gradients.push_back(gradient.clone());
    }
    return false;
  }

  BoundStep& bound_;
};

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.is_sparse()) {
    return same_bits(a._indices(), b._indices()) && same_bits(a._values(), b._values());
  }
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor left = a.contiguous().cpu();
  const at::Tensor right = b.contiguous().cpu();
  return std::memcmp(left.data_ptr(), right.data_ptr(), left.nbytes()) == 0;
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor dense_a = a.is_sparse() ? a.to_dense() : a;
  const at::Tensor dense_b = b.is_sparse() ? b.to_dense() : b;
  return dense_a.numel() == 0 ? 0 : (dense_a - dense_b).abs().max().item<double>();
}

}  // namespace

void Trainer::Impl::run_all_kept(const DeviceBatches& batches) {
  gradients_all_kept.clear();
  if (!config.get<bool>("gradient_checkpoint.check_gradients")) return;
  Batch scratch;
  ReadyStep& ready = step_cache.find(rows_of(batches, 0, 0, scratch), 0, steps);
  const std::unique_ptr<CompiledStep> all_kept = std::move(ready.all_kept);
  if (all_kept == nullptr) return;
  const torch::NoGradGuard no_grad;
  const StateSnapshot before = ready.snapshot();
  std::vector<std::vector<at::Tensor>> streams;
  for (const auto& replica : replicas.each) streams.push_back(replica->streams.states());
  const auto set_back = [&] {
    before.restore();
    for (size_t i = 0; i < streams.size(); ++i) replicas.each[i]->streams.restore(streams[i]);
    if (devices() > 1) replicas.take_drawn();
    replicas.release_arenas();
  };
  try {
    const std::unique_ptr<BoundStep> bound = step_cache.bind(*all_kept);
    std::vector<DeviceRun> runs(static_cast<size_t>(replicas.size()));
    run_devices(*bound, ready.draws_random_numbers(), batches, runs);
    EndBeforeUpdate end(*bound, end_request(ready));
    end.run();
    gradients_all_kept = std::move(end.gradients);
  } catch (const GuardFailed&) {
    // The step will be recorded anew, and the new recording compared.
  } catch (...) {
    set_back();
    throw;
  }
  set_back();
}

void Trainer::Impl::compare_with_all_kept(const BoundStep& bound) {
  if (gradients_all_kept.empty()) return;
  const std::vector<at::Tensor> kept = std::exchange(gradients_all_kept, {});
  const std::vector<at::Tensor> own = bound.gradients().of_devices();
  if (own.size() != kept.size()) {  // a guard failed, and this is another recording
    std::clog << "epl: the gradients of step " << steps
              << " are not compared with those of a step that keeps all: it was recorded anew\n";
    return;
  }
  size_t next = 0;
  for (const auto& entry : bound.gradients().entries()) {
    for (const auto& part : entry.parts) {
      const size_t i = next++;
      EPL_CHECK(same_bits(own[i], kept[i]),
                concat("with values that are computed again the gradient of `", entry.name,
                       "` on device ", replicas.first + static_cast<int>(part.device),
                       " is not what it is with all of them kept: the largest difference is ",
                       largest_difference(own[i], kept[i])),
                config.asked_by("gradient_checkpoint.check_gradients"),
                "look for an operator of your own that does not give the same for the same "
                "arguments, and mark what it makes, or leave gradient_checkpoint.type out");
    }
  }
}

}  // namespace epl

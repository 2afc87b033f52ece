#include "verify/all_kept.h"

#include <ATen/ATen.h>

#include <cstring>
#include <iostream>
#include <utility>

#include "base/check.h"

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

void AllKeptGradients::run(AllKeptStep step) {
  const c10::AutoGradMode no_grad(false);
  const LocalReplicas& replicas = step.replicas;
  std::vector<std::vector<at::Tensor>> streams;
  for (const auto& replica : replicas.each) streams.push_back(replica->streams.states());
  const auto set_back = [&] {
    step.before.restore();
    for (size_t i = 0; i < streams.size(); ++i) replicas.each[i]->streams.restore(streams[i]);
    if (step.devices > 1) replicas.take_drawn();
    replicas.release_arenas();
  };
  try {
    const std::unique_ptr<BoundStep> bound = step.bind();
    step.run_devices(*bound);
    EndBeforeUpdate end(*bound, std::move(step.end));
    end.run();
    gradients_ = std::move(end.gradients);
  } catch (const GuardFailed&) {
    // The step will be recorded anew, and the new recording compared.
  } catch (...) {
    set_back();
    throw;
  }
  set_back();
}

void AllKeptGradients::compare(const BoundStep& bound, int first_device, int64_t number,
                               const Config& config) {
  if (gradients_.empty()) return;
  const std::vector<at::Tensor> kept = std::exchange(gradients_, {});
  const std::vector<at::Tensor> own = bound.gradients().of_devices();
  if (own.size() != kept.size()) {  // a guard failed, and this is another recording
    std::clog << "epl: the gradients of step " << number
              << " are not compared with those of a step that keeps all: it was recorded anew\n";
    return;
  }
  size_t next = 0;
  for (const auto& entry : bound.gradients().entries()) {
    for (const auto& part : entry.parts) {
      const size_t i = next++;
      EPL_CHECK(same_bits(own[i], kept[i]),
                concat("with values that are computed again the gradient of `", entry.name,
                       "` on device ", first_device + static_cast<int>(part.device),
                       " is not what it is with all of them kept: the largest difference is ",
                       largest_difference(own[i], kept[i])),
                config.asked_by("gradient_checkpoint.check_gradients"),
                "look for an operator of your own that does not give the same for the same "
                "arguments, and mark what it makes, or leave gradient_checkpoint.type out");
    }
  }
}

}  // namespace epl

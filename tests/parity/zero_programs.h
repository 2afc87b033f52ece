// Programs for the tests of zero.level, and what they are compared with.
#pragma once

#include <string>
#include <vector>

#include "tests/models/mlp.h"
#include "tests/parity/parity.h"

namespace epl::parity {

inline const Exactness kRounding = within(1e-5, "sums over workers in another order");

// Layers of 256 KiB, which are cut into ranges, and biases, which go to one worker each.
inline std::shared_ptr<models::Mlp> wide_net() {
  return std::make_shared<models::Mlp>(256, 256, 3, 7);
}

inline Program wide() {
  auto net = wide_net();
  return program(
      net,
      std::make_shared<torch::optim::AdamW>(net->parameters(), torch::optim::AdamWOptions(0.01)),
      classification(net));
}

inline Batch wide_batch(int) { return {torch::randn({24, 256}), classes(7, {24})}; }

inline Variant zero(Variant variant, const std::string& level = "v0") {
  return variant.with("zero.level", level).without_states();
}

// Against data parallelism by bits, and against the plain loop.
inline testing::AssertionResult same_bits(const MakeProgram& make, const MakeBatch& batch,
                                          Variant variant, const std::string& level = "v0") {
  variant.without_states();
  const std::vector<Trace> usual = train_on_workers(make, batch, variant);
  const std::vector<Trace> cut = train_on_workers(make, batch, zero(variant, level));
  for (size_t worker = 0; worker < usual.size(); ++worker) {
    testing::AssertionResult equal = compare(usual[worker], cut[worker], bit_equal(), variant);
    if (!equal) return equal << " on worker " << worker;
  }
  return testing::AssertionSuccess();
}

// One of the user's own, whose step depends on the whole of each gradient.
struct NormedOptions : torch::optim::OptimizerCloneableOptions<NormedOptions> {};
class Normed : public torch::optim::Optimizer {
 public:
  explicit Normed(std::vector<torch::Tensor> parameters)
      : Optimizer(std::move(parameters), std::make_unique<NormedOptions>()) {}

  torch::Tensor step(LossClosure = nullptr) override {
    const torch::NoGradGuard no_grad;
    for (auto& group : param_groups()) {
      for (torch::Tensor& parameter : group.params()) {
        const torch::Tensor gradient = parameter.grad();
        if (gradient.defined()) parameter.sub_(0.1 * gradient / (1 + gradient.norm()));
      }
    }
    return {};
  }
};

}  // namespace epl::parity

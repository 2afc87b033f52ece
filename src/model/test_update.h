// For the tests of updates: the same optimizer on the same parameters twice, stepped by LibTorch
// and by EPL, and comparisons of what comes out, to the bit.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/libtorch.h"
#include "model/torch_optimizer.h"

namespace epl {

using at::Tensor;
using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;

// --- comparing to the bit --------------------------------------------------------------------

inline std::string bytes_of(const Tensor& tensor) {
  const Tensor whole = tensor.detach().contiguous();
  return std::string(static_cast<const char*>(whole.data_ptr()), whole.nbytes());
}

inline testing::AssertionResult same_bits(const Tensor& a, const Tensor& b) {
  if (a.defined() != b.defined()) return testing::AssertionFailure() << "only one is defined";
  if (!a.defined()) return testing::AssertionSuccess();
  if (a.is_sparse() || b.is_sparse()) {
    if (!a.is_sparse() || !b.is_sparse()) return testing::AssertionFailure() << "one is sparse";
    if (!a.to_dense().equal(b.to_dense())) return testing::AssertionFailure() << "sparse values";
    return testing::AssertionSuccess();
  }
  if (a.dtype() != b.dtype() || a.sizes() != b.sizes() || a.strides() != b.strides())
    return testing::AssertionFailure()
           << a.toString() << a.sizes() << " strides " << a.strides() << " and " << b.toString()
           << b.sizes() << " strides " << b.strides();
  if (bytes_of(a) != bytes_of(b))
    return testing::AssertionFailure()
           << a.sizes() << " differ by up to " << (a - b).abs().max().item<double>();
  return testing::AssertionSuccess();
}

struct Contents {
  int64_t step = 0;
  std::vector<Tensor> tensors;
};

inline Contents contents_of(torch::optim::OptimizerParamState& state) {
  const TorchOptimizerRow* const known = torch_row_of(state);
  Contents contents;
  if (known->step != nullptr) contents.step = known->step(state);
  for (const auto& tensor_in : known->tensors) contents.tensors.push_back(tensor_in(state));
  return contents;
}

inline void expect_same(Optimizer& expected, Optimizer& actual) {
  EXPECT_EQ(expected.state().size(), actual.state().size());
  ASSERT_EQ(expected.param_groups().size(), actual.param_groups().size());
  for (size_t g = 0; g < expected.param_groups().size(); ++g) {
    const auto& ours = actual.param_groups()[g].params();
    const auto& theirs = expected.param_groups()[g].params();
    ASSERT_EQ(ours.size(), theirs.size());
    for (size_t i = 0; i < ours.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "group " << g << ", parameter " << i);
      EXPECT_TRUE(same_bits(theirs[i], ours[i]));
      const auto their_state = expected.state().find(epl::state_key(theirs[i]));
      const auto our_state = actual.state().find(epl::state_key(ours[i]));
      ASSERT_EQ(their_state == expected.state().end(), our_state == actual.state().end());
      if (our_state == actual.state().end()) continue;
      const Contents theirs_inside = contents_of(*their_state->second);
      const Contents ours_inside = contents_of(*our_state->second);
      EXPECT_EQ(theirs_inside.step, ours_inside.step);
      for (size_t t = 0; t < ours_inside.tensors.size(); ++t)
        EXPECT_TRUE(same_bits(theirs_inside.tensors[t], ours_inside.tensors[t])) << "state " << t;
    }
  }
}

// --- one optimizer twice ---------------------------------------------------------------------

using Maker = std::function<std::unique_ptr<Optimizer>(std::vector<OptimizerParamGroup>)>;

template <typename OptimizerType, typename Options>
Maker maker(Options options) {
  return [options](std::vector<OptimizerParamGroup> groups) {
    return std::make_unique<OptimizerType>(std::move(groups), options);
  };
}

inline Tensor parameter_like(const Tensor& values) {
  return values.detach().clone(at::MemoryFormat::Preserve).requires_grad_();
}

// The same parameters, once stepped by LibTorch and once by EPL.
struct Twins {
  Twins(const Maker& make, const std::vector<std::vector<Tensor>>& groups) {
    std::vector<OptimizerParamGroup> their_groups, our_groups;
    for (const auto& values : groups) {
      std::vector<Tensor> theirs, ours;
      for (const Tensor& value : values) {
        theirs.push_back(parameter_like(value));
        ours.push_back(parameter_like(value));
        their_parameters.push_back(theirs.back());
        our_parameters.push_back(ours.back());
      }
      their_groups.emplace_back(theirs);
      our_groups.emplace_back(ours);
    }
    expected = make(their_groups);
    actual = make(our_groups);
    update = make_update(*actual);
  }

  Twins(const Maker& make, const std::vector<Tensor>& values)
      : Twins(make, std::vector<std::vector<Tensor>>{values}) {}

  // An undefined gradient leaves its parameter out.
  void step(const std::vector<Tensor>& gradients) {
    std::vector<ParameterGradient> given;
    for (size_t i = 0; i < gradients.size(); ++i) {
      their_parameters[i].mutable_grad() = gradients[i];
      if (gradients[i].defined()) given.push_back({our_parameters[i], gradients[i].clone()});
    }
    expected->step();
    update->apply(given);
  }

  void step() { step(random_gradients()); }

  std::vector<Tensor> random_gradients() const {
    std::vector<Tensor> gradients;
    for (const Tensor& parameter : our_parameters)
      gradients.push_back(
          at::randn_like(parameter.detach(), at::TensorOptions(), at::MemoryFormat::Preserve));
    return gradients;
  }

  void expect_same() { epl::expect_same(*expected, *actual); }

  std::vector<Tensor> their_parameters, our_parameters;
  std::unique_ptr<Optimizer> expected, actual;
  std::unique_ptr<Update> update;
};

}  // namespace epl

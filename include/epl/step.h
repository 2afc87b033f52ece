// The step function: what the user's program computes from one micro batch.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/types.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace epl {

// What one call of the step function reads: a std::vector<torch::Tensor>, and used as one. Reading
// batch[i] where the batch has no tensor i is an Error that says what it has.
class Batch : public std::vector<torch::Tensor> {
 public:
  using Tensors = std::vector<torch::Tensor>;
  using Tensors::Tensors;
  Batch() = default;
  Batch(Tensors tensors) : Tensors(std::move(tensors)) {}  // NOLINT: it is one

  torch::Tensor& operator[](size_t index) {
    if (index >= size()) throw_missing(index);
    return Tensors::operator[](index);
  }
  const torch::Tensor& operator[](size_t index) const {
    if (index >= size()) throw_missing(index);
    return Tensors::operator[](index);
  }

 private:
  [[noreturn]] void throw_missing(size_t index) const;
};

// Returns one micro batch at a time.
using BatchSource = std::function<Batch()>;

// What the step function returns: the loss, and other tensors worth knowing by their names. Over
// micro batches, devices and workers floating-point ones are merged by their mean and whole numbers
// by their sum, so that a count of hits is that of the whole batch; epl::add_to_collection offers
// other ways to merge.
struct StepOutput {
  StepOutput(torch::Tensor loss) : loss(std::move(loss)) {}  // NOLINT: a plain loss converts
  StepOutput(torch::Tensor loss, std::map<std::string, torch::Tensor> metrics)
      : loss(std::move(loss)), metrics(std::move(metrics)) {}

  torch::Tensor loss;
  std::map<std::string, torch::Tensor> metrics;
};

using StepFunction = std::function<StepOutput(const Batch&)>;

}  // namespace epl

#include "batch/given_batch.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_set>

#include "base/check.h"

namespace epl {
namespace {

// "float[64, 3], long[64]"
std::string describe(const Batch& batch) {
  std::vector<std::string> texts;
  for (const at::Tensor& tensor : batch) {
    texts.push_back(tensor.defined() ? concat(tensor.dtype(), tensor.sizes()) : "undefined");
  }
  return join(texts, ", ");
}

std::string count_tensors(size_t count) {
  return concat(count, count == 1 ? " tensor" : " tensors");
}

// Into how many parts the rows were cut; 1 where they were not.
int64_t parts_of(const GivenBatch& given) {
  for (size_t i = 0; i < given.seen.size(); ++i) {
    const at::Tensor &whole = given.whole[i], &seen = given.seen[i];
    if (whole.dim() > 0 && seen.size(0) > 0) return whole.size(0) / seen.size(0);
  }
  return 1;
}

// The name of a parameter of the model that autograd comes to from a tensor; empty: it comes to
// none.
std::string parameter_behind(const at::Tensor& tensor, const Model& model) {
  const auto name_of = [&](const at::Tensor& leaf) {
    for (const auto& [name, parameter] : model.parameters()) {
      if (parameter.is_same(leaf) && parameter.requires_grad()) return name;
    }
    return std::string();
  };
  if (tensor.grad_fn() == nullptr) return name_of(tensor);
  std::unordered_set<const torch::autograd::Node*> seen;
  std::vector<const torch::autograd::Node*> open{tensor.grad_fn().get()};
  while (!open.empty()) {
    const torch::autograd::Node* node = open.back();
    open.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    if (const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(node)) {
      const std::string name = name_of(leaf->variable);
      if (!name.empty()) return name;
    }
    for (const auto& edge : node->next_edges()) open.push_back(edge.function.get());
  }
  return "";
}

}  // namespace

void Batch::throw_missing(size_t index) const {
  throw Error(
      concat("there is no batch[", index, "]: the batch has ", count_tensors(size()),
             empty() ? "" : ", " + describe(*this)),
      "the step function",
      "all that the function reads in step(): trainer.step({x, y}) for batch[0] and batch[1]");
}

std::string describe(const GivenBatch& given, const Config& config, int devices) {
  if (given.whole.empty()) return "no batch";
  const std::string whole = "a batch of " + describe(given.whole);
  const int64_t parts = parts_of(given);
  if (parts == 1) return whole;
  const auto micro_batches = config.get<int64_t>("pipeline.num_micro_batch");
  return concat(whole, ", cut into ", parts, " parts (pipeline.num_micro_batch = ", micro_batches,
                ", ", devices, devices == 1 ? " device" : " devices", "): the step function reads ",
                describe(given.seen));
}

void check_not_trained(const Batch& batch, const Model& model) {
  for (size_t i = 0; i < batch.size(); ++i) {
    const at::Tensor& tensor = batch[i];
    if (!tensor.defined() || !tensor.requires_grad()) continue;
    const bool computed = tensor.grad_fn() != nullptr;
    const std::string name = parameter_behind(tensor, model);
    EPL_CHECK(name.empty(),
              concat("tensor ", i, " of the batch ", computed ? "was computed from" : "is",
                     " the parameter `", name,
                     "`, which the trainer trains: steps read copies of the batch, so no gradient "
                     "would come to it"),
              "epl::Trainer::step",
              computed ? "computing it inside of the step function, or tensor.detach() where it is "
                         "not to be trained this way"
                       : "a step function that closes over the parameter, or its detach() where it "
                         "is not to be trained this way");
  }
}

bool requires_grad(const Batch& batch) {
  return std::any_of(batch.begin(), batch.end(), [](const at::Tensor& tensor) {
    return tensor.defined() && tensor.requires_grad();
  });
}

void check_has_rows(const Batch& batch) {
  const auto has_rows = [](const at::Tensor& tensor) {
    return !tensor.defined() || tensor.dim() == 0 || tensor.size(0) > 0;
  };
  EPL_CHECK(batch.empty() || std::any_of(batch.begin(), batch.end(), has_rows),
            concat("the batch has no rows: ", describe(batch)), "epl::Trainer::step",
            "leave the step out; a loader drops an empty last batch by drop_last(true)");
}

}  // namespace epl

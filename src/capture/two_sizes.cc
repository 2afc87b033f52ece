#include "capture/two_sizes.h"

#include <ATen/Functions.h>

#include <set>

#include "base/check.h"
#include "ir/makers.h"
#include "ops/facts.h"

namespace epl {
namespace {

constexpr const char* kHint = "epl::replicate(1), which gives every device whole micro batches";

void check_same_operators(const Graph& small, const Graph& large, const std::string& asked_by) {
  const size_t count = std::min(small.nodes.size(), large.nodes.size());
  for (size_t i = 0; i < count; ++i) {
    EPL_CHECK(op_name(small.nodes[i]) == op_name(large.nodes[i]),
              concat("the step does other operators for a smaller micro batch: ",
                     op_name(small.nodes[i]), " where a larger one does ", op_name(large.nodes[i])),
              asked_by, kHint);
  }
  EPL_CHECK(
      small.nodes.size() == large.nodes.size() && small.value_count() == large.value_count(),
      concat("the step does ", small.nodes.size(), " operators for a smaller micro batch and ",
             large.nodes.size(), " for a larger one"),
      asked_by, kHint);
}

// Names the operator that makes the value.
std::string maker_of(const Graph& graph, ValueId id) {
  const Node* const maker = Makers(graph).of(id);
  return maker == nullptr ? "an input" : op_name(*maker);
}

int batch_dim(const Graph& small, const Graph& large, ValueId id, int times,
              const std::string& asked_by) {
  const auto& before = small.value(id).type.sizes;
  const auto& after = large.value(id).type.sizes;
  EPL_CHECK(before.size() == after.size(),
            concat("the result of ", maker_of(small, id), " has ", before.size(),
                   " dimensions for a smaller micro batch and ", after.size(), " for a larger one"),
            asked_by, kHint);
  int found = -1;
  for (size_t dim = 0; dim < before.size(); ++dim) {
    if (before[dim] == after[dim]) continue;
    EPL_CHECK(
        found == -1 && before[dim] * times == after[dim],
        concat("rows of the micro batch look at each other: the result of ", maker_of(small, id),
               " is ", c10::IntArrayRef(before), " for a smaller micro batch and ",
               c10::IntArrayRef(after), " for one of ", times, " times as many rows"),
        asked_by, kHint);
    found = static_cast<int>(dim);
  }
  return found;
}

// What grows with the rows in a way of its own, and is read where it was made.
std::set<ValueId> workspaces(const Graph& graph) {
  std::set<ValueId> found;
  for (const auto& node : graph.nodes) {
    for (size_t i = 0; i < node.results.size(); ++i) {
      if (!is_workspace(node, i)) continue;
      for (ValueId id : node.results[i].values) found.insert(id);
    }
  }
  return found;
}

}  // namespace

TwoSizes compare_sizes(const Graph& small, const Graph& large, int times,
                       const std::string& asked_by) {
  check_same_operators(small, large, asked_by);
  TwoSizes result;
  const std::set<ValueId> without_rows = workspaces(small);
  for (ValueId id = 0; id < small.value_count(); ++id) {
    const bool has_rows = without_rows.count(id) == 0;
    result.batch_dims.push_back(has_rows ? batch_dim(small, large, id, times, asked_by) : -1);
  }
  return result;
}

Batch repeat_rows(const Batch& batch, int times) {
  Batch repeated;
  for (const auto& tensor : batch) {
    const std::vector<at::Tensor> copies(static_cast<size_t>(times), tensor);
    repeated.push_back(tensor.dim() == 0 ? tensor : at::cat(copies));
  }
  return repeated;
}

}  // namespace epl

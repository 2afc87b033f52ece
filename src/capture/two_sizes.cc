#include "capture/two_sizes.h"

#include <ATen/Functions.h>

#include <cmath>
#include <set>

#include "base/check.h"
#include "ops/facts.h"

namespace epl {
namespace {

constexpr const char* kHint = "epl::replicate(1), which gives every device whole micro batches";

bool draws(const Graph& graph) {
  for (const auto& node : graph.nodes) {
    if (is_random(node.op)) return true;
  }
  return false;
}

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
  for (const auto& node : graph.nodes) {
    bool makes = false;
    for_each_output(node, [&](ValueId made) { makes |= made == id; });
    if (makes) return op_name(node);
  }
  return "an input";
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

bool near(double a, double b) {
  return std::abs(a - b) <= 1e-3 * std::max(std::abs(a), std::abs(b)) || a == b ||
         (std::isnan(a) && std::isnan(b));
}

// Random numbers blur the answer; the two are still a factor apart.
SliceMerge merge_of_loss(const Capture& small, const Capture& large, int times,
                         const std::string& asked_by) {
  if (near(large.loss, small.loss)) return SliceMerge::kMean;
  if (near(large.loss, small.loss * times)) return SliceMerge::kSum;
  const double ratio = large.loss / small.loss;
  EPL_CHECK(
      draws(small.graph) && ratio > 0,
      concat("the loss is neither a mean nor a sum over the rows of the micro batch: ", small.loss,
             " for some rows, ", large.loss, " for the same rows ", times, " times"),
      asked_by, kHint);
  return ratio < std::sqrt(static_cast<double>(times)) ? SliceMerge::kMean : SliceMerge::kSum;
}

bool same_constants(const Node& a, const Node& b) {
  for (size_t i = 0; i < a.arguments.size(); ++i) {
    const bool constant = a.arguments[i].kind == Argument::Kind::kConstant;
    if (constant && !a.arguments[i].constant.isGenerator() &&
        a.arguments[i].constant != b.arguments[i].constant) {
      return false;
    }
  }
  return true;
}

// Where numbers do not tell (they are 0): what is summed over the batch grows with it, unless it is
// divided by a number that grows as well.
bool is_made_as_sum(const Graph& small, const Graph& large, const std::vector<int>& batch_dims,
                    ValueId metric) {
  std::set<ValueId> wanted{metric};
  bool sums = false;
  for (size_t i = small.nodes.size(); i-- > 0;) {
    const Node& node = small.nodes[i];
    bool makes = false;
    for_each_output(node, [&](ValueId id) { makes |= wanted.count(id) != 0; });
    if (!makes) continue;
    bool had_rows = false;
    for_each_input(node, [&](ValueId id) { had_rows |= batch_dims[static_cast<size_t>(id)] >= 0; });
    if (!had_rows && !same_constants(node, large.nodes[i])) return false;
    if (had_rows) {
      const std::string name = op_name(node);
      sums |= name.rfind("aten::sum", 0) == 0 || name.rfind("aten::count_nonzero", 0) == 0;
      continue;
    }
    for_each_input(node, [&](ValueId id) { wanted.insert(id); });
  }
  return sums;
}

bool grows(const at::Tensor& small, const at::Tensor& large, int times) {
  const at::Tensor once = small.to(at::kDouble);
  const at::Tensor many = large.to(at::kDouble);
  const double as_mean = (many - once).abs().sum().item<double>();
  const double as_sum = (many - once * times).abs().sum().item<double>();
  return as_sum < as_mean;
}

// Of one without a batch dimension.
SliceMerge merge_of_metric(const Capture& small, const Capture& large, const TwoSizes& sizes,
                           size_t metric, int times) {
  const at::Tensor& value = small.metric_values[metric];
  const bool tells = value.ne(0).any().item<bool>();
  const bool sums = tells ? grows(value, large.metric_values[metric], times)
                          : is_made_as_sum(small.graph, large.graph, sizes.batch_dims,
                                           small.graph.metrics[metric].value);
  return sums ? SliceMerge::kSum : SliceMerge::kMean;
}

}  // namespace

TwoSizes compare_sizes(const Capture& small, const Capture& large, int times,
                       const std::string& asked_by) {
  check_same_operators(small.graph, large.graph, asked_by);
  TwoSizes result;
  for (ValueId id = 0; id < small.graph.value_count(); ++id) {
    result.batch_dims.push_back(batch_dim(small.graph, large.graph, id, times, asked_by));
  }
  result.loss = merge_of_loss(small, large, times, asked_by);
  for (size_t i = 0; i < small.graph.metrics.size(); ++i) {
    const int dim = result.batch_dims[static_cast<size_t>(small.graph.metrics[i].value)];
    result.metric_batch_dims.push_back(dim);
    result.metrics.push_back(dim >= 0 ? SliceMerge::kConcat
                                      : merge_of_metric(small, large, result, i, times));
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

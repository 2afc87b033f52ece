#include "plan/transfers.h"

#include <algorithm>

#include "base/check.h"
#include "ir/makers.h"

namespace epl {
namespace {

std::string describe(const Graph& graph, ValueId id) {
  const Node* const maker = Makers(graph).of(id);
  return concat(maker == nullptr ? "a tensor of the batch" : "the result of " + op_name(*maker),
                ", ", print_type(graph.value(id).type));
}

// The one dimension in which the two roles see a value differently, or -1. Values that only one of
// them has under this number do not cross.
int cut_dim(const Role& from, const Role& to, ValueId id) {
  if (id >= from.graph->value_count() || id >= to.graph->value_count()) return -1;
  const auto& before = from.graph->value(id).type.sizes;
  const auto& after = to.graph->value(id).type.sizes;
  for (size_t dim = 0; dim < before.size() && dim < after.size(); ++dim) {
    if (before[dim] != after[dim]) return static_cast<int>(dim);
  }
  return -1;
}

}  // namespace

std::vector<Transfer::Rows> common_rows(int64_t rows, int senders, int receivers) {
  std::vector<Transfer::Rows> found;
  const int64_t sent = rows / senders;
  const int64_t received = rows / receivers;
  for (int from = 0; from < senders; ++from) {
    for (int to = 0; to < receivers; ++to) {
      const int64_t begin = std::max(sent * from, received * to);
      const int64_t end = std::min(sent * (from + 1), received * (to + 1));
      if (begin >= end) continue;
      found.push_back({from, to, begin - sent * from, begin - received * to, end - begin});
    }
  }
  return found;
}

Transfer make_transfer(const Graph& whole, const Crossing& crossing, const Role& from,
                       const Role& to) {
  Transfer transfer;
  transfer.items.resize(crossing.values.size());
  for (ValueId id : crossing.values) {
    EPL_CHECK(
        from.graph->value(id).type.layout == c10::kStrided,
        concat(describe(*from.graph, id), " goes from one stage to another, but is not dense"),
        from.asked_by, "to_dense(), or the operators that read it in the same scope");
  }
  if (from.devices == to.devices) return transfer;
  std::vector<int> batch_dims;
  for (ValueId id = 0; id < whole.value_count(); ++id) {
    batch_dims.push_back(cut_dim(from, to, id));
  }
  const std::vector<bool> in_order = rows_in_order(whole, batch_dims);
  const std::string asked_by = from.asked_by + "\n            " + to.asked_by;
  for (size_t i = 0; i < crossing.values.size(); ++i) {
    const ValueId id = crossing.values[i];
    const int dim = batch_dims[static_cast<size_t>(id)];
    EPL_CHECK(dim >= 0,
              concat(describe(*from.graph, id), ", goes from a stage of ", from.devices,
                     " devices to one of ", to.devices, ", but has no rows to be cut"),
              asked_by, "the same device_count for both stages");
    EPL_CHECK(in_order[static_cast<size_t>(id)],
              concat(describe(*from.graph, id), ", goes from a stage of ", from.devices,
                     " devices to one of ", to.devices,
                     ", but its rows are mixed with another dimension"),
              asked_by, "the batch as dim 0 where the stages meet, or the same device_count");
    transfer.items[i].batch_dim = dim;
    const int64_t rows = from.graph->value(id).type.sizes[static_cast<size_t>(dim)] * from.devices;
    transfer.items[i].rows = common_rows(rows, from.devices, to.devices);
  }
  return transfer;
}

}  // namespace epl

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

Layout layout_at(const Role& role, ValueId id) {
  return static_cast<size_t>(id) < role.layouts.size() ? role.layouts[static_cast<size_t>(id)]
                                                       : Layout::whole();
}

int64_t rows_at(const Role& role, ValueId id, int dim) {
  const int64_t here = role.graph->value(id).type.sizes[static_cast<size_t>(dim)];
  return layout_at(role, id).is_cut() ? here * role.devices : here;
}

}  // namespace

std::vector<Transfer::Rows> common_rows(int64_t rows, TransferEnd from, TransferEnd to) {
  std::vector<Transfer::Rows> found;
  const int64_t sent = from.is_cut ? rows / from.devices : rows;
  const int64_t received = to.is_cut ? rows / to.devices : rows;
  for (int sender = 0; sender < from.devices; ++sender) {
    for (int receiver = 0; receiver < to.devices; ++receiver) {
      // Of several that have all rows one sends.
      if (!from.is_cut && sender != receiver % from.devices) continue;
      const int64_t first = from.is_cut ? sent * sender : 0;
      const int64_t place = to.is_cut ? received * receiver : 0;
      const int64_t begin = std::max(first, place);
      const int64_t end = std::min(first + sent, place + received);
      if (begin >= end) continue;
      found.push_back({sender, receiver, begin - first, begin - place, end - begin});
    }
  }
  return found;
}

Transfer make_transfer(const Crossing& crossing, const Role& from, const Role& to) {
  Transfer transfer;
  transfer.items.resize(crossing.values.size());
  for (size_t i = 0; i < crossing.values.size(); ++i) {
    const ValueId id = crossing.values[i];
    EPL_CHECK(
        from.graph->value(id).type.layout == c10::kStrided,
        concat(describe(*from.graph, id), " goes from one stage to another, but is not dense"),
        from.asked_by, "to_dense(), or the operators that read it in the same scope");
    if (from.devices == to.devices) continue;
    EPL_CHECK(!from.graph->value(id).type.sizes.empty(),
              concat(describe(*from.graph, id), ", goes from a stage of ", from.devices,
                     " devices to one of ", to.devices, ", but has no rows to be cut"),
              from.asked_by + "\n            " + to.asked_by,
              "the same device_count for both stages");
    const Layout sent = layout_at(from, id);
    const Layout received = layout_at(to, id);
    EPL_ASSERT(!sent.is_partial() && sent.runs == 1 && !received.is_partial() &&
                   received.runs == 1 &&
                   (!sent.is_cut() || !received.is_cut() || sent.dim == received.dim),
               "what is cut anew lies whole, or cut in one dimension at both ends");
    const int dim = sent.is_cut() ? sent.dim : received.is_cut() ? received.dim : 0;
    transfer.items[i].batch_dim = dim;
    transfer.items[i].rows = common_rows(rows_at(from, id, dim), {from.devices, sent.is_cut()},
                                         {to.devices, received.is_cut()});
  }
  return transfer;
}

}  // namespace epl

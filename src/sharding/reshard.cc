#include "sharding/reshard.h"

#include <algorithm>

namespace epl {
namespace {

double moved_seconds(const TensorType& whole, double share, const Link& link) {
  const auto bytes = static_cast<double>(whole.numel() * whole.item_bytes());
  return link.seconds_per_call + share * bytes / link.bytes_per_second;
}

Argument number(int64_t value) { return constant_argument(value); }

Argument pieces_argument(int64_t size, const Axis& parts) {
  return constant_argument(c10::List<int64_t>(pieces_of(size, parts)));
}

std::vector<int64_t> with_size(std::vector<int64_t> sizes, int dim, int64_t size) {
  sizes[static_cast<size_t>(dim)] = size;
  return sizes;
}

// One way from a layout to another, for one value.
class Resharding {
 public:
  Resharding(Emitter& to, const TensorType& whole, const Axis& parts, int part)
      : to_(to), whole_(whole), parts_(parts), part_(part) {}

  ValueId emit(ValueId local, Layout from, Layout to) {
    if (from == to) return local;
    if (from.is_whole()) return to.is_cut() ? own_piece(local, to) : own_addend(local);
    const bool runs = (from.is_cut() && from.runs > 1) || (to.is_cut() && to.runs > 1);
    if (to.is_partial() || (runs && !to.is_whole())) {
      return emit(emit(local, from, Layout::whole()), Layout::whole(), to);
    }
    if (from.is_partial()) return to.is_whole() ? all_reduce(local) : reduce_scatter(local, to);
    return to.is_whole() ? all_gather(local, from) : all_to_all(local, from, to);
  }

 private:
  Argument axis() const { return constant_argument(parts_.name); }
  int64_t size(int dim) const { return whole_.sizes[static_cast<size_t>(dim)]; }
  std::vector<int64_t> local(Layout layout) const {
    return local_sizes(whole_.sizes, layout, parts_, std::max(part_, 0));
  }

  // [.., size, ..] as [.., runs, size / runs, ..], where a run is cut like a dimension of its own.
  ValueId in_runs(ValueId id, int dim, int64_t runs) {
    if (runs == 1) return id;
    std::vector<int64_t> sizes = to_.graph().value(id).type.sizes;
    const auto at = sizes.begin() + dim;
    *at /= runs;
    sizes.insert(at, runs);
    return to_.call("aten::view", {value_argument(id), constant_argument(sizes)});
  }

  ValueId joined(ValueId id, std::vector<int64_t> sizes, int64_t runs) {
    if (runs == 1) return id;
    return to_.call("aten::view", {value_argument(id), constant_argument(std::move(sizes))});
  }

  ValueId own_piece(ValueId id, Layout to) {
    const int64_t run = size(to.dim) / to.runs;
    const ValueId from = in_runs(id, to.dim, to.runs);
    const int dim = to.runs == 1 ? to.dim : to.dim + 1;
    if (part_ == kEachPart) {
      const ValueId piece = to_.call_for(
          "epl::own_piece",
          {value_argument(from), number(dim), pieces_argument(run, parts_), axis()},
          with_size(to_.graph().value(from).type.sizes, dim, piece_of(run, parts_, 0).length));
      return joined(piece, local(to), to.runs);
    }
    const Piece piece = piece_of(run, parts_, part_);
    const ValueId view =
        to_.call("aten::slice.Tensor", {value_argument(from), number(dim), number(piece.begin),
                                        number(piece.begin + piece.length), number(1)});
    return to.runs == 1 ? view : joined(to_.contiguous_copy(view), local(to), to.runs);
  }

  ValueId own_addend(ValueId id) {
    if (part_ == 0) return id;
    if (part_ != kEachPart) return to_.call("aten::zeros_like", {value_argument(id)});
    return to_.call_like("epl::own_addend", {value_argument(id), axis()});
  }

  ValueId all_reduce(ValueId id) {
    return to_.call("epl::all_reduce",
                    {value_argument(id), constant_argument(std::string("sum")), axis()});
  }

  ValueId reduce_scatter(ValueId id, Layout to) {
    return to_.call_for(
        "epl::reduce_scatter",
        {value_argument(id), number(to.dim), pieces_argument(size(to.dim), parts_), axis()},
        local(to));
  }

  ValueId all_gather(ValueId id, Layout from) {
    const ValueId piece = in_runs(id, from.dim, from.runs);
    const int dim = from.runs == 1 ? from.dim : from.dim + 1;
    const ValueId gathered =
        to_.call("epl::all_gather", {value_argument(piece), number(dim),
                                     pieces_argument(size(from.dim) / from.runs, parts_), axis()});
    return joined(gathered, whole_.sizes, from.runs);
  }

  ValueId all_to_all(ValueId id, Layout from, Layout to) {
    return to_.call_for(
        "epl::all_to_all",
        {value_argument(id), number(from.dim), number(to.dim),
         pieces_argument(size(from.dim), parts_), pieces_argument(size(to.dim), parts_), axis()},
        local(to));
  }

  Emitter& to_;
  const TensorType& whole_;
  const Axis& parts_;
  const int part_;
};

}  // namespace

double reshard_seconds(const TensorType& whole, Layout from, Layout to, const Axis& parts,
                       const Machine& machine) {
  if (from == to) return 0;
  const double others = (parts.size - 1.0) / parts.size;
  if (from.is_whole()) {
    // A view is free; so little is counted that a value rather stays what it is.
    if (to.is_cut()) return 1e-9;
    // Zeros on all devices but one: nothing is read.
    return machine.device.seconds_per_call / 2 +
           static_cast<double>(whole.numel() * whole.item_bytes()) /
               machine.device.bytes_per_second;
  }
  if (to.is_partial()) {
    return reshard_seconds(whole, from, Layout::whole(), parts, machine) +
           reshard_seconds(whole, Layout::whole(), to, parts, machine);
  }
  if (from.is_partial()) {
    return moved_seconds(whole, (to.is_whole() ? 2 : 1) * others, machine.link);
  }
  return moved_seconds(whole, to.is_whole() ? others : others / parts.size, machine.link);
}

ValueId emit_reshard(Emitter& to_graph, ValueId local, const TensorType& whole, Layout from,
                     Layout to, const Axis& parts, int part) {
  return Resharding(to_graph, whole, parts, part).emit(local, from, to);
}

}  // namespace epl

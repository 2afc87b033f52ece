#include "sharding/reshard.h"

namespace epl {
namespace {

double moved_seconds(const TensorType& whole, double share, const Link& link) {
  const auto bytes = static_cast<double>(whole.numel() * whole.item_bytes());
  return link.seconds_per_call + share * bytes / link.bytes_per_second;
}

Argument pieces_argument(const TensorType& whole, int dim, int parts) {
  return constant_argument(
      c10::List<int64_t>(pieces_of(whole.sizes[static_cast<size_t>(dim)], parts)));
}

ValueId emit_slice(Emitter& emitter, ValueId local, const TensorType& whole, int dim, int parts,
                   int part) {
  const Piece piece = piece_of(whole.sizes[static_cast<size_t>(dim)], parts, part);
  return emitter.call(
      "aten::slice.Tensor",
      {value_argument(local), constant_argument(int64_t{dim}), constant_argument(piece.begin),
       constant_argument(piece.begin + piece.length), constant_argument(int64_t{1})});
}

}  // namespace

double reshard_seconds(const TensorType& whole, Layout from, Layout to, int parts,
                       const Machine& machine) {
  if (from == to) return 0;
  const double others = (parts - 1.0) / parts;
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
  return moved_seconds(whole, to.is_whole() ? others : others / parts, machine.link);
}

ValueId emit_reshard(Emitter& to_graph, ValueId local, const TensorType& whole, Layout from,
                     Layout to, int parts, int part) {
  if (from == to) return local;
  const auto dim_argument = [](int dim) { return constant_argument(int64_t{dim}); };
  if (from.is_whole()) {
    if (to.is_cut()) return emit_slice(to_graph, local, whole, to.dim, parts, part);
    return part == 0 ? local : to_graph.call("aten::zeros_like", {value_argument(local)});
  }
  if (to.is_partial()) {
    const ValueId gathered =
        emit_reshard(to_graph, local, whole, from, Layout::whole(), parts, part);
    return emit_reshard(to_graph, gathered, whole, Layout::whole(), to, parts, part);
  }
  if (from.is_partial()) {
    if (to.is_whole()) {
      return to_graph.call("epl::all_reduce",
                           {value_argument(local), constant_argument(std::string("sum"))});
    }
    return to_graph.call_for(
        "epl::reduce_scatter",
        {value_argument(local), dim_argument(to.dim), pieces_argument(whole, to.dim, parts)},
        local_sizes(whole.sizes, to, parts, part));
  }
  if (to.is_whole()) {
    return to_graph.call("epl::all_gather", {value_argument(local), dim_argument(from.dim),
                                             pieces_argument(whole, from.dim, parts)});
  }
  return to_graph.call_for(
      "epl::all_to_all",
      {value_argument(local), dim_argument(from.dim), dim_argument(to.dim),
       pieces_argument(whole, from.dim, parts), pieces_argument(whole, to.dim, parts)},
      local_sizes(whole.sizes, to, parts, part));
}

}  // namespace epl

#include "runtime/collectives.h"

#include <ATen/Functions.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/library.h>

#include <numeric>
#include <string>
#include <utility>

#include "base/check.h"
#include "comm/dim_collectives.h"

namespace epl {
namespace {

thread_local const AxisGroups* current_groups = nullptr;
thread_local CollectiveMeter* current_meter = nullptr;

Communicator& group_along(c10::string_view axis, const char* name) {
  EPL_ASSERT(current_groups != nullptr,
             concat("epl::", name, " runs inside of a CollectiveScope, which names its groups"));
  const std::string_view wanted(axis.data(), axis.size());
  for (const AxisGroup& each : *current_groups) {
    if (each.axis == wanted) return *each.group;
  }
  throw InternalError(concat("epl internal error: epl::", name, " runs along axis \"", wanted,
                             "\", along which this device has no group"));
}

int64_t sum(at::IntArrayRef pieces) {
  return std::accumulate(pieces.begin(), pieces.end(), int64_t{0});
}

int64_t piece_here(const char* name, at::IntArrayRef pieces, const Communicator& group) {
  EPL_ASSERT(
      static_cast<int>(pieces.size()) == group.size(),
      concat("epl::", name, " has ", pieces.size(), " pieces for a group of ", group.size()));
  return pieces[static_cast<size_t>(group.rank())];
}

void check_size(const char* name, const at::Tensor& x, int64_t dim, int64_t length) {
  EPL_ASSERT(x.size(dim) == length,
             concat("epl::", name, " was given a tensor of shape ", x.sizes(), ", whose dimension ",
                    dim, " should have ", length));
}

// Runs one call for the meter.
template <typename Call>
at::Tensor& measured(const char* name, int64_t bytes, at::Tensor& out, const Call& call) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (current_meter == nullptr) {
    call();
    return out;
  }
  CollectiveMeter::Span span = {name, CollectiveMeter::Clock::now(), {}, bytes};
  call();
  span.end = CollectiveMeter::Clock::now();
  current_meter->calls += 1;
  current_meter->bytes += bytes;
  current_meter->seconds += std::chrono::duration<double>(span.end - span.begin).count();
  current_meter->spans.push_back(span);
  return out;
}

void check_out(const char* name, const at::Tensor& x, const at::Tensor& out,
               at::IntArrayRef sizes) {
  EPL_ASSERT(out.sizes() == sizes && out.scalar_type() == x.scalar_type(),
             concat("epl::", name, " makes ", x.scalar_type(), " ", sizes, ", not ",
                    out.scalar_type(), " ", out.sizes()));
}

std::vector<int64_t> sizes_with(const at::Tensor& x, int64_t dim, int64_t length) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes[static_cast<size_t>(dim)] = length;
  return sizes;
}

int64_t bytes_of(const at::Tensor& x) { return static_cast<int64_t>(x.nbytes()); }

ReduceOp parse_op(c10::string_view op) {
  if (op == "sum") return ReduceOp::kSum;
  EPL_ASSERT(op == "max", concat("epl::all_reduce makes a sum or a max, not ", std::string(op)));
  return ReduceOp::kMax;
}

// --- operators that write into a given tensor ----------------------------------------------------

at::Tensor& all_reduce_out(const at::Tensor& x, c10::string_view op, c10::string_view axis,
                           at::Tensor& out) {
  Communicator& group = group_along(axis, "all_reduce");
  const int64_t members = group.size();
  check_out("all_reduce", x, out, x.sizes());
  return measured("all_reduce", 2 * bytes_of(x) * (members - 1) / members, out,
                  [&] { all_reduce_into(group, x, out, parse_op(op)); });
}

at::Tensor& broadcast_out(const at::Tensor& x, int64_t root, c10::string_view axis,
                          at::Tensor& out) {
  Communicator& group = group_along(axis, "broadcast");
  check_out("broadcast", x, out, x.sizes());
  return measured("broadcast", group.rank() == root ? bytes_of(x) * (group.size() - 1) : 0, out,
                  [&] { broadcast_into(group, x, out, static_cast<int>(root)); });
}

at::Tensor& all_gather_out(const at::Tensor& x, int64_t dim, at::IntArrayRef pieces,
                           c10::string_view axis, at::Tensor& out) {
  Communicator& group = group_along(axis, "all_gather");
  dim = at::maybe_wrap_dim(dim, x.dim());
  check_size("all_gather", x, dim, piece_here("all_gather", pieces, group));
  check_out("all_gather", x, out, sizes_with(x, dim, sum(pieces)));
  return measured("all_gather", bytes_of(x) * (group.size() - 1), out,
                  [&] { all_gather_along(group, x, out, dim, pieces); });
}

at::Tensor& reduce_scatter_out(const at::Tensor& x, int64_t dim, at::IntArrayRef pieces,
                               c10::string_view axis, at::Tensor& out) {
  Communicator& group = group_along(axis, "reduce_scatter");
  dim = at::maybe_wrap_dim(dim, x.dim());
  check_size("reduce_scatter", x, dim, sum(pieces));
  check_out("reduce_scatter", x, out,
            sizes_with(x, dim, piece_here("reduce_scatter", pieces, group)));
  return measured("reduce_scatter", bytes_of(x) - bytes_of(out), out,
                  [&] { reduce_scatter_along(group, x, out, dim, pieces, ReduceOp::kSum); });
}

at::Tensor& all_to_all_out(const at::Tensor& x, int64_t from, int64_t to,
                           at::IntArrayRef from_pieces, at::IntArrayRef to_pieces,
                           c10::string_view axis, at::Tensor& out) {
  Communicator& group = group_along(axis, "all_to_all");
  from = at::maybe_wrap_dim(from, x.dim());
  to = at::maybe_wrap_dim(to, x.dim());
  check_size("all_to_all", x, from, piece_here("all_to_all", from_pieces, group));
  check_size("all_to_all", x, to, sum(to_pieces));
  const int64_t mine = piece_here("all_to_all", to_pieces, group);
  std::vector<int64_t> sizes = sizes_with(x, from, sum(from_pieces));
  sizes[static_cast<size_t>(to)] = mine;
  check_out("all_to_all", x, out, sizes);
  const int64_t kept = x.size(to) == 0 ? 0 : bytes_of(x) / x.size(to) * mine;
  return measured("all_to_all", bytes_of(x) - kept, out,
                  [&] { all_to_all_along(group, x, out, from, to, from_pieces, to_pieces); });
}

// --- what this device has of a value that all of them have ---------------------------------------

at::Tensor piece_of_whole(const at::Tensor& x, int64_t dim, at::IntArrayRef pieces,
                          c10::string_view axis) {
  const Communicator& group = group_along(axis, "own_piece");
  dim = at::maybe_wrap_dim(dim, x.dim());
  check_size("own_piece", x, dim, sum(pieces));
  const int64_t mine = piece_here("own_piece", pieces, group);
  const auto rank = static_cast<size_t>(group.rank());
  return x.narrow(dim, sum(pieces.slice(0, rank)), mine);
}

at::Tensor& own_piece_out(const at::Tensor& x, int64_t dim, at::IntArrayRef pieces,
                          c10::string_view axis, at::Tensor& out) {
  const at::Tensor piece = piece_of_whole(x, dim, pieces, axis);
  check_out("own_piece", x, out, piece.sizes());
  return out.copy_(piece);
}

at::Tensor own_piece(const at::Tensor& x, int64_t dim, at::IntArrayRef pieces,
                     c10::string_view axis) {
  return piece_of_whole(x, dim, pieces, axis).clone(c10::MemoryFormat::Contiguous);
}

at::Tensor& own_addend_out(const at::Tensor& x, c10::string_view axis, at::Tensor& out) {
  check_out("own_addend", x, out, x.sizes());
  return group_along(axis, "own_addend").rank() == 0 ? out.copy_(x) : out.zero_();
}

at::Tensor own_addend(const at::Tensor& x, c10::string_view axis) {
  return group_along(axis, "own_addend").rank() == 0 ? x.clone() : at::zeros_like(x);
}

// --- operators that make their result ------------------------------------------------------------

at::Tensor empty(const at::Tensor& x, at::IntArrayRef sizes) {
  return at::empty(sizes, x.options());
}

at::Tensor all_reduce(const at::Tensor& x, c10::string_view op, c10::string_view axis) {
  at::Tensor out = empty(x, x.sizes());
  return all_reduce_out(x, op, axis, out);
}

at::Tensor broadcast(const at::Tensor& x, int64_t root, c10::string_view axis) {
  at::Tensor out = empty(x, x.sizes());
  return broadcast_out(x, root, axis, out);
}

at::Tensor all_gather(const at::Tensor& x, int64_t dim, at::IntArrayRef pieces,
                      c10::string_view axis) {
  at::Tensor out = empty(x, sizes_with(x, at::maybe_wrap_dim(dim, x.dim()), sum(pieces)));
  return all_gather_out(x, dim, pieces, axis, out);
}

at::Tensor reduce_scatter(const at::Tensor& x, int64_t dim, at::IntArrayRef pieces,
                          c10::string_view axis) {
  const int64_t mine = piece_here("reduce_scatter", pieces, group_along(axis, "reduce_scatter"));
  at::Tensor out = empty(x, sizes_with(x, at::maybe_wrap_dim(dim, x.dim()), mine));
  return reduce_scatter_out(x, dim, pieces, axis, out);
}

at::Tensor all_to_all(const at::Tensor& x, int64_t from, int64_t to, at::IntArrayRef from_pieces,
                      at::IntArrayRef to_pieces, c10::string_view axis) {
  const int64_t mine = piece_here("all_to_all", to_pieces, group_along(axis, "all_to_all"));
  std::vector<int64_t> sizes = sizes_with(x, at::maybe_wrap_dim(from, x.dim()), sum(from_pieces));
  sizes[static_cast<size_t>(at::maybe_wrap_dim(to, x.dim()))] = mine;
  at::Tensor out = empty(x, sizes);
  return all_to_all_out(x, from, to, from_pieces, to_pieces, axis, out);
}

// --- tensors without contents --------------------------------------------------------------------
// Graphs are made outside of any group, and there a device's own piece is known only where all are
// alike; operators whose results differ from device to device have no kernel for these.

at::Tensor like(const at::Tensor& x) { return at::empty_like(x, c10::MemoryFormat::Contiguous); }
at::Tensor all_reduce_meta(const at::Tensor& x, c10::string_view, c10::string_view) {
  return like(x);
}
at::Tensor broadcast_meta(const at::Tensor& x, int64_t, c10::string_view) { return like(x); }
at::Tensor all_gather_meta(const at::Tensor& x, int64_t dim, at::IntArrayRef pieces,
                           c10::string_view) {
  return empty(x, sizes_with(x, at::maybe_wrap_dim(dim, x.dim()), sum(pieces)));
}

}  // namespace

// In the file of CollectiveScope, so that whoever sets a scope has the operators, however the
// library is linked. The kernels are the CPU's own and not for all backends: that is what
// out_variant (ops/facts.h) takes.
TORCH_LIBRARY_IMPL(epl, CPU, library) {
  library.impl("all_reduce", all_reduce);
  library.impl("all_reduce.out", all_reduce_out);
  library.impl("broadcast", broadcast);
  library.impl("broadcast.out", broadcast_out);
  library.impl("all_gather", all_gather);
  library.impl("all_gather.out", all_gather_out);
  library.impl("reduce_scatter", reduce_scatter);
  library.impl("reduce_scatter.out", reduce_scatter_out);
  library.impl("all_to_all", all_to_all);
  library.impl("all_to_all.out", all_to_all_out);
  library.impl("own_piece", own_piece);
  library.impl("own_piece.out", own_piece_out);
  library.impl("own_addend", own_addend);
  library.impl("own_addend.out", own_addend_out);
}

TORCH_LIBRARY_IMPL(epl, SparseCPU, library) { library.impl("own_addend", own_addend); }

TORCH_LIBRARY_IMPL(epl, Meta, library) {
  library.impl("all_reduce", all_reduce_meta);
  library.impl("broadcast", broadcast_meta);
  library.impl("all_gather", all_gather_meta);
}

// LibTorch passes through the autograd of every other backend by itself.
TORCH_LIBRARY_IMPL(epl, AutogradMeta, library) {
  for (const char* name : {"all_reduce", "broadcast", "all_gather"}) {
    library.impl(name, torch::CppFunction::makeFallthrough());
  }
}

CollectiveScope::CollectiveScope(AxisGroups groups, CollectiveMeter* meter)
    : groups_(std::move(groups)), groups_before_(current_groups), meter_before_(current_meter) {
  current_groups = &groups_;
  current_meter = meter;
}

CollectiveScope::~CollectiveScope() {
  current_groups = groups_before_;
  current_meter = meter_before_;
}

}  // namespace epl

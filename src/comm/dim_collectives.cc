#include "comm/dim_collectives.h"

#include <ATen/Functions.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/byte_strip.h"
#include "comm/call.h"
#include "comm/reduce_kernels.h"

namespace epl::comm {
namespace {

using Shown = Communicator::ShownTensors;

int64_t product(at::IntArrayRef sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

// A dimension that is cut: [outer, sum of lengths, inner].
struct CutDimension {
  int64_t dim;
  int64_t outer, inner;  // elements before and within one place of the dimension
  c10::SmallVector<int64_t, 16> begins;

  CutDimension(const at::Tensor& tensor, int64_t dim, at::IntArrayRef pieces)
      : dim(dim),
        outer(product(tensor.sizes().slice(0, static_cast<size_t>(dim)))),
        inner(product(tensor.sizes().slice(static_cast<size_t>(dim) + 1))) {
    begins.push_back(0);
    for (const int64_t length : pieces) begins.push_back(begins.back() + length);
  }

  int members() const { return static_cast<int>(begins.size()) - 1; }
  int64_t whole() const { return begins.back(); }
  int64_t begin(int member) const { return begins[static_cast<size_t>(member)]; }
  int64_t length(int member) const { return begin(member + 1) - begin(member); }
  at::Tensor piece(const at::Tensor& tensor, int member) const {
    return tensor.narrow(dim, begin(member), length(member));
  }
  // Whether a contiguous tensor has its pieces one behind the other.
  bool is_outermost() const { return outer == 1; }
};

at::Tensor contiguous_like(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options());
}

// Where a contiguous result is made that belongs to `result`.
class Contiguous {
 public:
  explicit Contiguous(const at::Tensor& result)
      : result_(result), place_(result.is_contiguous() ? result : contiguous_like(result)) {}
  const at::Tensor& place() const { return place_; }
  void finish() const {
    if (!place_.is_same(result_)) result_.copy_(place_);
  }

 private:
  const at::Tensor& result_;
  const at::Tensor place_;
};

// Calls f(piece of `tensor`, the same elements of `packed`), where pieces lie one behind the other.
template <typename F>
void for_each_piece(const at::Tensor& tensor, const at::Tensor& packed, const CutDimension& cut,
                    const F& f) {
  const at::Tensor elements = packed.view({packed.numel()});
  const int64_t row = cut.outer * cut.inner;
  for (int i = 0; i < cut.members(); ++i) {
    const at::Tensor piece = cut.piece(tensor, i);
    f(piece, elements.narrow(0, cut.begin(i) * row, cut.length(i) * row).view(piece.sizes()));
  }
}

at::Tensor packed_pieces(const at::Tensor& tensor, const CutDimension& cut) {
  const at::Tensor packed = contiguous_like(tensor);
  for_each_piece(tensor, packed, cut,
                 [](const at::Tensor& piece, const at::Tensor& place) { place.copy_(piece); });
  return packed;
}

void unpack_pieces(const at::Tensor& packed, const at::Tensor& tensor, const CutDimension& cut) {
  for_each_piece(tensor, packed, cut,
                 [](const at::Tensor& piece, const at::Tensor& place) { piece.copy_(place); });
}

void check_reduction(const char* call, const at::Tensor& tensor, ReduceOp op) {
  EPL_CHECK(can_reduce(tensor.scalar_type(), op),
            concat(call, " cannot combine elements of type ", tensor.scalar_type()));
}

void* element(const at::Tensor& contiguous, int64_t index) {
  return static_cast<char*>(contiguous.data_ptr()) +
         index * static_cast<int64_t>(contiguous.element_size());
}

// Combines `count` elements of all members, at `index` of what they show, to each of `targets`.
void combine(Shown shown, ReduceOp op, int64_t index, int64_t count, c10::ArrayRef<void*> targets) {
  c10::SmallVector<const void*, 16> sources;
  for (const at::TensorList& member : shown) sources.push_back(element(member[0], index));
  reduce_elements(shown[0][0].scalar_type(), op, sources.data(), static_cast<int>(shown.size()),
                  targets.data(), static_cast<int>(targets.size()), count);
}

MemberCall describe(CallKind kind, ReduceOp op, const at::Tensor& tensor, int root,
                    int64_t elements, std::vector<int64_t> rows) {
  const auto row_count = static_cast<int64_t>(rows.size());
  return {{kind, op, tensor.scalar_type(), root, elements, row_count}, std::move(rows)};
}

// Up to this size every member combines all elements itself: nobody writes into the caches of
// another. Beyond, each element is combined once, by the member whose share it is in.
constexpr int64_t kAlone = 4 * 1024;

// Each member shows what it has and where its sums belong, which may be the same place.
void sum_in_memory(Shown shown, ReduceOp op, int rank) {
  const at::Tensor& target = shown[static_cast<size_t>(rank)][1];
  const auto bytes = static_cast<int64_t>(target.nbytes());
  const bool in_place = std::any_of(shown.begin(), shown.end(), [](const at::TensorList& member) {
    return member[0].data_ptr() == member[1].data_ptr();
  });
  if (bytes <= kAlone && !in_place) {
    return combine(shown, op, 0, target.numel(), {target.data_ptr()});
  }
  const auto width = static_cast<int64_t>(target.element_size());
  const ByteRange share = share_of(bytes, rank, static_cast<int>(shown.size()));
  c10::SmallVector<void*, 16> targets;
  for (const at::TensorList& member : shown) {
    targets.push_back(element(member[1], share.begin / width));
  }
  combine(shown, op, share.begin / width, (share.end - share.begin) / width, targets);
}

}  // namespace

void all_reduce_into(Communicator& group, const at::Tensor& value, const at::Tensor& result,
                     ReduceOp op) {
  check_reduction("all_reduce", value, op);
  if (value.numel() == 0) return;
  const bool in_place = value.data_ptr() == result.data_ptr();
  if (group.size() == 1) return in_place ? void() : void(result.copy_(value));
  const Contiguous target(result);
  const at::Tensor mine[] = {value.contiguous(), target.place()};
  const auto work = [&](Shown shown) { sum_in_memory(shown, op, group.rank()); };
  const MemberCall call = describe(CallKind::kAllReduce, op, value, -1, value.numel(), {});
  if (!group.read_each_other(call, mine, work)) {
    if (target.place().data_ptr() != value.data_ptr()) target.place().copy_(value);
    group.all_reduce({target.place()}, op);
  }
  target.finish();
}

void broadcast_into(Communicator& group, const at::Tensor& value, const at::Tensor& result,
                    int root) {
  EPL_ASSERT(root >= 0 && root < group.size(), concat("member ", root, " of ", group.size()));
  const MemberCall call =
      describe(CallKind::kBroadcast, ReduceOp::kSum, value, root, value.numel(), {});
  const auto work = [&](Shown shown) { result.copy_(shown[static_cast<size_t>(root)][0]); };
  if (group.size() > 1 && group.read_each_other(call, value, work)) return;
  const Contiguous target(result);
  if (group.rank() == root) target.place().copy_(value);
  if (group.size() > 1) group.broadcast({target.place()}, root);
  target.finish();
}

void all_gather_along(Communicator& group, const at::Tensor& piece, const at::Tensor& whole,
                      int64_t dim, at::IntArrayRef pieces) {
  if (group.size() == 1) return void(whole.copy_(piece));
  const CutDimension cut(whole, dim, pieces);
  if (whole.numel() == 0) return;  // of all members alike
  const int64_t row = cut.outer * cut.inner;
  const auto work = [&](Shown shown) {
    for (int i = 0; i < group.size(); ++i) {
      cut.piece(whole, i).copy_(shown[static_cast<size_t>(i)][0]);
    }
  };
  const MemberCall call =
      describe(CallKind::kAllGather, ReduceOp::kSum, whole, -1, row, pieces.vec());
  if (group.read_each_other(call, piece, work)) return;

  const at::Tensor mine = piece.contiguous();
  const bool comes_packed = cut.is_outermost() && whole.is_contiguous();
  const at::Tensor received = comes_packed ? whole : contiguous_like(whole);
  group.all_gather(mine.view({cut.length(group.rank()), row}), received.view({cut.whole(), row}),
                   pieces.vec());
  if (!comes_packed) unpack_pieces(received, whole, cut);
}

void reduce_scatter_along(Communicator& group, const at::Tensor& whole, const at::Tensor& piece,
                          int64_t dim, at::IntArrayRef pieces, ReduceOp op) {
  check_reduction("reduce_scatter", whole, op);
  if (group.size() == 1) return void(piece.copy_(whole));
  const CutDimension cut(whole, dim, pieces);
  if (whole.numel() == 0) return;  // of all members alike
  const int64_t row = cut.outer * cut.inner;
  const int64_t length = cut.length(group.rank());
  const Contiguous target(piece);
  const at::Tensor mine = whole.contiguous();
  const auto work = [&](Shown shown) {
    const int64_t run = length * cut.inner;
    for (int64_t i = 0; i < (run == 0 ? 0 : cut.outer); ++i) {
      const int64_t from = (i * cut.whole() + cut.begin(group.rank())) * cut.inner;
      combine(shown, op, from, run, {element(target.place(), i * run)});
    }
  };
  const MemberCall call = describe(CallKind::kReduceScatter, op, whole, -1, row, pieces.vec());
  if (group.read_each_other(call, mine, work)) return target.finish();

  const at::Tensor sent = cut.is_outermost() ? mine : packed_pieces(mine, cut);
  group.reduce_scatter(sent.view({cut.whole(), row}), target.place().view({length, row}),
                       pieces.vec(), op);
  target.finish();
}

void all_to_all_along(Communicator& group, const at::Tensor& value, const at::Tensor& result,
                      int64_t from, int64_t to, at::IntArrayRef from_pieces,
                      at::IntArrayRef to_pieces) {
  EPL_ASSERT(from != to, "all_to_all moves the cut from one dimension to another");
  if (group.size() == 1) return void(result.copy_(value));
  const CutDimension out(value, to, to_pieces);
  const CutDimension in(result, from, from_pieces);
  const int rank = group.rank();
  // A row is what stands at one place of both dimensions.
  int64_t row = 1;
  for (int64_t i = 0; i < value.dim(); ++i) row *= i == from || i == to ? 1 : value.size(i);
  if (row * in.whole() * out.whole() == 0) return;  // of all members alike
  std::vector<int64_t> rows_to, rows_from;
  for (int i = 0; i < group.size(); ++i) {
    rows_to.push_back(in.length(rank) * out.length(i));
    rows_from.push_back(in.length(i) * out.length(rank));
  }
  const auto work = [&](Shown shown) {
    for (int i = 0; i < group.size(); ++i) {
      in.piece(result, i).copy_(out.piece(shown[static_cast<size_t>(i)][0], rank));
    }
  };
  std::vector<int64_t> rows = rows_to;
  rows.insert(rows.end(), rows_from.begin(), rows_from.end());
  const MemberCall call =
      describe(CallKind::kAllToAll, ReduceOp::kSum, value, -1, row, std::move(rows));
  if (group.read_each_other(call, value, work)) return;

  const bool lies_packed = out.is_outermost() && value.is_contiguous();
  const at::Tensor sent = lies_packed ? value : packed_pieces(value, out);
  const bool comes_packed = in.is_outermost() && result.is_contiguous();
  const at::Tensor received = comes_packed ? result : contiguous_like(result);
  group.all_to_all(sent.view({in.length(rank) * out.whole(), row}),
                   received.view({in.whole() * out.length(rank), row}), rows_to, rows_from);
  if (!comes_packed) unpack_pieces(received, result, in);
}

}  // namespace epl::comm

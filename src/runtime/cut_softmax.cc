// The parts of a softmax over a cut dimension between its sums over devices, as operators of
// LibTorch: each reads its rows from memory once.
//
//   epl_rows::sum_exp(Tensor x, Tensor largest, int dim) -> Tensor
//       sum of exp(x - largest) over a dimension, which stays with size 1
//   epl_rows::log_softmax(Tensor x, Tensor largest, Tensor sum) -> Tensor
//       x - largest - log(sum)
//   epl_rows::log_softmax_backward(Tensor gradient, Tensor output, Tensor sum) -> Tensor
//       gradient - exp(output) * sum
//
// By LibTorch's kernels one after the other, each of these would go through memory two or three
// times: 100,000 classes of some rows are more than a cache holds. Here the same kernels run on
// some rows at a time, which stay in the cache from one kernel to the next. Each operator has an
// overload `.out`, whose result may lie where an argument of the same shape lies.
#include <ATen/Functions.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/library.h>

#include <algorithm>
#include <string>

namespace epl {
namespace {

// Of the rows that are worked on at a time. A core's second cache holds this and a result beside it
// nearly everywhere.
constexpr int64_t kBlockBytes = 256 << 10;

// Some rows of a tensor at a time, and of what is broadcast to it.
class Blocks {
 public:
  // `whole`: the dimension that no block cuts, -1 where all may be cut.
  explicit Blocks(const at::Tensor& x, int64_t whole = -1)
      : along_(whole == 0 && x.dim() > 1 ? 1 : 0), length_(x.size(along_)), step_(length_) {
    if (x.numel() == 0 || along_ == whole) return;
    const int64_t bytes_of_one = static_cast<int64_t>(x.nbytes()) / length_;
    step_ = std::clamp<int64_t>(kBlockBytes / bytes_of_one, 1, length_);
  }

  template <typename Run>
  void for_each(const Run& run) const {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (int64_t begin = 0; begin < length_; begin += step_) run(begin);
  }

  at::Tensor at(const at::Tensor& x, int64_t begin) const {
    if (x.size(along_) != length_) return x;  // broadcast: the same for every block
    return x.narrow(along_, begin, std::min(step_, length_ - begin));
  }

  // Room for one block, for whichever block.
  at::Tensor room(const at::Tensor& x) const {
    return at::empty_like(at(x, 0), c10::MemoryFormat::Contiguous);
  }
  at::Tensor in_room(const at::Tensor& room, int64_t begin) const {
    return room.narrow(along_, 0, std::min(step_, length_ - begin));
  }

 private:
  int64_t along_;
  int64_t length_;  // of all
  int64_t step_;    // of a block
};

// --- operators that write into a given tensor ----------------------------------------------------

at::Tensor& sum_exp_out(const at::Tensor& x, const at::Tensor& largest, int64_t dim,
                        at::Tensor& out) {
  if (x.numel() == 0) return out.zero_();
  dim = at::maybe_wrap_dim(dim, x.dim());
  const Blocks blocks(x, dim);
  const at::Tensor room = blocks.room(x);
  blocks.for_each([&](int64_t begin) {
    at::Tensor exponentials = blocks.in_room(room, begin);
    at::sub_out(exponentials, blocks.at(x, begin), blocks.at(largest, begin));
    exponentials.exp_();
    at::Tensor sums = blocks.at(out, begin);
    at::sum_out(sums, exponentials, {dim}, /*keepdim=*/true);
  });
  return out;
}

// Subtracts one after the other: where elements are large, log(sum) would drown in their largest.
at::Tensor& log_softmax_out(const at::Tensor& x, const at::Tensor& largest, const at::Tensor& sum,
                            at::Tensor& out) {
  const at::Tensor logarithm = sum.log();
  const Blocks blocks(x);
  blocks.for_each([&](int64_t begin) {
    at::Tensor part = blocks.at(out, begin);
    at::sub_out(part, blocks.at(x, begin), blocks.at(largest, begin));
    part.sub_(blocks.at(logarithm, begin));
  });
  return out;
}

at::Tensor& log_softmax_backward_out(const at::Tensor& gradient, const at::Tensor& output,
                                     const at::Tensor& sum, at::Tensor& out) {
  const Blocks blocks(output);
  const at::Tensor room = blocks.room(output);
  blocks.for_each([&](int64_t begin) {
    at::Tensor exponentials = blocks.in_room(room, begin);
    at::exp_out(exponentials, blocks.at(output, begin));
    at::Tensor part = blocks.at(out, begin);
    at::addcmul_out(part, blocks.at(gradient, begin), exponentials, blocks.at(sum, begin), -1);
  });
  return out;
}

// --- operators that make their result ------------------------------------------------------------

at::Tensor contiguous_like(const at::Tensor& x) {
  return at::empty_like(x, c10::MemoryFormat::Contiguous);
}

at::Tensor sum_exp(const at::Tensor& x, const at::Tensor& largest, int64_t dim) {
  at::Tensor out = contiguous_like(largest);
  return sum_exp_out(x, largest, dim, out);
}

at::Tensor log_softmax(const at::Tensor& x, const at::Tensor& largest, const at::Tensor& sum) {
  at::Tensor out = contiguous_like(x);
  return log_softmax_out(x, largest, sum, out);
}

at::Tensor log_softmax_backward(const at::Tensor& gradient, const at::Tensor& output,
                                const at::Tensor& sum) {
  at::Tensor out = contiguous_like(gradient);
  return log_softmax_backward_out(gradient, output, sum, out);
}

// --- tensors without contents --------------------------------------------------------------------

at::Tensor sum_exp_meta(const at::Tensor&, const at::Tensor& largest, int64_t) {
  return contiguous_like(largest);
}
at::Tensor like_first_meta(const at::Tensor& x, const at::Tensor&, const at::Tensor&) {
  return contiguous_like(x);
}

}  // namespace

TORCH_LIBRARY_IMPL(epl_rows, CPU, library) {
  library.impl("sum_exp", sum_exp);
  library.impl("sum_exp.out", sum_exp_out);
  library.impl("log_softmax", log_softmax);
  library.impl("log_softmax.out", log_softmax_out);
  library.impl("log_softmax_backward", log_softmax_backward);
  library.impl("log_softmax_backward.out", log_softmax_backward_out);
}

TORCH_LIBRARY_IMPL(epl_rows, Meta, library) {
  library.impl("sum_exp", sum_exp_meta);
  library.impl("log_softmax", like_first_meta);
  library.impl("log_softmax_backward", like_first_meta);
}

TORCH_LIBRARY_IMPL(epl_rows, AutogradMeta, library) {
  for (const char* name : {"sum_exp", "log_softmax", "log_softmax_backward"}) {
    library.impl(name, torch::CppFunction::makeFallthrough());
  }
}

}  // namespace epl

// Shape rows of products and factorings of matrices.
#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>

#include "config/libtorch.h"
#include "ops/shape_rows.h"

namespace epl {
namespace shapes {
namespace {

// The columns of each matrix side by side, as LAPACK wants them.
at::Tensor columns_first(const at::Tensor& like, std::vector<int64_t> sizes) {
  std::swap(sizes[sizes.size() - 1], sizes[sizes.size() - 2]);
  return plain_of(like, sizes).transpose(-2, -1);
}

// Sizes of all dimensions but the last two, of both.
std::vector<int64_t> batch_of(const at::Tensor& first, const at::Tensor& second) {
  const auto sizes = at::infer_size(first.sizes().slice(0, static_cast<size_t>(first.dim()) - 2),
                                    second.sizes().slice(0, static_cast<size_t>(second.dim()) - 2));
  return {sizes.begin(), sizes.end()};
}

// addbmm(self, batch1, batch2)
ShapeResults sum_of_products(ShapeArguments arguments) {
  return {plain_of(arguments[0].toTensor(),
                   {arguments[1].toTensor().size(1), arguments[2].toTensor().size(2)})};
}

ShapeResults cholesky_inverse(ShapeArguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  return {columns_first(self, self.sizes().vec())};
}

// _cdist_forward(x1, x2, p, compute_mode)
ShapeResults distances(ShapeArguments arguments) {
  const at::Tensor& first = arguments[0].toTensor();
  const at::Tensor& second = arguments[1].toTensor();
  std::vector<int64_t> sizes = batch_of(first, second);
  sizes.push_back(first.size(-2));
  sizes.push_back(second.size(-2));
  return {plain_of(first, sizes)};
}

// _cdist_backward(grad, x1, x2, p, cdist)
ShapeResults distances_backward(ShapeArguments arguments) {
  const at::Tensor& first = arguments[1].toTensor();
  std::vector<int64_t> sizes = batch_of(first, arguments[2].toTensor());
  sizes.push_back(first.size(-2));
  sizes.push_back(first.size(-1));
  return {plain_of(first, sizes)};
}

// cholesky_solve(self, input2, upper)
ShapeResults cholesky_solve(ShapeArguments arguments) {
  const at::Tensor& right = arguments[0].toTensor();
  std::vector<int64_t> sizes = batch_of(right, arguments[1].toTensor());
  sizes.push_back(right.size(-2));
  sizes.push_back(right.size(-1));
  return {columns_first(right, sizes)};
}

// linalg_solve_triangular(A, B, upper, left, unitriangular)
ShapeResults solve_triangular(ShapeArguments arguments) {
  const at::Tensor& matrix = arguments[0].toTensor();
  const at::Tensor& right = arguments[1].toTensor();
  std::vector<int64_t> sizes = batch_of(matrix, right);
  sizes.push_back(right.size(-2));
  sizes.push_back(right.size(-1));
  return {columns_first(right, sizes)};
}

}  // namespace
}  // namespace shapes

const ShapeRows& shape_rows_of_matrices() {
  using namespace shapes;
  static const auto* const rows = new ShapeRows{
      {"aten::addbmm", sum_of_products},
      {"aten::cholesky_inverse", cholesky_inverse},
      {"aten::_cdist_forward", distances},
      {"aten::_cdist_backward", distances_backward},
      {"aten::cholesky_solve", cholesky_solve},
      {"aten::linalg_matrix_exp", EPL_TORCH_AT_LEAST(2, 0) ? plain_like_first : dense_like_first},
      {"aten::linalg_solve_triangular", solve_triangular},
  };
  return *rows;
}

}  // namespace epl

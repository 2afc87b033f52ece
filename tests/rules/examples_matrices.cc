// Examples of matrices that are worked on one by one, and of distances.
#include "tests/rules/examples.h"

namespace epl::testing {
namespace {

at::Tensor symmetric(at::IntArrayRef sizes) {
  const at::Tensor factor = reals(sizes);
  return factor.matmul(factor.mT()) + 3 * at::eye(sizes.back(), at::kDouble);
}

}  // namespace

Examples matrix_examples() {
  const at::Tensor many = symmetric({4, 3, 3});
  const at::Tensor grid = symmetric({4, 5, 3, 3});
  const at::Tensor lower = at::linalg_cholesky(many);
  const auto [factors, pivots, unused] = at::linalg_lu_factor_ex(many);
  const at::Tensor first = reals({4, 5, 3});
  const at::Tensor second = reals({4, 7, 3});
  const at::Tensor between = at::cdist(first, second);
  const c10::IValue none;
  Examples examples;
  for (const char* op :
       {"linalg_cholesky_ex", "linalg_inv_ex", "linalg_lu_factor_ex", "linalg_lu", "linalg_qr",
        "_linalg_det", "_linalg_slogdet", "_linalg_svd", "_linalg_eigh", "linalg_matrix_exp"}) {
    examples.push_back({std::string("aten::") + op, {many}});
    examples.push_back({std::string("aten::") + op, {grid}});
  }
  const Examples others = {
      {"aten::cholesky_inverse", {lower}},
      {"aten::lu_unpack", {factors, pivots}},
      {"aten::_linalg_solve_ex", {many, reals({4, 3, 5})}},
      {"aten::_linalg_solve_ex", {many, reals({4, 3})}},
      // One right side for all, with as many rows as there are matrices.
      {"aten::_linalg_solve_ex", {symmetric({3, 3, 3}), reals({3, 5})}},
      {"aten::linalg_lu_solve", {factors, pivots, reals({4, 3, 5})}},
      {"aten::linalg_solve_triangular", {lower, reals({4, 3, 5}), false}},
      {"aten::linalg_solve_triangular", {lower[0], reals({3, 3, 5}), false}},
      {"aten::triangular_solve", {reals({4, 3, 5}), lower, false}},
      {"aten::triangular_solve", {reals({3, 3, 5}), lower[0], false}},
      {"aten::cholesky_solve", {reals({4, 3, 5}), lower}},
      {"aten::_linalg_check_errors", {at::zeros({4, 3}, at::kInt), "linalg.inv", false}},
      {"aten::linalg_cross", {reals({4, 3, 5}), reals({4, 3, 5}), 1}},
      {"aten::linalg_cross", {reals({4, 1, 3}), reals({1, 5, 3}), -1}},
      {"aten::_cdist_forward", {first, second, 2.0, none}},
      {"aten::_cdist_forward", {first, second, 1.0, none}},
      {"aten::_cdist_forward", {first, reals({7, 3}), 2.0, 2}},
      {"aten::_cdist_backward", {reals({4, 5, 7}), first, second, 2.0, between}},
  };
  examples.insert(examples.end(), others.begin(), others.end());
  return examples;
}

}  // namespace epl::testing

// Operators that are not cut: each device runs them whole, on what it has. A name without an
// overload stands for all overloads that have no row of their own.
#include "ops/rules.h"

namespace epl {

Rules whole_rules() {
  static const OperatorRow rows[] = {
      // Products.
      {"aten::addbmm", in_lower()},
      {"aten::convolution_overrideable", in_lower().convolves(0, 6, 1)},
      {"aten::convolution_backward_overrideable", in_lower().convolves(1, 7, 2)},

      // Made of others, so that a graph has those. Mixed precision casts what they read: a weight,
      // not each view of it; and LibTorch 1 compares the types of a convolution before it goes on.
      {"aten::linear", in_lower()},
      {"aten::conv1d", in_lower()},
      {"aten::conv2d", in_lower()},
      {"aten::conv3d", in_lower()},

      // Distances of many rows: a root of differences of products, which loses all bits in less.
      {"aten::_euclidean_dist", in_float32()},

      // By indices, and what changes some elements.
      {"aten::select_copy", in_widest().gathers()},
      {"aten::embedding_bag", in_widest().gathers()},
      {"aten::masked_scatter", in_widest().changes_some()},

      // Memory.
      {"aten::as_strided", in_widest().view()},
      {"aten::as_strided_scatter", in_widest()},
      {"aten::empty_strided", in_widest().uninitialized()},
      {"aten::new_empty_strided", in_widest().uninitialized()},
      {"aten::_sparse_coo_tensor_with_dims_and_tensors", in_widest()},
      {"aten::to_dense", in_widest()},

      // Random numbers.
      {"aten::normal", in_widest().seconds_each(10e-9).draws()},
      {"aten::random", in_widest().draws()},
      {"aten::randperm", in_widest().draws_by_overload("generator", 1)},
      {"aten::randint_like.low_dtype",
       in_widest().draws_by_filling("aten::random", "from", 2, 0, 0)},
      {"aten::_fused_dropout", in_widest().draws()},

      // Numbers that count or are asked for.
      {"aten::_local_scalar_dense", in_widest()},
      {"aten::aminmax", in_widest()},
      {"aten::arange", in_widest()},
      {"aten::equal", in_widest()},
      {"aten::scalar_tensor", in_widest()},

      // EPL's own: over the devices of a group, and parts of operators whose classes are cut.
      {"epl::all_reduce", in_widest().collective().pointwise()},
      {"epl::broadcast", in_widest().collective()},
      {"epl::all_gather", in_widest().collective()},
      {"epl::reduce_scatter", in_widest().collective()},
      {"epl::all_to_all", in_widest().collective()},
      {"epl::own_piece", in_widest()},
      {"epl::own_addend", in_widest()},
      {"epl_rows::sum_exp", in_float32()},
      {"epl_rows::log_softmax", in_float32().pointwise()},
      {"epl_rows::log_softmax_backward", in_float32().pointwise()},
      {"epl_rows::index_in_piece", in_widest()},
  };
  return rows;
}

}  // namespace epl

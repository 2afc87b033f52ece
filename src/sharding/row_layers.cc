// Losses and norms, and operators without a rule that keep rows apart.
#include <ATen/core/Reduction.h>

#include <algorithm>
#include <map>

#include "ops/rule_parts.h"
#include "sharding/row_node.h"

namespace epl {
namespace {

using Kinds = std::vector<RowKind>;

// Whatever else it does, rows in one of its leading dimensions stand for themselves, in the first
// tensor, in others that have rows in the same dimension, and in all results. The number is that of
// the dimensions at the end that it works on; kFirst: rows are in dimension 0.
constexpr int kFirst = -1;
const std::map<std::string, int> kKeepsRows = {
    {"aten::convolution", kFirst},
    {"aten::_convolution", kFirst},
    {"aten::mkldnn_convolution", kFirst},
    {"aten::prelu", kFirst},
    {"aten::rrelu_with_noise", 0},
    {"aten::grid_sampler_2d", kFirst},
    {"aten::grid_sampler_3d", kFirst},
    {"aten::im2col", kFirst},
    {"aten::col2im", kFirst},
    {"aten::channel_shuffle", kFirst},
    {"aten::pixel_shuffle", 3},
    {"aten::pixel_unshuffle", 3},
    {"aten::adaptive_avg_pool2d", 2},
    {"aten::mkldnn_adaptive_avg_pool2d", 2},
    {"aten::_adaptive_avg_pool2d", 2},
    {"aten::_adaptive_avg_pool3d", 3},
    {"aten::adaptive_max_pool3d", 3},
    {"aten::fractional_max_pool2d", kFirst},
    {"aten::upsample_linear1d", 1},
    {"aten::upsample_nearest1d", 1},
    {"aten::upsample_nearest2d", 2},
    {"aten::upsample_nearest3d", 3},
    {"aten::upsample_bilinear2d", 2},
    {"aten::upsample_bicubic2d", 2},
    {"aten::upsample_trilinear3d", 3},
    {"aten::_upsample_nearest_exact1d", 1},
    {"aten::_upsample_nearest_exact2d", 2},
    {"aten::_upsample_bilinear2d_aa", 2},
    {"aten::reflection_pad1d", 1},
    {"aten::reflection_pad3d", 3},
    {"aten::replication_pad1d", 1},
    {"aten::replication_pad3d", 3},
    {"aten::_cdist_forward", 2},
    {"aten::linalg_cholesky_ex", 2},
    {"aten::linalg_inv_ex", 2},
    {"aten::linalg_solve_triangular", 2},
    {"aten::triangular_solve", 2},
    {"aten::_linalg_det", 2},
    {"aten::_linalg_solve_ex", 2},
    {"aten::linalg_cross", 1},
    {"aten::isin", 0},
    {"aten::complex", 0},
    {"aten::polar", 0},
    {"aten::view_as_real", 0},
    {"aten::view_as_complex", 1},
    {"aten::_conj", 0},
    {"aten::_conj_physical", 0},
    {"aten::angle", 0},
    {"aten::special_entr", 0},
    {"aten::multinomial", 1},
    {"aten::poisson", 0},
    {"aten::binomial", 0},
    {"aten::_standard_gamma", 0},
    {"aten::_sample_dirichlet", 1},
    {"aten::max_unpool2d", kFirst},
    {"aten::bucketize", 0},
};

RowOutcome kept_rows(const RowNode& at, int trailing) {
  const auto ids = inputs_of(at.node);
  std::optional<RowKind> rows;
  for (size_t i = 0; i < ids.size(); ++i) {
    const RowKind& kind = at.inputs[i];
    if (kind.is_same() && kind.power == 0) continue;
    const auto rank = static_cast<int>(sizes_of(at.graph, ids[i]).size());
    const bool leads = kind.is_rows() && kind.power == 0 &&
                       (trailing == kFirst ? kind.dim == 0 : kind.dim < rank - trailing);
    if (!leads) return std::string("does not keep rows apart there");
    const bool alike = !rows || (rows->dim == kind.dim && rows->outer == kind.outer);
    if (!alike) return std::string("reads rows that lie in different ways");
    rows = kind;
  }
  return for_all_outputs(at, rows.value_or(RowKind::same()));
}

// --- losses that divide by what counts ---------------------------------------------------------

// nll_loss_forward(self, target, weight?, reduction, ignore_index) -> (output, total_weight)
std::optional<RowOutcome> nll(const RowNode& at) {
  const RowKind& self = at.inputs[0];
  const int64_t reduction = int_at(at.node, 3);
  const bool weighted = has_tensor(at.node, 2);
  if (!self.is_rows()) return std::nullopt;
  const RowKind& target = at.inputs[1];
  const bool alike = target.is_rows() && (target.outer == self.outer || target.outer == 0);
  const bool by_class = self.dim == 1 || (weighted && !at.inputs[2].is_same());
  if (!alike || by_class || self.power != 0) return std::string("reads rows in another order");
  if (reduction == at::Reduction::None) {
    const int dim = self.dim == 0 ? 0 : self.dim - 1;  // without the classes
    return Kinds{RowKind::rows(dim, self.outer), RowKind::same()};
  }
  if (reduction == at::Reduction::Sum) {
    const int64_t targets = at.graph.value(inputs_of(at.node)[1]).type.numel();
    const bool square = targets == at.rows * at.rows;
    return Kinds{RowKind::sum(0, targets, square), RowKind::sum()};
  }
  if (weighted) {
    return std::string(
        "divides by the weights of its rows, which are others on each device (reduction kSum, "
        "divided by the number of rows, does not)");
  }
  return Kinds{RowKind::sum(-1), RowKind::sum()};
}

// In training mode it normalises over the rows of its device, which is by intention.
std::optional<RowOutcome> batch_norm(const RowNode& at) {
  const RowKind& rows = at.inputs[0];
  if (!at.node.arguments[5].constant.toBool() || !rows.is_rows() || rows.dim == 1) {
    return std::nullopt;
  }
  const bool others_same = std::all_of(at.inputs.begin() + 1, at.inputs.end(),
                                       [](const RowKind& kind) { return kind.is_same(); });
  if (rows.power != 0 || !others_same) return std::string("is scaled by something that has rows");
  // Its statistics are for backward alone.
  return Kinds{rows, RowKind::sum(-1), RowKind::sum(-1)};
}

// mkldnn_rnn_layer(input [time, rows, features], two weights, two biases, state and cell, which end
// with [rows, features], ...) -> (output, state, cell, workspace). The workspace is of the kernel's
// own making: its size grows with the rows in the kernel's own way, and only its backward reads it.
std::optional<RowOutcome> recurrent_layer(const RowNode& at) {
  if (std::none_of(at.inputs.begin(), at.inputs.end(),
                   [](const RowKind& kind) { return kind.is_rows(); })) {
    return std::nullopt;
  }
  const auto ids = inputs_of(at.node);
  std::vector<int> dims;
  int64_t outer = 0;
  for (size_t i : {0, 5, 6}) {
    const RowKind& kind = at.inputs[i];
    dims.push_back(static_cast<int>(sizes_of(at.graph, ids[i]).size()) - 2);
    const bool alike = outer == 0 || kind.outer == 0 || kind.outer == outer;
    if (!kind.is_rows() || kind.dim != dims.back() || kind.power != 0 || !alike) {
      return std::string("does not keep rows apart there");
    }
    outer = std::max(outer, kind.outer);
  }
  for (size_t i : {1, 2, 3, 4}) {
    const RowKind& kind = at.inputs[i];
    if (!kind.is_same() || kind.power != 0) return std::string("has weights that depend on rows");
  }
  Kinds kinds;
  for (int dim : dims) kinds.push_back(RowKind::rows(dim, outer));
  kinds.resize(outputs_of(at.node).size());
  return kinds;
}

// embedding(weight, indices, padding_idx, scale_grad_by_freq, sparse)
std::optional<RowOutcome> embedding(const RowNode& at) {
  if (!at.node.arguments[3].constant.toBool() || !at.inputs[1].is_rows()) return std::nullopt;
  return std::string("scales gradients by how often a number comes in the whole batch");
}

std::optional<RowOutcome> count_nonzero(const RowNode& at) {
  const RowKind& rows = at.inputs[0];
  if (!rows.is_rows() || rows.power != 0) return std::nullopt;
  const size_t rank = input_sizes(at.graph, at.node, 0).size();
  auto dims = wrap_dims(ints_at(at.node, 1), rank);
  const auto row = static_cast<size_t>(rows.dim);
  if (dims.empty() || std::count(dims.begin(), dims.end(), row) != 0) return Kinds{RowKind::sum()};
  const auto before = std::count_if(dims.begin(), dims.end(), [&](size_t d) { return d < row; });
  return Kinds{RowKind::rows(rows.dim - static_cast<int>(before), rows.outer)};
}

}  // namespace

std::optional<RowOutcome> rows_of_layer(const RowNode& at) {
  if (at.inputs.empty()) return std::nullopt;
  const std::string name = op_name(at.node);
  if (name == "aten::nll_loss_forward" || name == "aten::nll_loss2d_forward") return nll(at);
  if (name == "aten::native_batch_norm") return batch_norm(at);
  if (name == "aten::mkldnn_rnn_layer") return recurrent_layer(at);
  if (name == "aten::embedding") return embedding(at);
  const std::string& base = at.node.op.operator_name().name;
  if (base == "aten::count_nonzero") return count_nonzero(at);
  const auto keeps = kKeepsRows.find(base);
  const bool has_rows = std::any_of(at.inputs.begin(), at.inputs.end(),
                                    [](const RowKind& kind) { return kind.is_rows(); });
  if (keeps == kKeepsRows.end() || !has_rows || pattern_of(at.graph, at.node)) return std::nullopt;
  return kept_rows(at, keeps->second);
}

}  // namespace epl

// Views and tensors that are put together, taken apart or made: a dimension that holds the rows may
// hold others as well, [outer, rows, inner] in this order.
#include <algorithm>
#include <numeric>
#include <set>

#include "ops/rule_parts.h"
#include "sharding/row_node.h"

namespace epl {
namespace {

using Kinds = std::vector<RowKind>;

const std::string& base_name(const Node& node) { return node.op.operator_name().name; }

bool is_one_of(const Node& node, const std::set<std::string>& names) {
  return names.count(base_name(node)) != 0;
}

std::optional<int64_t> optional_int(const Node& node, size_t argument) {
  const c10::IValue& constant = node.arguments[argument].constant;
  return constant.isInt() ? std::optional(constant.toInt()) : std::nullopt;
}

int64_t outer_of(const RowKind& kind) { return std::max<int64_t>(kind.outer, 1); }

// Elements of a dimension in which each row has its part once.
int64_t block_of(const Graph& graph, ValueId id, const RowKind& kind) {
  return sizes_of(graph, id)[static_cast<size_t>(kind.dim)] / outer_of(kind);
}

// Rows that can be counted in its first tensor: a batch may be empty, and so may be one of its
// tensors.
bool first_has_rows(const RowNode& at) {
  return at.rows > 0 && at.inputs[0].is_rows() &&
         at.graph.value(tensor_at(at.node, 0)).type.numel() > 0;
}

// --- tensors from nothing ----------------------------------------------------------------------

const std::set<std::string> kMakers = {"aten::zeros",        "aten::ones",
                                       "aten::full",         "aten::empty",
                                       "aten::new_zeros",    "aten::new_ones",
                                       "aten::new_full",     "aten::new_empty",
                                       "aten::zeros_like",   "aten::ones_like",
                                       "aten::full_like",    "aten::empty_like",
                                       "aten::rand",         "aten::randn",
                                       "aten::randint",      "aten::empty_strided",
                                       "aten::rand_like",    "aten::randn_like",
                                       "aten::randint_like", "aten::scalar_tensor",
                                       "aten::zero",         "aten::new_empty_strided"};

// The tensor that one is like tells which of its dimensions holds the rows, where sizes may not.
RowOutcome made(const RowNode& at) {
  const bool like_rows = !at.inputs.empty() && at.inputs[0].is_rows() &&
                         base_name(at.node).find("_like") != std::string::npos;
  const int dim = like_rows ? at.inputs[0].dim : dim_of_rows(at, outputs_of(at.node)[0]);
  RowKind kind = dim == kNone ? RowKind::same() : RowKind::rows(dim, 0);
  kind.zero = base_name(at.node).find("zero") != std::string::npos;
  return Kinds{kind};
}

std::optional<RowOutcome> arange(const RowNode& at) {
  const int dim = dim_of_rows(at, outputs_of(at.node)[0]);
  if (dim == kNone) return std::nullopt;
  const auto start = argument_named(at.node, "start");
  const auto step = argument_named(at.node, "step");
  const auto is = [&](std::optional<size_t> argument, int number) {
    return !argument || at.node.arguments[*argument].constant.toScalar().equal(number);
  };
  if (!is(start, 0) || !is(step, 1)) return std::string("counts the rows");
  return Kinds{RowKind::numbers()};
}

// --- views -------------------------------------------------------------------------------------

// In the order of elements a value is [before, rows, behind], and a view keeps that order.
std::optional<RowOutcome> view(const RowNode& at) {
  const RowKind kind = at.inputs[0];
  if (!first_has_rows(at)) return std::nullopt;
  const Sizes& from = input_sizes(at.graph, at.node, 0);
  const Sizes& to = sizes_of(at.graph, outputs_of(at.node)[0]);
  const int64_t before =
      std::accumulate(from.begin(), from.begin() + kind.dim, outer_of(kind), std::multiplies<>());
  int64_t prefix = 1;
  for (size_t dim = 0; dim < to.size() && prefix <= before; prefix *= to[dim++]) {
    const int64_t outer = before / prefix;
    if (before % prefix != 0 || to[dim] % (outer * at.rows) != 0) continue;
    return Kinds{RowKind::rows(static_cast<int>(dim), outer, kind.power)};
  }
  return std::string("shows the rows so that those of a slice do not stay together");
}

std::optional<RowOutcome> expand(const RowNode& at) {
  if (!at.inputs[0].is_same()) return std::nullopt;
  const int dim = dim_of_rows(at, outputs_of(at.node)[0]);
  if (dim == kNone) return std::nullopt;
  return Kinds{RowKind::rows(dim, 0, at.inputs[0].power)};
}

std::optional<RowOutcome> repeat(const RowNode& at) {
  const RowKind& kind = at.inputs[0];
  const Sizes& from = input_sizes(at.graph, at.node, 0);
  const Sizes repeats = ints_at(at.node, 1);
  const size_t added = repeats.size() - from.size();
  const int dim = dim_of_rows(at, outputs_of(at.node)[0]);
  if (kind.is_same() && dim != kNone) {
    const auto place = static_cast<size_t>(dim);
    const bool alike = place < added || from[place - added] == 1;
    return Kinds{RowKind::rows(dim, alike ? 0 : 1, kind.power)};
  }
  if (!kind.is_rows()) return std::nullopt;
  const size_t place = static_cast<size_t>(kind.dim) + added;
  return Kinds{RowKind::rows(static_cast<int>(place), kind.outer * repeats[place], kind.power)};
}

std::optional<RowOutcome> slice(const RowNode& at) {
  const RowKind& kind = at.inputs[0];
  if (!first_has_rows(at)) return std::nullopt;
  const Sizes& sizes = input_sizes(at.graph, at.node, 0);
  const size_t dim = wrap_dim(int_at(at.node, 1), sizes.size());
  if (dim != static_cast<size_t>(kind.dim)) return Kinds{kind};
  const int64_t size = sizes[dim];
  const int64_t start = optional_int(at.node, 2).value_or(0);
  const int64_t from = std::clamp<int64_t>(start < 0 ? start + size : start, 0, size);
  const int64_t taken = sizes_of(at.graph, outputs_of(at.node)[0])[dim];
  const int64_t block = block_of(at.graph, tensor_at(at.node, 0), kind);
  const bool blocks =
      from % block == 0 && taken % block == 0 && taken > 0 && int_at(at.node, 4) == 1;
  if (!blocks) return std::string("takes some rows of the whole batch");
  return Kinds{RowKind::rows(kind.dim, kind.outer == 0 ? 0 : taken / block, kind.power)};
}

// --- taken apart and put together --------------------------------------------------------------

std::optional<RowOutcome> split(const RowNode& at) {
  const RowKind& kind = at.inputs[0];
  const size_t rank = input_sizes(at.graph, at.node, 0).size();
  const size_t dim = wrap_dim(int_at(at.node, *argument_named(at.node, "dim")), rank);
  if (!first_has_rows(at) || dim != static_cast<size_t>(kind.dim)) return std::nullopt;
  const int64_t block = block_of(at.graph, tensor_at(at.node, 0), kind);
  Kinds kinds;
  for (ValueId id : outputs_of(at.node)) {
    const int64_t taken = sizes_of(at.graph, id)[dim];
    if (taken % block != 0) return std::string("cuts the rows of the whole batch");
    kinds.push_back(RowKind::rows(kind.dim, taken / block, kind.power));
  }
  return kinds;
}

// Halves of a batch, one behind the other: real and generated images, two views of each sample.
std::optional<RowOutcome> cat(const RowNode& at) {
  const auto ids = inputs_of(at.node);
  const size_t rank = sizes_of(at.graph, outputs_of(at.node)[0]).size();
  const size_t dim = wrap_dim(int_at(at.node, *argument_named(at.node, "dim")), rank);
  std::optional<int64_t> block;
  int64_t outer = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (sizes_of(at.graph, ids[i]) == Sizes{0}) continue;  // an empty one fits any
    const RowKind& kind = at.inputs[i];
    if (!kind.is_rows() || static_cast<size_t>(kind.dim) != dim) return std::nullopt;
    const int64_t own = block_of(at.graph, ids[i], kind);
    if (block.value_or(own) != own || kind.power != at.inputs[0].power) {
      return std::string("puts tensors with different numbers of rows one behind the other");
    }
    block = own;
    outer += outer_of(kind);
  }
  if (!block) return std::nullopt;
  return Kinds{RowKind::rows(static_cast<int>(dim), outer, at.inputs[0].power)};
}

// --- by row number -----------------------------------------------------------------------------

// x[arange(rows), labels]: one element of each row.
struct ByNumber {
  size_t dim = 0;    // that the row numbers count
  size_t place = 0;  // of the rows in what is picked
};

std::optional<ByNumber> picked_by_number(const RowNode& at) {
  const auto& indices = at.node.arguments[1].values;
  ByNumber found;
  bool has_numbers = false;
  size_t input = 1;
  std::optional<size_t> first;
  size_t last = 0;
  size_t count = 0;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] == kNoValue) continue;
    const RowKind& kind = at.inputs[input++];
    const bool numbers = kind.kind == RowKind::Kind::kNumbers;
    const bool fits = numbers ? !has_numbers : kind.is_same() || (kind.is_rows() && kind.dim == 0);
    if (!fits || sizes_of(at.graph, indices[i]).size() > 1) return std::nullopt;
    if (numbers) found.dim = i;
    has_numbers |= numbers;
    first = first.value_or(i);
    last = i;
    ++count;
  }
  if (!has_numbers) return std::nullopt;
  found.place = last - *first + 1 == count ? *first : 0;
  const RowKind& self = at.inputs[0];
  const bool rows = self.is_rows() && self.dim == static_cast<int>(found.dim) && self.outer <= 1;
  return rows ? std::optional(found) : std::nullopt;
}

std::optional<RowOutcome> index(const RowNode& at) {
  const auto found = picked_by_number(at);
  if (!found) return std::nullopt;
  return Kinds{RowKind::rows(static_cast<int>(found->place), 1, at.inputs[0].power)};
}

// x[mask] = number, with a mask of the same rows and nothing else that counts.
bool puts_by_mask(const RowNode& at) {
  const RowKind& self = at.inputs[0];
  const RowKind& mask = at.inputs[1];
  const RowKind& put = at.inputs.back();
  const auto& indices = at.node.arguments[1].values;
  if (at.inputs.size() != 3 || indices.empty() || indices[0] == kNoValue) return false;
  const bool masks = at.graph.value(indices[0]).type.dtype == c10::ScalarType::Bool;
  const bool same_rows = self.is_rows() && mask.is_rows() && self.dim == mask.dim &&
                         (self.outer == mask.outer || mask.outer == 0) && self.power == 0;
  return masks && same_rows && put.is_same() && put.power == 0 &&
         sizes_of(at.graph, inputs_of(at.node).back()).size() <= 1 &&
         at.graph.value(inputs_of(at.node).back()).type.numel() == 1;
}

std::optional<RowOutcome> index_put(const RowNode& at) {
  if (puts_by_mask(at)) return Kinds{at.inputs[0]};
  const auto found = picked_by_number(at);
  if (!found) return std::nullopt;
  const RowKind& put = at.inputs.back();
  const bool fits = put.power == at.inputs[0].power &&
                    (put.is_same() || (put.is_rows() && put.dim == static_cast<int>(found->place)));
  if (!fits) return std::nullopt;
  return Kinds{RowKind::rows(at.inputs[0].dim, 1, put.power)};
}

// masked_select(self, mask) that took all: the shape of its result is guarded, so that it does so
// in every step. Elements keep their order.
std::optional<RowOutcome> masked_select(const RowNode& at) {
  const RowKind& self = at.inputs[0];
  const RowKind& mask = at.inputs[1];
  const auto ids = inputs_of(at.node);
  const Sizes& sizes = sizes_of(at.graph, ids[0]);
  const int64_t taken = at.graph.value(outputs_of(at.node)[0]).type.numel();
  const bool all =
      sizes == sizes_of(at.graph, ids[1]) && taken == at.graph.value(ids[0]).type.numel();
  const bool alike =
      self.is_rows() &&
      (mask.is_same() || (mask.is_rows() && mask.dim == self.dim && mask.outer == self.outer));
  if (!all || !alike || mask.power != 0) return std::nullopt;
  const int64_t before =
      std::accumulate(sizes.begin(), sizes.begin() + self.dim, outer_of(self), std::multiplies<>());
  return Kinds{RowKind::rows(0, before, self.power)};
}

// --- places in memory --------------------------------------------------------------------------

// Where the rows of `from` come out in a tensor of other sizes and strides over its memory; kNone
// where a row of it shows elements of other rows.
int strided_rows(const TensorType& from, int dim, const Sizes& sizes, const Sizes& strides,
                 int64_t offset) {
  if (!from.dense() || from.offset != 0 || from.sizes.empty()) return kNone;
  const int64_t stride = from.strides[static_cast<size_t>(dim)];
  const int64_t length = from.sizes[static_cast<size_t>(dim)];
  int64_t inside = offset % stride;
  int found = kNone;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 1) continue;
    if (strides[i] == stride && sizes[i] == length && found == kNone) {
      found = static_cast<int>(i);
    } else if (strides[i] < stride) {
      inside += (sizes[i] - 1) * strides[i];
    } else if (strides[i] % (stride * length) != 0) {
      return kNone;
    }
  }
  const bool begins = offset / stride % length == 0;
  return begins && inside < stride ? found : kNone;
}

// as_strided(self, size, stride, offset?), as_strided_scatter(self, src, size, stride, offset?)
std::optional<RowOutcome> as_strided(const RowNode& at) {
  const bool scatters = base_name(at.node) == "aten::as_strided_scatter";
  const size_t sizes = scatters ? 2 : 1;
  const RowKind& self = at.inputs[0];
  if (!first_has_rows(at)) return std::nullopt;
  const TensorType& type = at.graph.value(tensor_at(at.node, 0)).type;
  const int dim =
      self.outer <= 1
          ? strided_rows(type, self.dim, ints_at(at.node, sizes), ints_at(at.node, sizes + 1),
                         optional_int(at.node, sizes + 2).value_or(type.offset))
          : kNone;
  if (dim == kNone) return std::string("shows places in memory that are not of one row");
  if (!scatters) return Kinds{RowKind::rows(dim, self.outer, self.power)};
  const RowKind& put = at.inputs[1];
  const bool fits = put.power == self.power &&
                    (put.is_same() || (put.is_rows() && put.dim == dim && put.outer <= 1));
  if (!fits) return std::string("writes something else than its row into a row");
  return Kinds{RowKind::rows(self.dim, 1, self.power)};
}

}  // namespace

std::optional<RowOutcome> rows_of_shape(const RowNode& at) {
  if (is_one_of(at.node, kMakers)) return made(at);
  if (base_name(at.node) == "aten::arange") return arange(at);
  if (at.inputs.empty()) return std::nullopt;
  static const std::set<std::string> views = {"aten::view", "aten::_unsafe_view", "aten::reshape",
                                              "aten::_reshape_alias"};
  static const std::set<std::string> splits = {"aten::split", "aten::split_with_sizes",
                                               "aten::unsafe_split",
                                               "aten::unsafe_split_with_sizes"};
  if (is_one_of(at.node, views)) return view(at);
  if (is_one_of(at.node, splits)) return split(at);
  const std::string name = op_name(at.node);
  if (name == "aten::expand") return expand(at);
  if (name == "aten::repeat") return repeat(at);
  if (name == "aten::slice.Tensor") return slice(at);
  if (name == "aten::cat") return cat(at);
  if (name == "aten::index.Tensor") return index(at);
  if (name == "aten::index_put" || name == "aten::_index_put_impl") return index_put(at);
  if (name == "aten::masked_select") return masked_select(at);
  if (name == "aten::as_strided" || name == "aten::as_strided_scatter") return as_strided(at);
  return std::nullopt;
}

}  // namespace epl

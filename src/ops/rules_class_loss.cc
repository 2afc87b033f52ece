// Losses: nll_loss over cut classes picks on each device what falls into its piece, so that logits
// are never gathered.
#include <ATen/core/Reduction.h>

#include "ops/rule_parts.h"
#include "ops/rules.h"

namespace epl {
namespace {

constexpr int64_t kMean = at::Reduction::Mean;
constexpr int64_t kSum = at::Reduction::Sum;

// nll_loss_forward(self, target, weight?, reduction, ignore_index) -> (output, total_weight).
// `classes` is at 1, or at 0 where there are no rows.
struct NllWords {
  std::string rows;
  std::string self;
};

NllWords nll_words(const Sizes& self) {
  if (self.size() == 1) return {"", "c"};
  const std::string places = letters(self.size() - 2, 'x');
  return {"n" + places, "nc" + places};
}

// A sum over cut rows has its own sum of weights on each device; dividing by it needs that of all.
std::optional<Pattern> nll_forward(const Graph& graph, const Node& node) {
  const NllWords words = nll_words(input_sizes(graph, node, 0));
  const bool none = int_at(node, 3) == at::Reduction::None;
  Pattern pattern;
  pattern.inputs = {words.self, words.rows};
  add_input(pattern, node, 2, "c");
  pattern.outputs = {none ? words.rows : "", ""};
  pattern.same = {"", "c" + words.rows};
  pattern.expanded = none ? "c" : "c" + words.rows;
  return pattern;
}

// Over [N, C, H, W]: by rows only.
std::optional<Pattern> nll2d_forward(const Graph& graph, const Node& node) {
  auto pattern = nll_forward(graph, node);
  pattern->whole = "c";
  return pattern;
}

std::optional<Pattern> nll_backward(const Graph& graph, const Node& node) {
  const NllWords words = nll_words(input_sizes(graph, node, 1));
  const bool none = int_at(node, 4) == at::Reduction::None;
  Pattern pattern;
  pattern.inputs = {none ? words.rows : "", words.self, words.rows};
  add_input(pattern, node, 3, "c");
  pattern.inputs.emplace_back();  // total_weight
  pattern.outputs = {words.self};
  pattern.expanded = "c";
  return pattern;
}

std::optional<Pattern> nll2d_backward(const Graph& graph, const Node& node) {
  auto pattern = nll_backward(graph, node);
  pattern->whole = "c";
  return pattern;
}

// --- cut rows ---------------------------------------------------------------------------------

// As reduction "sum" on each device. The weights of the rows are summed over devices.
std::vector<ValueId> split_rows(const LocalNode& at, Emitter& to) {
  Node local = local_copy(at);
  const bool mean = int_at(local, 3) == kMean;
  set(local, 3, kSum);
  const auto sums = to.add(local, {{}, {}}, at.graph, at.node);
  Expression e(to);
  const ValueId total_weight = e.all_reduce(sums[1], "sum");
  return {mean ? e.binary("aten::div.Tensor", sums[0], total_weight) : sums[0], total_weight};
}

// --- cut classes ------------------------------------------------------------------------------

// The rows whose target falls into the piece of this device.
struct Picked {
  ValueId inside;   // whether it does
  ValueId index;    // [rows, 1]: the class within the piece
  ValueId weights;  // of the rows, kNoValue where all count alike
};

Picked pick(Emitter& to, ValueId target, ValueId weight, const Expression::Range& classes) {
  Expression e(to);
  const auto within = e.within(target, classes);
  Picked picked;
  picked.inside = within.inside;
  const bool has_rows = !e.sizes(target).empty();
  picked.index = e.scalar("aten::unsqueeze", within.index, int64_t{has_rows ? 1 : 0});
  picked.weights = kNoValue;
  if (weight != kNoValue) {
    picked.weights =
        to.call("aten::index.Tensor", {value_argument(weight), list_argument({within.index})});
  }
  return picked;
}

ValueId zero_outside(Expression& e, ValueId x, ValueId inside) {
  return e.binary("aten::mul.Tensor", x, e.converted(inside, e.dtype(x)));
}

std::vector<ValueId> split_classes(const LocalNode& at, Emitter& to) {
  const Node local = local_copy(at);
  const ValueId self = tensor_at(local, 0);
  const ValueId target = tensor_at(local, 1);
  const ValueId weight = has_tensor(local, 2) ? tensor_at(local, 2) : kNoValue;
  const int64_t reduction = int_at(local, 3);
  const int64_t ignored = int_at(local, 4);
  const int64_t dim = input_sizes(at.graph, at.node, 0).size() == 1 ? 0 : 1;

  Expression e(to);
  const Picked picked = pick(to, target, weight, {shard_of_input(at, 0), ignored});
  ValueId x = to.call("aten::gather",
                      {value_argument(self), constant_argument(dim), value_argument(picked.index)});
  x = e.unary("aten::neg", e.scalar("aten::squeeze.dim", x, dim));
  ValueId weights = kNoValue;
  if (weight != kNoValue) {
    weights = zero_outside(e, picked.weights, picked.inside);
    x = e.binary("aten::mul.Tensor", x, picked.weights);
  }
  // Not a product: outside there may stand an infinite number.
  x = e.zero_where(e.unary("aten::bitwise_not", picked.inside), x);

  ValueId total_weight;
  if (reduction == at::Reduction::None) {
    total_weight = e.unary("aten::zeros_like", e.unary("aten::sum", x));
    return {x, total_weight};
  }
  if (weight != kNoValue) {
    total_weight = e.all_reduce(e.unary("aten::sum", weights), "sum");
  } else {
    const ValueId counts = e.scalar("aten::ne.Scalar", target, ignored);
    total_weight = e.unary("aten::sum", e.converted(counts, e.dtype(self)));
  }
  const ValueId sum = e.unary("aten::sum", x);
  return {reduction == kMean ? e.binary("aten::div.Tensor", sum, total_weight) : sum, total_weight};
}

std::vector<ValueId> split_nll(const LocalNode& at, Emitter& to) {
  return at.cut.letter == 'c' ? split_classes(at, to) : split_rows(at, to);
}

// nll_loss_backward(grad, self, target, weight?, reduction, ignore_index, total_weight)
std::vector<ValueId> split_nll_backward(const LocalNode& at, Emitter& to) {
  const Node local = local_copy(at);
  const ValueId self = tensor_at(local, 1);
  const ValueId target = tensor_at(local, 2);
  const ValueId weight = has_tensor(local, 3) ? tensor_at(local, 3) : kNoValue;
  const int64_t dim = input_sizes(at.graph, at.node, 1).size() == 1 ? 0 : 1;

  Expression e(to);
  const Picked picked = pick(to, target, weight, {shard_of_input(at, 1), int_at(local, 5)});
  ValueId gradient = e.unary("aten::neg", tensor_at(local, 0));
  if (int_at(local, 4) == kMean) {
    gradient = e.binary("aten::div.Tensor", gradient, tensor_at(local, 6));
  }
  if (weight != kNoValue) gradient = e.binary("aten::mul.Tensor", gradient, picked.weights);
  gradient = zero_outside(e, gradient, picked.inside);
  gradient = e.scalar("aten::unsqueeze", gradient, dim);
  return {to.call("aten::scatter.src",
                  {value_argument(e.unary("aten::zeros_like", self)), constant_argument(dim),
                   value_argument(picked.index), value_argument(gradient)})};
}

}  // namespace

Rules class_loss_rules() {
  constexpr Linear kNo = Linear::kNo;
  constexpr Linear kFirst = Linear::kFirst;
  static const OperatorRow rows[] = {
      // operator, facts, inputs, outputs, linear, pattern, localize, expand
      {"aten::nll_loss_forward", in_float32(), "", "", kNo, nll_forward, nullptr, split_nll},
      {"aten::nll_loss_backward", in_float32(), "", "", kFirst, nll_backward, nullptr,
       split_nll_backward},
      {"aten::nll_loss2d_forward", in_float32(), "", "", kNo, nll2d_forward, nullptr, split_nll},
      {"aten::nll_loss2d_backward", in_float32(), "", "", kFirst, nll2d_backward},
  };
  return rows;
}

}  // namespace epl

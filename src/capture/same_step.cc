#include "capture/same_step.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "base/text.h"
#include "ops/facts.h"

namespace epl {
namespace {

std::string place_of(const Node& node) {
  return node.phase == Phase::kForward ? op_name(node) : op_name(node) + " of the backward pass";
}

bool same_constant(const c10::IValue& a, const c10::IValue& b) {
  if (a.isGenerator() && b.isGenerator()) return a.toGenerator() == b.toGenerator();
  if (a.isDouble() && b.isDouble() && a.toDouble() != a.toDouble()) {
    return b.toDouble() != b.toDouble();
  }
  return a.tagKind() == b.tagKind() && a == b;
}

std::string arguments_differ(const Node& before, const Node& now) {
  for (size_t i = 0; i < before.arguments.size(); ++i) {
    const Argument& a = before.arguments[i];
    const Argument& b = now.arguments[i];
    const std::string name = before.op.schema().arguments()[i].name();
    if (a.kind != b.kind || a.values != b.values) {
      return concat(place_of(now), " reads another tensor as `", name, "` than before");
    }
    if (a.kind != Argument::Kind::kConstant || same_constant(a.constant, b.constant)) continue;
    if (a.constant.isGenerator() && b.constant.isGenerator()) {
      return concat(place_of(now), " draws from another generator than before");
    }
    return concat("`", name, "` of ", place_of(now), " is ", b.constant, " and was ", a.constant,
                  " before");
  }
  return "";
}

// What C++ read back there is not what it was: from here on the two may differ, and a replay will
// see that they do.
bool guard_tells(const Graph& first, const Graph& second, size_t i) {
  const Node& before = first.nodes[i];
  const Node& now = second.nodes[i];
  if (before.expects && now.expects && !same_constant(*before.expects, *now.expects)) return true;
  if (values_that_decide_shape(first, before).empty()) return false;
  bool other_shape = false;
  for (size_t result = 0; result < before.results.size(); ++result) {
    const ValueId id = before.results[result].values[0];
    const ValueId other = now.results[result].values[0];
    other_shape |= id != kNoValue && other != kNoValue &&
                   first.value(id).type.sizes != second.value(other).type.sizes;
  }
  return other_shape;
}

// A number with a fraction is another one in every step, and the guard would fail in every step.
bool reads_fraction(const Node& node) { return node.expects && node.expects->isDouble(); }

std::string first_reader(const Graph& graph, ValueId storage) {
  for (const Node& node : graph.nodes) {
    bool reads = false;
    for_each_input(node, [&](ValueId id) { reads |= graph.value(id).storage == storage; });
    if (reads) return place_of(node);
  }
  return "its result";
}

bool same_memory(const at::Tensor& a, const at::Tensor& b) {
  if (a.layout() != c10::kStrided || b.layout() != c10::kStrided) return a.is_same(b);
  return a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl() &&
         a.storage_offset() == b.storage_offset();
}

bool same_contents(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  if (a.layout() != b.layout()) return false;
  if (a.layout() != c10::kStrided) return a.to_dense().equal(b.to_dense());
  // Bits, so that a NaN equals itself.
  const at::Tensor left = a.contiguous().reshape({-1});
  const at::Tensor right = b.contiguous().reshape({-1});
  return left.numel() == 0 || left.view(at::kByte).equal(right.view(at::kByte));
}

std::string contents_of(const at::Tensor& tensor) {
  if (tensor.numel() != 1 || tensor.layout() != c10::kStrided) return "";
  std::ostringstream out;
  out << tensor.item();
  return out.str();
}

std::string constants_differ(const Graph& first, const Graph& second) {
  for (size_t i = 0; i < first.leaves.size(); ++i) {
    const Leaf& a = first.leaves[i];
    const Leaf& b = second.leaves[i];
    if (a.kind != b.kind || a.value != b.value) {
      return concat(first_reader(second, second.value(b.value).storage),
                    " reads another kind of tensor than before");
    }
    if (a.kind != Leaf::Kind::kConstant || same_memory(a.tensor, b.tensor)) continue;
    if (same_contents(a.tensor, b.tensor)) continue;
    const std::string reader = first_reader(second, second.value(b.value).storage);
    const std::string now = contents_of(b.tensor);
    const std::string before = contents_of(a.tensor);
    if (!now.empty() && !before.empty()) {
      return concat("a number that C++ gave to ", reader, " is ", now, " and was ", before,
                    " before");
    }
    return concat("a tensor ", print_type(second.value(b.value).type), " that ", reader,
                  " reads holds other numbers than before, and no operator made them: C++ or "
                  "another thread did");
  }
  return "";
}

std::string results_differ(const Graph& first, const Graph& second) {
  const bool same_metrics = std::equal(
      first.metrics.begin(), first.metrics.end(), second.metrics.begin(), second.metrics.end(),
      [](const Metric& a, const Metric& b) { return a.name == b.name && a.value == b.value; });
  if (first.loss != second.loss || !same_metrics) return "it returns other values than before";
  const bool same_gradients =
      std::equal(first.gradients.begin(), first.gradients.end(), second.gradients.begin(),
                 second.gradients.end(), [](const Gradient& a, const Gradient& b) {
                   return a.parameter == b.parameter && a.value == b.value;
                 });
  return same_gradients ? "" : "its loss depends on other parameters than before";
}

}  // namespace

std::string form_of(const Graph& graph) {
  std::ostringstream form;
  for (const Node& node : graph.nodes) {
    form << op_name(node);
    for (const Argument& argument : node.arguments) {
      const bool number = argument.kind == Argument::Kind::kConstant &&
                          (argument.constant.isDouble() || argument.constant.isBool());
      if (number) form << ' ' << argument.constant;
    }
    form << '\n';
  }
  return form.str();
}

Difference difference_between(const Graph& first, const Graph& second) {
  const size_t count = std::min(first.nodes.size(), second.nodes.size());
  for (size_t i = 0; i < count; ++i) {
    const Node& before = first.nodes[i];
    const Node& now = second.nodes[i];
    if (op_name(before) != op_name(now)) {
      return {concat("it does ", place_of(now), " where it did ", place_of(before), " before")};
    }
    if (guard_tells(first, second, i)) {
      if (!reads_fraction(before)) return {};
      return {
          concat("it reads a number back into C++ (", op_name(now), ", as item() does) that is ",
                 *now.expects, " and was ", *before.expects, " before"),
          /*guarded=*/true};
    }
    const std::string arguments = arguments_differ(before, now);
    if (!arguments.empty()) return {arguments};
  }
  if (first.nodes.size() != second.nodes.size()) {
    return {concat("it does ", second.nodes.size(), " operators and did ", first.nodes.size(),
                   " before")};
  }
  if (first.leaves.size() != second.leaves.size()) return {"it reads other tensors than before"};
  const std::string constants = constants_differ(first, second);
  return {constants.empty() ? results_differ(first, second) : constants};
}

}  // namespace epl

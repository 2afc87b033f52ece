// For tests of sharding: small steps, made by hand.
#pragma once

#include <string>
#include <vector>

#include "ops/emit.h"

namespace epl {

// A Graph in the making. Values are float32 unless said otherwise.
class TestGraph {
 public:
  ValueId leaf(Leaf::Kind kind, const std::string& name, std::vector<int64_t> sizes) {
    TensorType type;
    type.strides = contiguous_strides(sizes);
    type.sizes = std::move(sizes);
    type.dtype = c10::ScalarType::Float;
    Leaf leaf;
    leaf.kind = kind;
    leaf.name = name;
    leaf.value = graph.add_value(type);
    graph.leaves.push_back(leaf);
    return leaf.value;
  }
  ValueId input(std::vector<int64_t> sizes) {
    return leaf(Leaf::Kind::kInput, "", std::move(sizes));
  }
  ValueId parameter(const std::string& name, std::vector<int64_t> sizes) {
    return leaf(Leaf::Kind::kParameter, name, std::move(sizes));
  }

  // `call`: the number of the forward operator that it is, or is the backward of.
  ValueId node(const std::string& op, const std::vector<ValueId>& values, int call,
               Phase phase = Phase::kForward, const std::vector<c10::IValue>& constants = {}) {
    std::vector<Argument> arguments;
    for (ValueId id : values) arguments.push_back(value_argument(id));
    for (const auto& constant : constants) arguments.push_back(constant_argument(constant));
    const ValueId made = Emitter(graph).call(op, std::move(arguments));
    graph.nodes.back().phase = phase;
    graph.nodes.back().origin.call = call;
    return made;
  }

  void gradient(ValueId parameter, ValueId value) {
    for (size_t i = 0; i < graph.leaves.size(); ++i) {
      if (graph.leaves[i].value == parameter)
        graph.gradients.push_back({static_cast<int>(i), value});
    }
  }

  Graph graph;
};

// x -> tanh(x * w0') * w1' ... and the sum of all that comes out, with its backward. widths: of the
// batch, of each layer.
inline Graph linear_layers(int64_t rows, const std::vector<int64_t>& widths) {
  TestGraph test;
  const size_t layers = widths.size() - 1;
  std::vector<ValueId> x = {test.input({rows, widths[0]})};
  std::vector<ValueId> weights;
  for (size_t i = 0; i < layers; ++i) {
    weights.push_back(test.parameter("w" + std::to_string(i), {widths[i + 1], widths[i]}));
  }
  int call = 0;
  for (size_t i = 0; i < layers; ++i) {
    const ValueId transposed = test.node("aten::t", {weights[i]}, call++);
    const ValueId y = test.node("aten::mm", {x.back(), transposed}, call++);
    x.push_back(i + 1 < layers ? test.node("aten::tanh", {y}, call++) : y);
  }
  test.graph.loss = test.node("aten::sum", {x.back()}, call);
  ValueId gradient = test.node("aten::ones_like", {x.back()}, call, Phase::kBackward);
  for (size_t i = layers; i-- > 0;) {
    if (i + 1 < layers) {
      gradient = test.node("aten::tanh_backward", {gradient, x[i + 1]}, --call, Phase::kBackward);
    }
    --call;
    const ValueId turned = test.node("aten::t", {gradient}, call, Phase::kBackward);
    test.gradient(weights[i], test.node("aten::mm", {turned, x[i]}, call, Phase::kBackward));
    if (i > 0) gradient = test.node("aten::mm", {gradient, weights[i]}, call, Phase::kBackward);
    --call;
  }
  return std::move(test.graph);
}

}  // namespace epl

// For tests: a step put together by hand, whose operators have the bytes and seconds that a test
// gives them. What they would compute does not matter.
#pragma once

#include <epl/error.h>

#include <string>
#include <vector>

#include "cost/node_cost.h"
#include "ir/graph.h"
#include "plan/stage_cuts.h"

namespace epl {

class TestStep {
 public:
  Graph graph;
  NodeCosts costs;

  ValueId input(int64_t bytes) { return leaf(Leaf::Kind::kInput, "", bytes); }
  ValueId parameter(const std::string& name, int64_t bytes) {
    return leaf(Leaf::Kind::kParameter, name, bytes);
  }
  ValueId state(const std::string& name, int64_t bytes) {
    return leaf(Leaf::Kind::kState, name, bytes);
  }

  // The next forward operator; the user calls each of them unless `inside` says that it is a part
  // of the same call as the one before.
  ValueId forward(const std::vector<ValueId>& reads, int64_t bytes, double seconds,
                  bool inside = false) {
    if (!inside) ++user_calls_;
    return add({"aten::stack", ""}, reads, value(bytes), Phase::kForward, calls_++, seconds);
  }
  ValueId forward_view(ValueId of) {
    ++user_calls_;
    return view(of, Phase::kForward, calls_++);
  }
  // A part of the derivative of forward operator `call`.
  ValueId backward(int call, const std::vector<ValueId>& reads, int64_t bytes, double seconds) {
    return add({"aten::stack", ""}, reads, value(bytes), Phase::kBackward, call, seconds);
  }
  ValueId backward_sum(int call, ValueId a, ValueId b) {
    const ValueId result = graph.add_value(graph.value(a).type);
    return add({"aten::add", "Tensor"}, {a, b}, result, Phase::kBackward, call, 0);
  }
  // Writes over `target`.
  ValueId forward_in_place(ValueId target, double seconds) {
    ++user_calls_;
    const ValueId result = graph.add_value(graph.value(target).type, graph.value(target).storage);
    return add({"aten::relu_", ""}, {target}, result, Phase::kForward, calls_++, seconds);
  }

  int calls() const { return calls_; }

 private:
  static TensorType bytes_type(int64_t bytes) {
    TensorType type;
    type.dtype = c10::ScalarType::Byte;
    type.sizes = {bytes};
    type.strides = {1};
    return type;
  }

  ValueId value(int64_t bytes) { return graph.add_value(bytes_type(bytes)); }

  ValueId leaf(Leaf::Kind kind, const std::string& name, int64_t bytes) {
    Leaf leaf;
    leaf.kind = kind;
    leaf.name = name;
    leaf.value = value(bytes);
    graph.leaves.push_back(leaf);
    return leaf.value;
  }

  ValueId view(ValueId of, Phase phase, int call) {
    const ValueId result = graph.add_value(graph.value(of).type, graph.value(of).storage);
    return add({"aten::t", ""}, {of}, result, phase, call, 0);
  }

  ValueId add(const std::pair<const char*, const char*>& op, const std::vector<ValueId>& reads,
              ValueId result, Phase phase, int call, double seconds) {
    Node node{c10::Dispatcher::singleton().findSchemaOrThrow(op.first, op.second),
              {},
              {Result{false, {result}}},
              phase,
              -1,
              {},
              {call, phase == Phase::kForward ? user_calls_ - 1 : -1, 0}};
    Argument argument;
    argument.kind = reads.size() == 1 ? Argument::Kind::kValue : Argument::Kind::kList;
    argument.values = reads;
    node.arguments = {argument};
    graph.nodes.push_back(std::move(node));
    costs.seconds.push_back(seconds);
    return result;
  }

  int calls_ = 0;
  int user_calls_ = 0;
};

// For most tests transfers cost next to nothing and only the very best pace will do.
inline StageCutsRequest stages(int count, double tolerance = 0) {
  StageCutsRequest request;
  request.stages = count;
  request.micro_batches = 4;
  request.tolerance = tolerance;
  request.optimizer_state = 0;
  request.bytes_per_second = 1e12;  // next to nothing
  return request;
}

inline StageCuts choose(const TestStep& step, const StageCutsRequest& request) {
  return choose_stage_cuts(step.graph, step.costs, request);
}

// What choose() throws, as text.
inline std::string error_of(const TestStep& step, const StageCutsRequest& request) {
  try {
    choose(step, request);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace epl

// Graph: one training step as a list of operators over values.
//
//   graph
//     %0: f32[4,8] = input 0
//     %1: f32[8,8] = parameter "fc.weight"
//     %2: f32[8,8]{1,8} @%1 = aten::t(%1) {forward}
//     %3: f32[4,8] = aten::mm(%0, %2) {forward}
//     %4: f32[] = aten::max(%3) {forward}
//     () = aten::_local_scalar_dense(%4) {forward} expects 0.5
//     ...
//     return loss %9, gradient "fc.weight" %12
//
// A Value is one tensor at one moment. Values that share memory share a storage, which is named by
// the first value that lay in it (`@%1` above: %2 is a view of %1). An operator that writes in
// place gives a new Value on the storage of its argument; after the purify pass none is left but
// the updates of state that outlives the step. Nodes run in the order of the list.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <epl/strategy.h>

#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "layout/layout.h"
#include "layout/shard.h"
#include "layout/tensor_type.h"

namespace epl {

struct Value {
  TensorType type;
  ValueId storage =
      kNoValue;  // the root of its storage; its own id where it shares with none before
};

// What a node reads: tensors of the graph or a constant. A list of tensors keeps undefined members.
struct Argument {
  enum class Kind : uint8_t { kConstant, kValue, kList };

  Kind kind = Kind::kConstant;
  std::vector<ValueId> values;  // kValue: one; kList: any number
  c10::IValue constant;         // kConstant only
};

// What a node makes for one return of its schema. A return that is no tensor makes no values.
struct Result {
  bool is_list = false;
  std::vector<ValueId> values;
};

enum class Phase : uint8_t { kForward, kBackward };

// Where in the recorded run a node comes from. It is not part of the text: two recordings of one
// step print alike, however long they took. A node that takes the place of another one keeps its
// Origin.
struct Origin {
  // How many forward operators ran before this one; a backward node has the number of the forward
  // operator that it is the derivative of. -1: not known.
  int call = -1;
  // The same for what the user's code itself called: all parts of one torch::linear() share it.
  int user_call = -1;
  double seconds = 0;  // that the kernel took in the recorded run
  // What the kernel held there besides its arguments and results, for each byte of these: where a
  // device has a piece of them it needs a piece of that.
  double workspace = 0;
  // The program marked what this node makes, to be kept for backward: collection "checkpoints". A
  // mark keeps nothing alive and goes where the node goes.
  bool marked = false;

  // Of a node that a pass puts beside the recorded one.
  Origin beside() const { return {call, user_call, 0, 0, false}; }
};

struct Node {
  c10::OperatorHandle op;
  std::vector<Argument> arguments;  // one for each argument of the schema
  std::vector<Result> results;      // one for each return of the schema
  Phase phase = Phase::kForward;
  int taskgraph = -1;  // -1: in no scope
  // What the step read back into C++ from this node. The rest of the graph is right only where it
  // gives the same again.
  std::optional<c10::IValue> expects;
  Origin origin = {};
  int chunk = 0;  // of a pipeline: see passes/assign_chunks.h
};

// A tensor that the step reads but does not make.
struct Leaf {
  enum class Kind : uint8_t {
    kInput,      // a tensor of the batch; `index` is its place there
    kSeed,       // the gradient of the loss: 1 / micro batches, or 1
    kParameter,  // trained by an optimizer; `name` is its module path
    kState,      // buffers and parameters that are not trained; `name` is the module path
    kConstant,   // whatever else the step closes over
  };

  Kind kind = Kind::kConstant;
  ValueId value = kNoValue;
  int index = 0;
  std::string name;
  at::Tensor tensor;  // the user's own tensor, not a copy; undefined for inputs and seed
  Shard shard = {};   // on a device that has a part of it; the value has the sizes of the part
};

// Where two stages of a pipeline use a parameter it has a gradient in each of them; else it comes
// once.
struct Gradient {
  int parameter = 0;  // index into leaves
  ValueId value = kNoValue;
};

struct Metric {
  std::string collection;
  std::string name;
  ValueId value = kNoValue;
};

class Graph {
 public:
  ValueId add_value(TensorType type, ValueId storage = kNoValue);
  // For readers of text: gives a value the id that is written there.
  void define_value(ValueId id, TensorType type, ValueId storage);
  const Value& value(ValueId id) const { return values_.at(static_cast<size_t>(id)); }
  Value& value(ValueId id) { return values_.at(static_cast<size_t>(id)); }
  ValueId value_count() const { return static_cast<ValueId>(values_.size()); }

  std::vector<Leaf> leaves;
  std::vector<Node> nodes;
  std::vector<Strategy> taskgraphs;

  ValueId loss = kNoValue;
  std::vector<Metric> metrics;
  std::vector<Gradient> gradients;

 private:
  std::vector<Value> values_;
};

// Calls visit(ValueId&) for each defined value that the node reads / makes.
template <typename NodeLike, typename Visit>
void for_each_input(NodeLike& node, Visit visit) {
  for (auto& argument : node.arguments) {
    for (auto& id : argument.values) {
      if (id != kNoValue) visit(id);
    }
  }
}

template <typename NodeLike, typename Visit>
void for_each_output(NodeLike& node, Visit visit) {
  for (auto& result : node.results) {
    for (auto& id : result.values) {
      if (id != kNoValue) visit(id);
    }
  }
}

// Calls visit(ValueId&) for the loss, the metrics and the gradients.
template <typename GraphLike, typename Visit>
void for_each_returned(GraphLike& graph, Visit visit) {
  visit(graph.loss);
  for (auto& metric : graph.metrics) visit(metric.value);
  for (auto& gradient : graph.gradients) visit(gradient.value);
}

std::string op_name(const Node& node);  // "aten::add.Tensor"

// Bytes of all that it reads and makes, and bytes that its kernel needs besides.
int64_t bytes_of(const Graph& graph, const Node& node);
int64_t workspace_of(const Graph& graph, const Node& node);

}  // namespace epl

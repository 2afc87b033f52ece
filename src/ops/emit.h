// Emitter: appends nodes to a graph and finds out what they make.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace epl {

c10::OperatorHandle find_op(const std::string& name);  // "aten::sum.dim_IntList"

Argument value_argument(ValueId id);
Argument list_argument(std::vector<ValueId> ids);
Argument constant_argument(c10::IValue constant);

class Emitter {
 public:
  explicit Emitter(Graph& graph) : graph_(graph) {}

  Graph& graph() { return graph_; }

  // New nodes have phase, TaskGraph, chunk and origin of this one.
  void stand_for(const Node& node);

  void set_phase(Phase phase) { phase_ = phase; }

  // One tensor comes out. Types are those that LibTorch gives for tensors without contents. The
  // arguments that are left out have their defaults.
  ValueId call(const std::string& op, std::vector<Argument> arguments);

  // The same for an operator that LibTorch cannot run without contents, or that gives other sizes
  // on other devices (epl::reduce_scatter): it makes a contiguous tensor of the element type of its
  // first argument.
  ValueId call_for(const std::string& op, std::vector<Argument> arguments,
                   std::vector<int64_t> sizes);

  // The same for one whose result is of the type of its first argument.
  ValueId call_like(const std::string& op, std::vector<Argument> arguments);

  // The value without gaps between its elements: itself or a copy.
  ValueId dense(ValueId id);
  // The same for the elements of its last dimension alone.
  ValueId dense_rows(ValueId id);
  ValueId contiguous_copy(ValueId id);

  // The node as it is, without results yet. `sizes`: of each output in order (kNoValue ones not
  // counted); strides follow `like`, the types of the outputs where sizes are whole. A view shares
  // the storage of what it shows; a piece that lies so that no view can show it in another shape is
  // copied first, as reshape does.
  std::vector<ValueId> add(Node node, const std::vector<std::vector<int64_t>>& sizes,
                           const Graph& like_graph, const Node& like);

 private:
  Node node_of(const std::string& op, std::vector<Argument> arguments) const;
  ValueId append(Node node, const Value& made);
  std::vector<Value> views_of(Node& node);
  std::vector<Value> written_by(const Node& node, const Graph& like_graph, const Node& like) const;

  Graph& graph_;
  Phase phase_ = Phase::kForward;
  int taskgraph_ = -1;
  int chunk_ = 0;
  Origin origin_ = {};
};

}  // namespace epl

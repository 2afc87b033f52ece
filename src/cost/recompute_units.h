// What a role's Graph gives the chooser to decide (cost/recompute_model.h).
//
//   RecomputeRequest request{graph};
//   const RecomputeModel model = recompute_model(request);
//   ... choice.again[i] is about graph.nodes[model.operations[i].node]
#pragma once

#include <set>
#include <vector>

#include "cost/machine.h"
#include "cost/recompute_model.h"
#include "ir/graph.h"

namespace epl {

struct RecomputeRequest {
  const Graph& graph;
  // Of a pipeline, else empty. By node: the part that it belongs to; -1: it runs elsewhere.
  std::vector<int> part_of_node = {};
  std::vector<RecomputeModel::Part> parts = {RecomputeModel::Part()};
  std::vector<int> in_flight = {1};
  // A value and a part: it is there when the part begins, or is handed on when it has ended.
  struct Handed {
    ValueId value;
    int part;
  };
  std::vector<Handed> given = {};
  std::vector<Handed> taken = {};
  // Gradients of several micro batches are added up outside of what is measured.
  bool keeps_gradients = false;
  // Parameters (leaves) whose gradients go soon after they are made (PlanGradient::Stays).
  std::set<int> short_gradients = {};
  // The last TaskGraph of which something runs again; -1: all of them.
  int end_taskgraph = -1;
  bool keeps_marked = false;  // what the program marked is kept
  Machine machine = {};
  c10::DispatchKey backend = c10::DispatchKey::CPU;
};

// Lifetimes and places to share are those that plan/segment_builder.h will find.
RecomputeModel recompute_model(const RecomputeRequest& request);

}  // namespace epl

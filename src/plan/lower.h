// Lower: a Graph becomes a Plan.
//
// Each value gets a slot. Values that share a storage share a buffer; buffers get places in the
// arena by their lifetimes. Views need no call: their slots are other places in the same buffer. An
// operator writes straight into its slot where LibTorch has an out= kernel for it.
//
// With several micro batches the gradients of the first are kept in buffers of their own and those
// of the others are added as soon as they are made. With several devices the gradients are reduced
// in groups, each of which starts where the last micro batch has made the last of its gradients.
#pragma once

#include "cost/machine.h"
#include "ir/graph.h"
#include "plan/step_end.h"
#include "program/program.h"

namespace epl {

struct LowerOptions {
  int micro_batches = 1;
  int replicas = 1;
  int slices = 1;           // devices of one replica
  int most_reductions = 1;  // groups into which gradients are fused on their way
  StepEndOptions end = {};
  c10::DispatchKey backend = c10::DispatchKey::CPU;
  Machine machine = {};  // for what costs
};

Plan lower(const Graph& graph, const LowerOptions& options);

// A program for each of the devices that operators are cut over, from the graph that it runs.
Plan lower_parts(const std::vector<const Graph*>& parts, const LowerOptions& options);

// Gradients in the order of the graph, cut into at most `groups` runs of about equal bytes.
std::vector<std::vector<int>> cut_into_groups(const std::vector<int64_t>& bytes, int groups);

}  // namespace epl

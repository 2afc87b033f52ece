// Lower: the Graphs of a step become a Plan, a Program for each role.
//
// Each value gets a slot. Values that share a storage share a buffer; buffers get places in the
// arena by their lifetimes. Views need no call: their slots are other places in the same buffer. An
// operator writes straight into its slot where LibTorch has an out= kernel for it.
//
// What runs when is said by a Schedule. That of a step without a pipeline has one kind of task, the
// whole step of a micro batch. In a pipeline each chunk has a forward and a backward task (and one
// for weights, where the schedule splits backward); plan/role_segments.h makes segments of them.
//
// With several micro batches the gradients of the first are kept in buffers of their own and those
// of the others are added as soon as they are made. With several devices the gradients are reduced
// in groups, each of which starts where the last micro batch has made the last of its gradients.
#pragma once

#include <string>
#include <vector>

#include "cost/machine.h"
#include "ir/graph.h"
#include "plan/offload.h"
#include "plan/step_end.h"
#include "plan/zero.h"
#include "program/program.h"

namespace epl {

struct LowerOptions {
  int micro_batches = 1;
  int replicas = 1;
  int most_reductions = 1;     // groups into which gradients are fused on their way
  bool updates_early = false;  // optimizer.update_early
  StepEndOptions end = {};
  ZeroOptions zero = {};
  OffloadOptions offload = {};
  c10::DispatchKey backend = c10::DispatchKey::CPU;
  Machine machine = {};  // for what costs
};

// Whoever runs a Program of its own: the devices of a pipeline stage, or one of them where
// operators are cut over devices.
struct Role {
  const Graph* graph = nullptr;  // recorded with the rows that one of its devices sees
  int devices = 1;               // of one replica
  std::string asked_by = {};     // its scope, for messages
  int stage = 0;                 // in the schedule; several roles can have the same one
  // By value of the whole step: how it lies on the devices, where there are several.
  std::vector<Layout> layouts = {};
};

// `whole`: the step with nodes that are not cut. In a pipeline the graphs of all roles have its
// values under the same ids, with other sizes where they see other rows; what crosses between
// stages is whole. All of them went through AssignChunks. `schedule`: of a pipeline; without stages
// where there is none.
Plan lower(const Graph& whole, const std::vector<Role>& roles, const Schedule& schedule,
           const LowerOptions& options);

}  // namespace epl

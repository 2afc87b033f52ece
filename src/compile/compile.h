// Compile: from what was recorded of a step to the Plan that all devices of a cluster run.
//
//   recording, cluster, config  ->  stages, layouts, schedule, memory  ->  Plan
//
// A function of its arguments: it knows no job, no rank, no memory of the user's, and starts
// nothing. A process with one device can compile for thousands. All is decided once, on the graph
// of the whole step, by the lists of passes below; then each role gets its graph, and its Program.
#pragma once

#include <epl/cluster.h>
#include <epl/config.h>

#include <map>
#include <set>
#include <string>

#include "compile/step_recording.h"
#include "ir/pass.h"
#include "layout/layout.h"
#include "program/placement.h"
#include "program/program.h"
#include "sharding/rows.h"
#include "state/state_map.h"

namespace epl {

struct CompileOptions {
  c10::Device device = c10::kCPU;
  // What TrainerOptions ask for.
  enum class Clip : uint8_t { kNothing, kValues, kNorm };
  Clip clip = Clip::kNothing;
  // What lies where already: parameters that an earlier step has cut, or left whole, stay so.
  StateMap state = {};
  // By name of a parameter: how many tensors of its size its optimizer keeps.
  std::map<std::string, int> states_of = {};
  // Parameters that zero.level does not cut, with the reason: "of my::Lion, whose step() ...".
  std::map<std::string, std::string> updated_whole = {};
  // Parameters whose memory nobody else holds: zero.level = "v2" may spread them over workers.
  std::set<std::string> may_be_spread = {};
  // Parameters that are offloaded, with how many tensors their optimizer keeps there for each. They
  // rest in a file or, where devices have windows, in the memory of the host. `updates_apart`: the
  // update may run in groups, which an optimizer with a step() of its own would count as steps.
  struct Offloaded {
    std::map<std::string, int> parameters = {};
    std::map<std::string, std::string> staying = {};  // others, with the reason
    bool updates_apart = true;
    bool windows = false;
  };
  Offloaded offloaded = {};
  // Nothing runs again in backward, whatever the configuration asks for, and a loss can be refused:
  // what gradient_checkpoint.check_gradients compares with.
  bool keeps_all = false;
};

// Graphs are those after all passes.
struct CompiledStep {
  Placement placement;
  Graph graph;  // of the first stage, or of all there is; with whole sizes where parts are cut
  // Where operators are cut over devices: what each program runs; empty for the others.
  std::vector<Graph> parts;
  std::map<int, Graph> other;  // of roles with another number of devices, by that number
  Plan plan;
  size_t run_again = 0;      // operators that backward runs a second time, of all stages
  int64_t device_bytes = 0;  // of the device that holds most, by the account of memory.limit
  // What the loss of a micro batch is, in terms of its rows, as far as its graph tells.
  RowResult loss;
  // What a user should hear of the loss, and of the metrics; empty where there is nothing to say.
  std::string loss_remark;
  std::string metrics_remark;

  // The graph with the rows that one of so many devices sees.
  const Graph& recorded_for(int devices) const {
    const auto found = other.find(devices);
    return found == other.end() ? graph : found->second;
  }

  // What the program of this number runs.
  const Graph& graph_of(size_t role) const {
    if (role < parts.size() && !parts[role].leaves.empty()) return parts[role];
    return recorded_for(placement.role_devices[role]);
  }
};

// Throws epl::Error where the step, its strategies and the cluster do not go together.
CompiledStep compile(StepRecording recording, const ClusterShape& cluster, const Config& config,
                     const CompileOptions& options = {});

// The first part of it: where the strategies of a recorded step put its parts.
Placement place_step(const Graph& whole, const MadeUnder& made_under, const std::vector<int>& cuts,
                     const ClusterShape& cluster, const Config& config);

// THE list of passes, in order: those that decide about the whole step, and those for the graph
// that one role runs. `taskgraphs`: how many the step has.
struct StepPasses {
  PassList whole;
  PassList role;
};
StepPasses step_passes(const Config& config, const Placement& placement,
                       const std::vector<int>& cuts = {}, size_t taskgraphs = 0);

}  // namespace epl

#include "compile/cut_rows.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/check.h"
#include "ops/rule_parts.h"
#include "plan/crossings.h"
#include "sharding/rows.h"
#include "sharding/slices.h"

namespace epl {
namespace {

bool takes_all_rows(const Config& config) {
  return config.get<std::string>("replicate.batch_norm") == "micro_batch";
}

int devices_of_chunk(const Placement& placement, int chunk) {
  const std::vector<int> roles = placement.roles_of(chunk % placement.stages());
  return placement.role_devices[static_cast<size_t>(roles[0])];
}

// What goes between stages that do not cut their rows alike.
std::set<ValueId> values_cut_anew(const Graph& whole, const Placement& placement) {
  std::set<ValueId> values;
  if (!placement.is_pipeline()) return values;
  for (const auto& crossing : find_crossings(whole, tasks_of_nodes(whole, false))) {
    const int from = devices_of_chunk(placement, crossing.from.chunk);
    const int to = devices_of_chunk(placement, crossing.to.chunk);
    if (from != to) values.insert(crossing.values.begin(), crossing.values.end());
  }
  return values;
}

// Those of the first role that has so many, in the first replica.
Machine machine_of_slices(const Placement& placement, const ClusterShape& cluster, int devices) {
  std::vector<int> numbers;
  for (int role = 0; role < placement.roles() && numbers.empty(); ++role) {
    if (placement.role_devices[static_cast<size_t>(role)] != devices) continue;
    for (int slice = 0; slice < devices; ++slice) {
      numbers.push_back(placement.device({0, role, slice}));
    }
  }
  return machine_of(cluster, numbers);
}

bool is_under_replicate(const Graph& graph, const Node& node) {
  const auto& taskgraphs = graph.taskgraphs;
  const size_t taskgraph =
      taskgraphs.size() > 1 ? static_cast<size_t>(node.chunk) % taskgraphs.size() : 0;
  return taskgraphs.empty() || taskgraphs[taskgraph].kind != Strategy::Kind::kSplit;
}

// All devices of a stage run the same, on as many rows.
void check_even(const Graph& whole, int parts, const std::string& over,
                const std::string& asked_by) {
  for (const Leaf& leaf : whole.leaves) {
    const auto& sizes = whole.value(leaf.value).type.sizes;
    if (leaf.kind != Leaf::Kind::kInput || sizes.empty()) continue;
    EPL_CHECK(sizes[0] % parts == 0,
              concat("a micro batch of ", sizes[0], " rows cannot be cut over ", over, " devices"),
              asked_by, concat("a multiple of ", parts, " rows a micro batch"));
  }
}

void check_even(const Graph& whole, const Placement& placement) {
  int all = 1;
  for (int devices : placement.role_devices) all = std::lcm(all, devices);
  const std::string stages = concat("stages of ", join(placement.role_devices, ", "));
  check_even(whole, all, placement.is_pipeline() ? stages : concat(all), placement.asked_by);
}

}  // namespace

SlicedSteps cut_rows(const Graph& whole, const Placement& placement, const ClusterShape& cluster,
                     const Config& config) {
  check_even(whole, placement);
  SlicedSteps steps;
  const std::set<ValueId> settled = values_cut_anew(whole, placement);
  for (const int devices : placement.role_devices) {
    if (devices == 1 || steps.count(devices) != 0) continue;
    SliceRequest request{whole, devices};
    request.machine = machine_of_slices(placement, cluster, devices);
    request.settled = settled;
    request.whole_batch_norm = takes_all_rows(config);
    request.asked_by = placement.asked_by;
    SlicedStep& step = steps[devices];
    step.sharding = follow_slices(request);
    step.graph = shared_graph(whole, step.sharding);
  }
  return steps;
}

std::vector<std::optional<Cut>> cuts_under_replicate(const Graph& graph, int parts,
                                                     const Machine& machine, const Config& config,
                                                     const std::string& asked_by) {
  std::vector<std::optional<Cut>> cuts(graph.nodes.size());
  std::vector<bool> sliced;
  for (const Node& node : graph.nodes) sliced.push_back(is_under_replicate(graph, node));
  if (std::count(sliced.begin(), sliced.end(), true) == 0) return {};
  check_even(graph, parts, concat(parts), asked_by);
  SliceRequest request{graph, parts, machine};
  request.whole_batch_norm = takes_all_rows(config);
  request.runs = false;
  request.asked_by = asked_by;
  const Sharding sharding = follow_slices(request);
  for (size_t i = 0; i < cuts.size(); ++i) {
    if (sliced[i]) cuts[i] = sharding.nodes[i];
  }
  return cuts;
}

void look_at_targets(Graph& graph) {
  std::vector<Node> nodes = std::move(graph.nodes);
  graph.nodes.clear();
  Emitter emitter(graph);
  for (Node& node : nodes) {
    if (counts_targets(node)) {
      emitter.stand_for(node);
      const ValueId target = tensor_at(node, 1);
      const ValueId noted =
          emitter.call_for("epl_rows::note_ignored", {value_argument(target), node.arguments[4]},
                           sizes_of(graph, target));
      node.arguments[1] = value_argument(noted);
    }
    graph.nodes.push_back(std::move(node));
  }
}

}  // namespace epl

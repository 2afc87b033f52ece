#include "compile/recompute_stages.h"

#include <algorithm>
#include <set>

#include "plan/crossings.h"

namespace epl {
namespace {

std::vector<ValueId> values_of(const Node& node) {
  std::vector<ValueId> values;
  for_each_input(node, [&](ValueId id) { values.push_back(id); });
  for_each_output(node, [&](ValueId id) { values.push_back(id); });
  return values;
}

bool is_same_node(const Node& a, const Node& b) {
  return a.op.operator_name() == b.op.operator_name() && a.chunk == b.chunk && a.phase == b.phase &&
         values_of(a) == values_of(b);
}

// Up to constants and sizes. Parts of a split stage mostly do; where what they have is of another
// kind, each chooses for itself, which it may: collectives never run again.
bool have_same_nodes(const Graph& a, const Graph& b) {
  return &a == &b ||
         std::equal(a.nodes.begin(), a.nodes.end(), b.nodes.begin(), b.nodes.end(), is_same_node);
}

// The tasks of a stage as parts of the model, and what they are handed.
class StageParts {
 public:
  StageParts(const Graph& whole, const Schedule& schedule, int stage, RecomputeRequest& request)
      : schedule_(schedule), request_(request) {
    request.parts.clear();
    request.in_flight.clear();
    for (int chunk = 0; chunk < schedule.chunks(); ++chunk) {
      if (schedule.stage_of(chunk) == stage) add_chunk(chunk);
    }
    const auto tasks = tasks_of_nodes(request.graph, schedule.splits_backward);
    for (const ChunkTask& task : tasks) request.part_of_node.push_back(part_of(task));
    const auto crossings = find_crossings(whole, tasks_of_nodes(whole, schedule.splits_backward));
    for (const auto& crossing : crossings) add_crossing(crossing);
    add_batch();
  }

 private:
  void add_chunk(int chunk) {
    const auto local = static_cast<int>(request_.in_flight.size());
    request_.in_flight.push_back(schedule_.in_flight[static_cast<size_t>(chunk)]);
    for (int kind = 0; kind < (schedule_.splits_backward ? 3 : 2); ++kind) {
      parts_[{static_cast<Task::Kind>(kind), chunk}] = static_cast<int>(request_.parts.size());
      request_.parts.push_back({local});
    }
  }

  int part_of(const ChunkTask& task) const {
    const auto found = parts_.find(task);
    return found == parts_.end() ? -1 : found->second;
  }

  void add_crossing(const Crossing& crossing) {
    const int from = part_of(crossing.from);
    const int to = part_of(crossing.to);
    for (ValueId id : crossing.values) {
      if (from >= 0) request_.taken.push_back({id, from});
      if (to >= 0) request_.given.push_back({id, to});
    }
  }

  // Forward of the first chunk is given the batch.
  void add_batch() {
    const int first = part_of({});
    if (first < 0) return;
    for (const auto& leaf : request_.graph.leaves) {
      if (leaf.kind == Leaf::Kind::kInput) request_.given.push_back({leaf.value, first});
    }
  }

  const Schedule& schedule_;
  RecomputeRequest& request_;
  std::map<ChunkTask, int> parts_;
};

}  // namespace

std::vector<StageRoles> stages_of(const CompiledStep& step) {
  std::vector<StageRoles> found;
  for (size_t role = 0; role < step.placement.role_devices.size(); ++role) {
    const int stage = step.placement.stage_of(static_cast<int>(role));
    const auto alike = std::find_if(found.begin(), found.end(), [&](const StageRoles& other) {
      return other.stage == stage &&
             have_same_nodes(step.graph_of(other.roles[0]), step.graph_of(role));
    });
    if (alike == found.end()) {
      found.push_back({stage, {role}});
    } else {
      alike->roles.push_back(role);
    }
  }
  return found;
}

void add_stage(const Graph& whole, const Schedule& schedule, int stage, RecomputeRequest& request) {
  StageParts(whole, schedule, stage, request);
}

Stage::Stage(StageRoles given, RecomputeModel made)
    : roles(std::move(given)), model(std::move(made)) {
  choice.again.assign(model.operations.size(), false);
  kept = choice.outcome = RecomputeMemory(model).measure(choice.again);
}

std::vector<size_t> Stage::nodes_again() const {
  std::vector<size_t> nodes;
  for (size_t i = 0; i < choice.again.size(); ++i) {
    if (choice.again[i]) nodes.push_back(model.operations[i].node);
  }
  return nodes;
}

std::map<int, std::vector<size_t>> clones_behind_a_receive(const Graph& graph, ValueId first_new,
                                                           const Graph& whole,
                                                           const Schedule& schedule, int stage) {
  const bool splits = schedule.splits_backward;
  const auto tasks = tasks_of_nodes(graph, splits);
  std::set<ChunkTask> receives;
  for (const Crossing& crossing : find_crossings(whole, tasks_of_nodes(whole, splits))) {
    if (crossing.to.kind != Task::Kind::kForward) receives.insert(crossing.to);
  }
  std::map<int, std::vector<size_t>> clones;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const ChunkTask& task = tasks[i];
    if (receives.count(task) == 0) continue;
    if (schedule.stage_of(task.chunk) != stage) continue;
    bool is_clone = false;
    for_each_output(graph.nodes[i], [&](ValueId id) { is_clone |= id >= first_new; });
    if (is_clone) clones[task.chunk].push_back(i);
  }
  return clones;
}

}  // namespace epl

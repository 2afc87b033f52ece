#include "compile/recompute_step.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/check.h"
#include "compile/device_bytes.h"
#include "cost/node_cost.h"
#include "cost/recompute_choice.h"
#include "cost/recompute_units.h"
#include "passes/recompute.h"
#include "plan/crossings.h"

namespace epl {
namespace {

constexpr const char* kType = "gradient_checkpoint.type";
constexpr const char* kLimit = "memory.limit";

struct Asked {
  bool by_marks = false;
  bool for_least = false;  // as few bytes as can be
  std::optional<int64_t> limit;
  int end_taskgraph = -1;

  bool anything() const { return by_marks || for_least || limit; }
};

Asked what_is_asked(const Config& config) {
  Asked asked;
  const auto type = config.get<std::string>(kType);
  asked.by_marks = type == "collection";
  const int64_t limit = config.get<int64_t>(kLimit);
  if (limit > 0) asked.limit = limit;
  asked.for_least = type == "auto" && !asked.limit;
  const int64_t last = config.get<int64_t>("gradient_checkpoint.end_taskgraph");
  if (!asked.by_marks) asked.end_taskgraph = static_cast<int>(last);
  return asked;
}

// Roles of one stage that run the same nodes, and so choose alike.
struct StageRoles {
  int stage = 0;
  std::vector<size_t> roles;
};

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

// One stage: what there is to choose, and what was chosen.
struct StageChoice {
  StageRoles roles;
  RecomputeModel model;
  RecomputeOutcome kept;    // where nothing runs again
  RecomputeChoice choice;   // none that runs again: all is kept
  int64_t arena_bytes = 0;  // that the choice may have, by lifetimes
  bool is_least = false;    // nothing needs fewer bytes
  int rounds = 0;           // in which it was chosen
};

std::vector<size_t> nodes_of(const StageChoice& stage) {
  std::vector<size_t> nodes;
  for (size_t i = 0; i < stage.choice.again.size(); ++i) {
    if (stage.choice.again[i]) nodes.push_back(stage.model.operations[i].node);
  }
  return nodes;
}

class Planner {
 public:
  Planner(CompiledStep& step, const Config& config, const CompileOptions& options,
          const LowerOptions& lowering, const LowerStep& lower)
      : step_(step),
        config_(config),
        options_(options),
        lowering_(lowering),
        lower_(lower),
        asked_(what_is_asked(config)) {}

  Plan run() {
    Plan plan = lower_(step_);
    if (!asked_.anything() || options_.keeps_all) return plan;
    if (asked_.by_marks) check_marks();
    if (asked_.limit && !asked_.by_marks && fits(plan)) return plan;
    for (const auto& roles : stages_of(step_)) stages_.push_back(stage(roles, plan));
    plan = asked_.for_least || asked_.by_marks ? choose_freely() : choose_within(plan);
    for (const StageChoice& stage : stages_) step_.run_again += nodes_of(stage).size();
    add_remarks(plan);
    return plan;
  }

 private:
  void check_marks() const {
    bool any = false;
    for (size_t role = 0; role < step_.placement.role_devices.size(); ++role) {
      for (const auto& node : step_.graph_of(role).nodes) any |= node.origin.marked;
    }
    EPL_CHECK(any, "the step marks no tensor to keep that it computes", config_.asked_by(kType),
              "epl::add_to_collection(epl::collections::kCheckpoints, tensor) in the step, or "
              "gradient_checkpoint.type = \"auto\"");
  }

  StageChoice stage(const StageRoles& roles, const Plan& plan) const {
    RecomputeRequest request{step_.graph_of(roles.roles[0])};
    request.keeps_gradients = !plan.schedule.stages.empty() || plan.micro_batches > 1;
    request.end_taskgraph = asked_.end_taskgraph;
    request.keeps_marked = asked_.by_marks;
    request.machine = lowering_.machine;
    request.backend = lowering_.backend;
    if (!plan.schedule.stages.empty()) {
      StageParts(step_.recorded_for(1), plan.schedule, roles.stage, request);
    }
    StageChoice made;
    made.roles = roles;
    made.model = recompute_model(request);
    made.choice.again.assign(made.model.operations.size(), false);
    made.kept = RecomputeMemory(made.model).measure(made.choice.again);
    made.choice.outcome = made.kept;
    return made;
  }

  int64_t bytes(const Plan& plan, size_t role) const {
    return bytes_of_device(step_.graph_of(role), plan, role, options_, lowering_.zero);
  }

  int64_t most_bytes(const Plan& plan, const StageRoles& roles) const {
    int64_t most = 0;
    for (size_t role : roles.roles) most = std::max(most, bytes(plan, role));
    return most;
  }

  bool fits(const Plan& plan) const {
    for (size_t role = 0; role < step_.placement.role_devices.size(); ++role) {
      if (bytes(plan, role) > *asked_.limit) return false;
    }
    return true;
  }

  // The step with what was chosen.
  CompiledStep applied() const {
    CompiledStep changed = step_;
    std::map<Graph*, std::set<size_t>> nodes;
    for (const StageChoice& stage : stages_) {
      const std::vector<size_t> again = nodes_of(stage);
      for (size_t role : stage.roles.roles) {
        // One of `changed`, which is this function's own.
        Graph& graph = const_cast<Graph&>(changed.graph_of(role));
        nodes[&graph].insert(again.begin(), again.end());
      }
    }
    for (const auto& [graph, again] : nodes) {
      if (again.empty()) continue;
      PassList passes;
      passes.push_back(
          std::make_unique<Recompute>(std::vector<size_t>(again.begin(), again.end())));
      run_passes(*graph, passes);
    }
    return changed;
  }

  Plan choose_freely() {
    for (auto& stage : stages_) {
      stage.choice = asked_.by_marks ? all_again(stage.model) : least_memory(stage.model);
    }
    CompiledStep changed = applied();
    Plan plan = lower_(changed);
    for (const auto& stage : stages_) {
      if (asked_.limit && most_bytes(plan, stage.roles) > *asked_.limit) refuse(plan, stage);
    }
    step_ = std::move(changed);
    return plan;
  }

  // What else a device holds, and what is lost between buffers, is known when the choice is
  // lowered: where that is too much, the next choice gets as much less.
  Plan choose_within(const Plan& kept) {
    for (auto& stage : stages_) {
      const int64_t beside = most_bytes(kept, stage.roles) - stage.kept.peak;
      stage.arena_bytes = *asked_.limit - beside;
      if (most_bytes(kept, stage.roles) > *asked_.limit) choose(stage);
    }
    for (;;) {
      CompiledStep changed = applied();
      Plan plan = lower_(changed);
      bool all_fit = true;
      for (auto& stage : stages_) {
        const int64_t over = most_bytes(plan, stage.roles) - *asked_.limit;
        if (over <= 0) continue;
        all_fit = false;
        if (stage.is_least) refuse(plan, stage);
        stage.arena_bytes -= over;
        choose(stage);
      }
      if (!all_fit) continue;
      step_ = std::move(changed);
      return plan;
    }
  }

  // Where nothing fits it is the least that there is, which then has to do. Each round takes bytes
  // away, and few are needed: after some the least is taken as well.
  static void choose(StageChoice& stage) {
    constexpr int kMostRounds = 5;
    const bool tries = ++stage.rounds < kMostRounds;
    stage.choice =
        tries ? cheapest_within(stage.model, stage.arena_bytes) : least_memory(stage.model);
    stage.is_least = !tries || !stage.choice.fits;
  }

  [[noreturn]] void refuse(const Plan& plan, const StageChoice& stage) const {
    const int64_t most = most_bytes(plan, stage.roles);
    const std::string where =
        step_.placement.stages() > 1 ? concat(" of stage ", stage.roles.stage) : std::string();
    const std::string how = asked_.by_marks ? "with what the program marked to be kept"
                                            : "with everything made again that may be";
    throw Error(concat("a device", where, " needs at least ", most, " bytes ", how,
                       ", and may have ", *asked_.limit),
                config_.asked_by(kLimit),
                concat(asked_.by_marks ? "fewer marks, gradient_checkpoint.type = \"auto\""
                                       : "fewer rows in a micro batch, a limit of so many bytes",
                       ", or what trainer.what_fits(batch, limit) finds"));
  }

  double seconds_of(const StageChoice& stage) const {
    double seconds = 0;
    for (const auto& operation : stage.model.operations) seconds += operation.seconds;
    return seconds;
  }

  void add_remarks(Plan& plan) const {
    for (const StageChoice& stage : stages_) {
      const size_t again = nodes_of(stage).size();
      if (again == 0) continue;
      const double total = seconds_of(stage);
      const auto permille =
          total > 0 ? static_cast<int64_t>(1000 * stage.choice.outcome.seconds / total) : 0;
      plan.remarks.push_back(concat(
          step_.placement.stages() > 1 ? concat("stage ", stage.roles.stage, ": ") : std::string(),
          again, " operators run again in backward, about ", permille / 10, ".", permille % 10,
          " % of a step; values take ", stage.choice.outcome.peak, " bytes at most, ",
          stage.kept.peak, " if all were kept"));
    }
  }

  CompiledStep& step_;
  const Config& config_;
  const CompileOptions& options_;
  const LowerOptions& lowering_;
  const LowerStep& lower_;
  const Asked asked_;
  std::vector<StageChoice> stages_;
};

}  // namespace

Plan lower_within_memory(CompiledStep& step, const Config& config, const CompileOptions& options,
                         const LowerOptions& lowering, const LowerStep& lower) {
  return Planner(step, config, options, lowering, lower).run();
}

}  // namespace epl

#include "plan/short_gradients.h"

#include <algorithm>

#include "base/text.h"
#include "ir/makers.h"
#include "ops/facts.h"
#include "program/bytes_moved.h"

namespace epl {
namespace {

using Stays = PlanGradient::Stays;

// A step that may have to run again must not have changed anything by then.
bool has_guards(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    return node.expects || !values_that_decide_shape(graph, node).empty();
  });
}

class Finder {
 public:
  Finder(const std::vector<Role>& roles, const StepTasks& step, const LowerOptions& options)
      : roles_(roles), step_(step), options_(options) {
    for (const Role& role : roles) {
      for (int leaf : leaves_with_gradients(role)) ++users_[leaf];
    }
  }

  // Empty, or why all gradients stay.
  std::string why_all_stay() const {
    const bool guarded = std::any_of(roles_.begin(), roles_.end(),
                                     [](const Role& role) { return has_guards(*role.graph); });
    if (guarded) return "the step depends on data, and may have to run again";
    if (options_.end.clips_each_replica) return "each replica clips its own";
    return "";
  }

  // Empty, or why parameters are updated at the end.
  std::string why_updated_at_end() const {
    if (step_.is_pipeline()) return "a pipeline accumulates its gradients";
    // Of what all of them have, one has the gradient, and cannot know when the others have read it.
    if (roles_.size() > 1)
      return "devices that operators are cut over read them at their own times";
    if (options_.micro_batches > 1) return "gradients are accumulated over micro batches";
    return "";
  }

  ShortGradients of(const Role& role) const {
    const Graph& graph = *role.graph;
    const bool several = options_.replicas * role.devices > 1;
    const std::set<ValueId> elsewhere = read_elsewhere(role);
    ShortGradients found;
    for (const auto& gradient : graph.gradients) {
      const Leaf& leaf = graph.leaves[static_cast<size_t>(gradient.parameter)];
      const TensorType& type = graph.value(gradient.value).type;
      const auto users = users_.find(gradient.parameter);
      const bool tied = users != users_.end() && users->second > 1 && !leaf.shard.is_cut();
      const bool known = options_.zero.whole.count(leaf.name) == 0 &&
                         (type.dtype == c10::kFloat || type.dtype == c10::kDouble);
      const bool own = elsewhere.count(graph.value(gradient.value).storage) == 0;
      if (type.layout != c10::kStrided || !type.dense() || tied || !known || !own) continue;
      if (options_.updates_early && why_updated_at_end().empty() && !is_written(graph, leaf)) {
        found[gradient.value] = Stays::kUntilUpdated;
      } else if (options_.zero.cuts_gradients && several) {
        found[gradient.value] = Stays::kUntilSummed;
      }
    }
    return found;
  }

 private:
  // Of those that are made on its stage.
  std::set<int> leaves_with_gradients(const Role& role) const {
    const Makers makers(*role.graph);
    const std::vector<ChunkTask> tasks = step_.of_nodes(*role.graph);
    std::set<int> leaves;
    for (const auto& gradient : role.graph->gradients) {
      const auto maker = makers.index_of(gradient.value);
      const ChunkTask task = maker ? tasks[*maker] : ChunkTask{};
      if (step_.schedule().stage_of(task.chunk) == role.stage) leaves.insert(gradient.parameter);
    }
    return leaves;
  }

  // Storages that tasks hand to others, or read of them.
  std::set<ValueId> read_elsewhere(const Role& role) const {
    const Graph& graph = *role.graph;
    const std::vector<ChunkTask> tasks = step_.of_nodes(graph);
    std::map<ValueId, ChunkTask> makers;
    std::set<ValueId> found;
    for (size_t i = 0; i < tasks.size(); ++i) {
      for_each_input(graph.nodes[i], [&](ValueId id) {
        const auto maker = makers.find(graph.value(id).storage);
        if (maker != makers.end() && !(maker->second == tasks[i])) found.insert(maker->first);
      });
      for_each_output(graph.nodes[i],
                      [&](ValueId id) { makers.emplace(graph.value(id).storage, tasks[i]); });
    }
    for (const auto& crossing : step_.crossings()) {
      for (ValueId id : crossing.values) found.insert(graph.value(id).storage);
    }
    return found;
  }

  // By the step itself, which brings what its devices wrote together at the end.
  static bool is_written(const Graph& graph, const Leaf& leaf) {
    return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
      const std::vector<size_t> written = written_arguments(node);
      return std::any_of(written.begin(), written.end(), [&](size_t argument) {
        const auto& values = node.arguments[argument].values;
        return std::any_of(values.begin(), values.end(), [&](ValueId id) {
          return id != kNoValue && graph.value(id).storage == graph.value(leaf.value).storage;
        });
      });
    });
  }

  const std::vector<Role>& roles_;
  const StepTasks& step_;
  const LowerOptions& options_;
  std::map<int, int> users_;  // by leaf: roles that have a gradient of it
};

// Loss and metrics are read when the segment has run, and may be parameters or views of them.
bool is_reported(const Program& program, const SegmentOutputs& outputs, int leaf) {
  const auto lies_in = [&](SlotId id) {
    if (id == kNoSlot) return false;
    const Slot& slot = program.slots[static_cast<size_t>(id)];
    return slot.where == Slot::Where::kLeaf && slot.index == leaf;
  };
  return lies_in(outputs.loss) ||
         std::any_of(outputs.metrics.begin(), outputs.metrics.end(),
                     [&](const PlanMetric& metric) { return lies_in(metric.slot); });
}

// After how many calls nothing reads a leaf any more.
int last_read(const Program& program, int number, int leaf) {
  const Segment& segment = program.segments[static_cast<size_t>(number)];
  if (is_reported(program, program.outputs[static_cast<size_t>(number)], leaf)) {
    return static_cast<int>(segment.calls.size());
  }
  for (size_t i = segment.calls.size(); i-- > 0;) {
    bool reads = false;
    for_each_operand(segment.calls[i], [&](SlotId id) {
      const Slot& slot = program.slots[static_cast<size_t>(id)];
      reads |= slot.where == Slot::Where::kLeaf && slot.index == leaf;
    });
    if (reads) return static_cast<int>(i) + 1;
  }
  return 0;
}

// Groups of a few percent of all bytes: what is not yet summed takes memory. Small ones are not
// worth a message each.
int most_groups(int64_t bytes, const LowerOptions& options) {
  constexpr int64_t kLeastBytes = 1 << 20;
  constexpr int64_t kMost = 32;
  return std::max(options.most_reductions, static_cast<int>(std::min(kMost, bytes / kLeastBytes)));
}

Instruction group_instruction(Instruction::Kind kind, const ShortGroup& group,
                              const Instruction& run) {
  Instruction made;
  made.kind = kind;
  made.gradients = group.gradients;
  made.slots = group.slots;
  made.micro_batch = run.micro_batch;
  return made;
}

}  // namespace

std::vector<ShortGradients> find_short_gradients(const std::vector<Role>& roles,
                                                 const StepTasks& step, const LowerOptions& options,
                                                 std::vector<std::string>& remarks) {
  if (!options.zero.cuts_gradients && !options.updates_early) {
    return std::vector<ShortGradients>(roles.size());
  }
  const Finder finder(roles, step, options);
  const std::string all_stay = finder.why_all_stay();
  if (!all_stay.empty()) {
    remarks.push_back(concat("all gradients stay to the end of the step: ", all_stay));
    return std::vector<ShortGradients>(roles.size());
  }
  const std::string at_end = options.updates_early ? finder.why_updated_at_end() : "";
  if (!at_end.empty()) {
    remarks.push_back(concat("parameters are updated at the end of the step: ", at_end));
  }
  std::vector<ShortGradients> found;
  for (const Role& role : roles) found.push_back(finder.of(role));
  return found;
}

namespace {

// Of gradients that go in the same way.
std::vector<ShortGroup> cut_alike(const Program& program, int segment,
                                  const std::vector<MadeGradient>& made,
                                  const LowerOptions& options) {
  const Segment& calls = program.segments[static_cast<size_t>(segment)];
  std::vector<SlotId> slots;
  for (const MadeGradient& each : made) slots.push_back(each.slot);
  std::vector<int> ready = ready_after(program, calls, slots);
  std::vector<size_t> order(made.size());
  for (size_t i = 0; i < made.size(); ++i) {
    order[i] = i;
    const PlanGradient& gradient = program.gradients[static_cast<size_t>(made[i].gradient)];
    if (gradient.stays != Stays::kUntilUpdated) continue;
    ready[i] = std::max(ready[i], last_read(program, segment, gradient.leaf));
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return ready[a] < ready[b]; });
  std::vector<int64_t> bytes;
  int64_t all = 0;
  for (size_t i : order) {
    bytes.push_back(slot_bytes(program, made[i].slot));
    all += bytes.back();
  }
  std::vector<ShortGroup> groups;
  for (const auto& members : cut_into_groups(bytes, most_groups(all, options))) {
    ShortGroup& group = groups.emplace_back();
    group.travels = options.replicas * program.devices > 1;
    for (int place : members) {
      const size_t i = order[static_cast<size_t>(place)];
      group.gradients.push_back(made[i].gradient);
      group.slots.push_back(made[i].slot);
      group.end_call = std::max(group.end_call, ready[i]);
    }
  }
  return groups;
}

}  // namespace

std::vector<ShortGroup> cut_short_groups(const Program& program, int segment,
                                         const std::vector<MadeGradient>& made,
                                         const LowerOptions& options) {
  std::map<Stays, std::vector<MadeGradient>> by_way;
  for (const MadeGradient& each : made) {
    by_way[program.gradients[static_cast<size_t>(each.gradient)].stays].push_back(each);
  }
  std::vector<ShortGroup> groups;
  for (const auto& [stays, alike] : by_way) {
    const std::vector<ShortGroup> own = cut_alike(program, segment, alike, options);
    groups.insert(groups.end(), own.begin(), own.end());
  }
  std::stable_sort(groups.begin(), groups.end(), [](const ShortGroup& a, const ShortGroup& b) {
    return a.end_call < b.end_call;
  });
  return groups;
}

std::vector<RunCut> cuts_of_short_groups(const std::vector<ShortGroup>& groups,
                                         const Program& program, const Instruction& run,
                                         bool goes_on) {
  using Kind = Instruction::Kind;
  std::vector<RunCut> cuts;
  for (size_t i = 0; i < groups.size(); ++i) {
    const ShortGroup& group = groups[i];
    const auto first = static_cast<size_t>(group.gradients[0]);
    const bool updates = program.gradients[first].stays == Stays::kUntilUpdated;
    RunCut& cut = cuts.emplace_back();
    cut.end_call = group.end_call;
    if (group.travels) cut.then.push_back(group_instruction(Kind::kReduce, group, run));
    if (updates) cut.then.push_back(group_instruction(Kind::kUpdateEarly, group, run));
    if (!group.travels) continue;
    if (i > 0) cut.then.push_back(group_instruction(Kind::kAwaitGroup, groups[i - 1], run));
    const bool last = i + 1 == groups.size();
    if (last && goes_on) {
      const int calls =
          static_cast<int>(program.segments[static_cast<size_t>(run.segment)].calls.size());
      cuts.push_back({calls, {group_instruction(Kind::kAwaitGroup, group, run)}});
    }
  }
  return cuts;
}

}  // namespace epl

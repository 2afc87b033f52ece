#include "plan/role_segments.h"

#include <algorithm>
#include <set>

#include "ir/makers.h"
#include "plan/program_parts.h"
#include "plan/segment_builder.h"
#include "plan/short_gradients.h"

namespace epl {
namespace {

// One chunk, whose only task is the whole step of a micro batch.
Schedule schedule_of_a_step(int micro_batches) {
  Schedule schedule;
  schedule.micro_batches = micro_batches;
  schedule.stage_of_chunk = {0};
  schedule.in_flight = {1};
  schedule.stages.emplace_back();
  for (int i = 0; i < micro_batches; ++i) {
    schedule.stages[0].push_back({Task::Kind::kForward, 0, i});
  }
  return schedule;
}

class RoleBuilder {
 public:
  RoleBuilder(const Role& role, const StepTasks& step, const LowerOptions& options,
              const ShortGradients& short_gradients, Program& program)
      : role_(role),
        graph_(*role.graph),
        step_(step),
        options_(options),
        keeps_gradients_(step.is_pipeline() || options.micro_batches > 1),
        makers_(graph_),
        tasks_(step.of_nodes(graph_)),
        short_gradients_(short_gradients),
        program_(program) {}

  RoleSegments run() {
    program_.devices = role_.devices;
    program_.stage = role_.stage;
    add_leaves(graph_, step_.is_pipeline() ? InputPlaces::kEachMicroBatch : InputPlaces::kOne,
               program_);
    find_gradients();
    for (int chunk = 0; chunk < step_.schedule().chunks(); ++chunk) {
      if (step_.schedule().stage_of(chunk) == role_.stage) build_chunk(chunk);
    }
    place();
    if (!keeps_gradients_) take_gradients();
    return std::move(built_);
  }

 private:
  // The batch is there with the first task.
  ChunkTask task_of(ValueId id) const {
    const auto maker = makers_.index_of(id);
    return maker ? tasks_[*maker] : ChunkTask{};
  }

  // Those that are made on this stage.
  void find_gradients() {
    for (const auto& gradient : graph_.gradients) {
      const ChunkTask made = task_of(gradient.value);
      if (step_.schedule().stage_of(made.chunk) != role_.stage) continue;
      const size_t index = built_.made_in.size();
      built_.made_in.push_back(made);
      const auto goes = short_gradients_.find(gradient.value);
      if (goes != short_gradients_.end()) {
        short_index_[gradient.value] = static_cast<int>(index);
        program_.gradients.push_back({gradient.parameter, kNoSlot, {}, goes->second});
        continue;
      }
      gradient_of_[gradient.value] = index;
      if (keeps_gradients_) {
        add_kept_gradient(graph_, gradient, program_);
      } else {
        program_.gradients.push_back({gradient.parameter, kNoSlot});
      }
    }
  }

  void take_gradients() {
    const auto& places = built_.chunks.at(0).first.places;
    for (const auto& [value, index] : gradient_of_) {
      program_.gradients[index].slot = places.at(value);
    }
  }

  SegmentPart make_part(const ChunkTask& task) const {
    SegmentPart part;
    part.kind = task.kind;
    part.chunk = task.chunk;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (tasks_[i] == task) part.nodes.push_back(&graph_.nodes[i]);
    }
    if (step_.is_pipeline() && task == ChunkTask{}) part.given = loaded();
    for (const auto& crossing : step_.crossings()) {
      const auto& values = crossing.values;
      if (crossing.to == task) part.given.insert(part.given.end(), values.begin(), values.end());
    }
    part.taken = taken(task);
    for (const auto& [value, index] : short_index_) {
      if (task_of(value) == task) part.going.push_back(value);
    }
    if (task_of(graph_.loss) == task) part.loss = graph_.loss;
    for (const auto& metric : graph_.metrics) {
      if (task_of(metric.value) == task) part.metrics.push_back(metric);
    }
    return part;
  }

  std::vector<ValueId> taken(const ChunkTask& task) const {
    std::set<ValueId> values;
    for (const auto& crossing : step_.crossings()) {
      if (crossing.from == task) values.insert(crossing.values.begin(), crossing.values.end());
    }
    if (!keeps_gradients_) {
      for (const auto& [value, index] : gradient_of_) values.insert(value);
    }
    return {values.begin(), values.end()};
  }

  // The tensors of the batch that chunk 0 reads or hands on.
  std::vector<ValueId> loaded() const {
    std::set<ValueId> read;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (tasks_[i].chunk != 0) continue;
      for_each_input(graph_.nodes[i], [&](ValueId id) { read.insert(id); });
    }
    for (const auto& crossing : step_.crossings()) {
      read.insert(crossing.values.begin(), crossing.values.end());
    }
    for (const auto& metric : graph_.metrics) read.insert(metric.value);
    std::vector<ValueId> values;
    for (const auto& leaf : graph_.leaves) {
      const bool wanted = leaf.kind == Leaf::Kind::kInput && read.count(leaf.value) != 0;
      if (wanted) values.push_back(leaf.value);
    }
    return values;
  }

  void build_chunk(int chunk) {
    std::vector<SegmentPart> parts;
    for (int kind = 0; kind < step_.kinds(); ++kind) {
      parts.push_back(make_part({static_cast<Task::Kind>(kind), chunk}));
    }
    const int slots = step_.schedule().in_flight[static_cast<size_t>(chunk)];
    ChunkSegments& built = built_.chunks[chunk];
    built.others.resize(static_cast<size_t>(slots));
    for (int slot = 0; slot < slots; ++slot) {
      SegmentBuilder builder(graph_, parts, gradient_of_, program_, options_.backend);
      build_activation_slot(parts, slot, builder, built);
      regions_.push_back(builder.find_regions());
    }
  }

  // Slots and segments are numbered in the order in which they are built, which printed plans show:
  // a step has its first micro batch in front, a chunk of a pipeline its others.
  void build_activation_slot(const std::vector<SegmentPart>& parts, int slot,
                             SegmentBuilder& builder, ChunkSegments& built) {
    const bool pipeline = step_.is_pipeline();
    const bool first = slot == 0;
    const bool others = !first || static_cast<int>(built.others.size()) < options_.micro_batches;
    std::vector<int> forward;  // in a pipeline: it makes no gradients, so that all share it
    if (pipeline) forward.push_back(build(parts[0], Accumulation::kNext, builder));
    builder.mark();
    if (first && !pipeline) {
      const auto gradients = keeps_gradients_ ? Accumulation::kFirst : Accumulation::kNone;
      built.first = build_rest(parts, forward, gradients, builder);
    }
    if (others) {
      built.others[static_cast<size_t>(slot)] =
          build_rest(parts, forward, Accumulation::kNext, builder);
    }
    if (first && pipeline) {
      built.first = build_rest(parts, forward, Accumulation::kFirst, builder);
    }
  }

  // The parts behind those that are there, from the mark on.
  TaskSegments build_rest(const std::vector<SegmentPart>& parts, const std::vector<int>& there,
                          Accumulation accumulation, SegmentBuilder& builder) {
    builder.rewind();
    TaskSegments made{there, {}};
    for (size_t kind = there.size(); kind < parts.size(); ++kind) {
      made.segments.push_back(build(parts[kind], accumulation, builder));
    }
    for (const auto& part : parts) {
      for (ValueId id : part.given) made.places[id] = builder.slot_of(id);
      for (ValueId id : part.taken) made.places[id] = builder.slot_of(id);
    }
    return made;
  }

  // What goes before the end of the step lives until its group has gone.
  int build(SegmentPart part, Accumulation accumulation, SegmentBuilder& builder) {
    const int segment = build_calls(part, accumulation, builder);
    if (part.going.empty()) return segment;
    std::vector<MadeGradient> made;
    for (ValueId id : part.going) {
      const int index = short_index_.at(id);
      const SlotId slot = builder.slot_of(id);
      made.push_back({index, slot});
      SlotId& known = program_.gradients[static_cast<size_t>(index)].slot;
      if (known == kNoSlot) known = slot;
    }
    const auto& groups = built_.short_groups[segment] =
        cut_short_groups(program_, segment, made, options_);
    const auto calls =
        static_cast<int>(program_.segments[static_cast<size_t>(segment)].calls.size());
    for (size_t i = 0; i < groups.size(); ++i) {
      const int next = i + 1 < groups.size() ? groups[i + 1].end_call - 1 : calls;
      const int last = groups[i].travels ? next : groups[i].end_call - 1;
      for (SlotId slot : groups[i].slots) builder.extend(slot, last);
    }
    return segment;
  }

  int build_calls(SegmentPart part, Accumulation accumulation, SegmentBuilder& builder) const {
    if (!step_.is_pipeline()) {
      part.name = accumulation == Accumulation::kNext ? "step and accumulate" : "step";
    } else {
      part.name = name_of({part.kind, part.chunk});
      if (accumulation == Accumulation::kFirst) part.name += ", first";
    }
    return builder.build(part, accumulation);
  }

  void place() {
    int64_t end = program_.arena_bytes;
    std::vector<int64_t> begins;
    int64_t shared = 0;
    for (const auto& each : regions_) {
      begins.push_back(end);
      end += align_up(each.activations.places.total);
      shared = std::max(shared, each.shared_bytes());
    }
    for (size_t i = 0; i < regions_.size(); ++i) put(regions_[i], end, begins[i], program_);
    program_.arena_bytes = end + shared;
  }

  const Role& role_;
  const Graph& graph_;
  const StepTasks& step_;
  const LowerOptions& options_;
  const bool keeps_gradients_;
  const Makers makers_;
  const std::vector<ChunkTask> tasks_;  // by node
  const ShortGradients& short_gradients_;
  Program& program_;
  std::map<ValueId, size_t> gradient_of_;  // that stay: value -> index of Program::gradients
  std::map<ValueId, int> short_index_;     // likewise of those that do not
  std::vector<Regions> regions_;           // by chunk and activation slot
  RoleSegments built_;
};

}  // namespace

StepTasks::StepTasks(const Graph& whole, const Schedule& schedule, int micro_batches)
    : is_pipeline_(!schedule.stages.empty()),
      schedule_(is_pipeline_ ? schedule : schedule_of_a_step(micro_batches)),
      crossings_(find_crossings(whole, of_nodes(whole))) {}

int StepTasks::kinds() const {
  if (!is_pipeline_) return 1;
  return schedule_.splits_backward ? 3 : 2;
}

std::vector<ChunkTask> StepTasks::of_nodes(const Graph& graph) const {
  if (!is_pipeline_) return std::vector<ChunkTask>(graph.nodes.size());
  return tasks_of_nodes(graph, schedule_.splits_backward);
}

RoleSegments build_segments(const Role& role, const StepTasks& step, const LowerOptions& options,
                            const std::map<ValueId, PlanGradient::Stays>& gradients,
                            Program& program) {
  return RoleBuilder(role, step, options, gradients, program).run();
}

}  // namespace epl

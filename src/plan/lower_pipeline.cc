#include "plan/lower_pipeline.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "plan/crossings.h"
#include "plan/program_parts.h"
#include "plan/segment_builder.h"
#include "plan/stamp_costs.h"
#include "plan/transfers.h"
#include "program/verify.h"

namespace epl {
namespace {

std::string name_of(const ChunkTask& task) {
  const char* const names[] = {"forward ", "backward ", "weights "};
  return concat(names[static_cast<size_t>(task.kind)], task.chunk);
}

// One chunk of a stage: its parts, and where each of them lies for each micro batch in flight.
struct Chunk {
  std::vector<SegmentPart> parts;                 // by Task::Kind
  std::vector<std::vector<int>> segments;         // [activation slot][kind]
  std::vector<int> first_segments;                // [kind], for micro batch 0
  std::vector<std::map<ValueId, SlotId>> places;  // [activation slot]: of what is given and taken
};

class PipelineLowering {
 public:
  PipelineLowering(const Graph& whole, const std::vector<Stage>& stages, const Schedule& schedule,
                   const LowerOptions& options)
      : whole_(whole),
        stages_(stages),
        schedule_(schedule),
        options_(options),
        crossings_(find_crossings(whole, tasks_of_nodes(whole, schedule.splits_backward))),
        chunks_(stages.size()),
        first_places_(stages.size()) {}

  Plan run() {
    plan_.micro_batches = options_.micro_batches;
    plan_.replicas = options_.replicas;
    plan_.schedule = schedule_;
    for (size_t i = 0; i < crossings_.size(); ++i) add_transfers(i);
    for (size_t stage = 0; stage < stages_.size(); ++stage) build_stage(static_cast<int>(stage));
    find_tied(plan_);
    // A guard may send the step back to its start.
    reduces_early_ = !options_.end.clips_each_replica && !plan_.has_guards();
    for (size_t stage = 0; stage < stages_.size(); ++stage) add_instructions(stage);
    add_step_end(options_.end, reduces_early_, plan_);
    stamp_costs(plan_, options_.machine);
    verify_plan(plan_);
    return std::move(plan_);
  }

 private:
  // What crosses is whole on every device of a group: each receiver has one sender.
  void add_transfers(size_t index) {
    const Crossing& crossing = crossings_[index];
    const std::vector<size_t> senders = stages_of(stage_of(crossing.from.chunk));
    const std::vector<size_t> receivers = stages_of(stage_of(crossing.to.chunk));
    for (size_t i = 0; i < receivers.size(); ++i) {
      const size_t from = senders[i % senders.size()];
      plan_.transfers.push_back(
          make_transfer(whole_, crossing, stages_[from], stages_[receivers[i]]));
      Transfer& transfer = plan_.transfers.back();
      transfer.from = static_cast<int>(from);
      transfer.to = static_cast<int>(receivers[i]);
      transfer.name = name_of(crossing.from) + " to " + name_of(crossing.to);
      crossing_of_transfer_.push_back(index);
    }
  }

  std::vector<size_t> stages_of(int group) const {
    std::vector<size_t> found;
    for (size_t i = 0; i < stages_.size(); ++i) {
      if (stages_[i].group == group) found.push_back(i);
    }
    return found;
  }

  int stage_of(int chunk) const { return schedule_.stage_of_chunk[static_cast<size_t>(chunk)]; }
  int kinds() const { return schedule_.splits_backward ? 3 : 2; }
  int activation_slots(int chunk) const { return schedule_.in_flight[static_cast<size_t>(chunk)]; }

  SegmentPart make_part(const Graph& graph, const ChunkTask& task) const {
    SegmentPart part;
    part.name = name_of(task);
    part.kind = task.kind;
    part.chunk = task.chunk;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      if (tasks_[i] == task) part.nodes.push_back(&graph.nodes[i]);
    }
    const bool first = task == ChunkTask{};
    if (first) part.given = loaded(graph);
    std::set<ValueId> taken;
    for (const auto& crossing : crossings_) {
      if (crossing.to == task) {
        part.given.insert(part.given.end(), crossing.values.begin(), crossing.values.end());
      }
      if (crossing.from == task) taken.insert(crossing.values.begin(), crossing.values.end());
    }
    part.taken.assign(taken.begin(), taken.end());
    const auto made_here = [&](ValueId id) {
      const auto maker = maker_.find(id);
      return maker == maker_.end() ? first : maker->second == task;
    };
    if (made_here(graph.loss)) part.loss = graph.loss;
    for (const auto& metric : graph.metrics) {
      if (made_here(metric.value)) part.metrics.push_back(metric);
    }
    return part;
  }

  // The tensors of the batch that chunk 0 reads or hands on.
  std::vector<ValueId> loaded(const Graph& graph) const {
    std::set<ValueId> read;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      if (tasks_[i].chunk != 0) continue;
      for_each_input(graph.nodes[i], [&](ValueId id) { read.insert(id); });
    }
    for (const auto& crossing : crossings_) {
      read.insert(crossing.values.begin(), crossing.values.end());
    }
    for (const auto& metric : graph.metrics) read.insert(metric.value);
    std::vector<ValueId> values;
    for (const auto& leaf : graph.leaves) {
      const bool wanted = leaf.kind == Leaf::Kind::kInput && read.count(leaf.value) != 0;
      if (wanted) values.push_back(leaf.value);
    }
    return values;
  }

  void read_nodes(const Graph& graph) {
    tasks_ = tasks_of_nodes(graph, schedule_.splits_backward);
    maker_.clear();
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      for_each_output(graph.nodes[i], [&](ValueId id) { maker_[id] = tasks_[i]; });
    }
  }

  void build_stage(int stage) {
    const auto number = static_cast<size_t>(stage);
    const Graph& graph = *stages_[number].graph;
    const int group = stages_[number].group;
    read_nodes(graph);
    Program program;
    program.devices = stages_[number].devices;
    program.stage = group;
    add_leaves(graph, InputPlaces::kEachMicroBatch, program);
    std::map<ValueId, size_t> gradients;
    for (const auto& gradient : graph.gradients) {
      const ChunkTask& made = maker_.at(gradient.value);
      if (stage_of(made.chunk) != group) continue;
      gradients[gradient.value] = program.gradients.size();
      made_in_[{stage, static_cast<int>(program.gradients.size())}] = made;
      add_kept_gradient(graph, gradient, program);
    }
    std::vector<Regions> regions;  // one for each activation slot of each chunk
    int64_t shared = 0;
    for (int chunk = 0; chunk < schedule_.chunks(); ++chunk) {
      if (stage_of(chunk) != group) continue;
      Chunk& built = chunks_[number][chunk];
      for (int kind = 0; kind < kinds(); ++kind) {
        built.parts.push_back(make_part(graph, {static_cast<Task::Kind>(kind), chunk}));
      }
      for (int activation_slot = 0; activation_slot < activation_slots(chunk); ++activation_slot) {
        SegmentBuilder builder(graph, built.parts, gradients, program, options_.backend);
        build_activation_slot(built, activation_slot, builder, first_places_[number][chunk]);
        regions.push_back(builder.find_regions());
        shared = std::max(shared, regions.back().shared_bytes());
      }
    }
    int64_t end = program.arena_bytes;
    std::vector<int64_t> begins;
    for (const auto& each : regions) {
      begins.push_back(end);
      end += align_up(each.activations.places.total);
    }
    for (size_t i = 0; i < regions.size(); ++i) put(regions[i], end, begins[i], program);
    program.arena_bytes = end + shared;
    plan_.programs.push_back(std::move(program));
  }

  // Micro batch 0 keeps its gradients, the others add to them.
  void build_activation_slot(Chunk& chunk, int activation_slot, SegmentBuilder& builder,
                             std::map<ValueId, SlotId>& first_places) {
    std::vector<int> segments{builder.build(chunk.parts[0], Accumulation::kNext)};
    std::map<ValueId, SlotId> places;
    builder.mark();
    const bool comes_again =
        activation_slot > 0 || activation_slots(chunk.parts[0].chunk) < options_.micro_batches;
    if (comes_again) {
      for (int kind = 1; kind < kinds(); ++kind) {
        segments.push_back(
            builder.build(chunk.parts[static_cast<size_t>(kind)], Accumulation::kNext));
      }
      note_places(chunk, builder, places);
    }
    if (activation_slot == 0) {
      if (comes_again) builder.rewind();
      chunk.first_segments = {segments[0]};
      for (int kind = 1; kind < kinds(); ++kind) {
        SegmentPart part = chunk.parts[static_cast<size_t>(kind)];
        part.name += ", first";
        chunk.first_segments.push_back(builder.build(part, Accumulation::kFirst));
      }
      note_places(chunk, builder, first_places);
      if (!comes_again) segments = chunk.first_segments;
      if (!comes_again) places = first_places;
    }
    chunk.segments.push_back(std::move(segments));
    chunk.places.push_back(std::move(places));
  }

  static void note_places(const Chunk& chunk, SegmentBuilder& builder,
                          std::map<ValueId, SlotId>& places) {
    for (const auto& part : chunk.parts) {
      for (ValueId id : part.given) places[id] = builder.slot_of(id);
      for (ValueId id : part.taken) places[id] = builder.slot_of(id);
    }
  }

  void add_instructions(size_t stage) {
    Program& program = plan_.programs[stage];
    const auto group = static_cast<size_t>(stages_[stage].group);
    for (const auto& task : schedule_.stages[group]) add_task(stage, task, program);
  }

  void add_task(size_t stage, const Task& task, Program& program) {
    const ChunkTask here{task.kind, task.chunk};
    const Chunk& chunk = chunks_[stage].at(task.chunk);
    const auto activation_slot =
        static_cast<size_t>(task.micro_batch % activation_slots(task.chunk));
    const auto& places =
        task.micro_batch == 0 ? first_places_[stage].at(task.chunk) : chunk.places[activation_slot];
    if (here == ChunkTask{}) program.instructions.push_back(load(stage, task, places));
    for (size_t i = 0; i < plan_.transfers.size(); ++i) {
      const bool comes = crossing(i).to == here && plan_.transfers[i].to == static_cast<int>(stage);
      if (!comes) continue;
      program.instructions.push_back(move(Instruction::Kind::kReceive, i, task, places));
    }
    Instruction run;
    run.micro_batch = task.micro_batch;
    const auto& segments =
        task.micro_batch == 0 ? chunk.first_segments : chunk.segments[activation_slot];
    run.segment = segments[static_cast<size_t>(task.kind)];
    add_run(stage, here, run, program);
    for (size_t i = 0; i < plan_.transfers.size(); ++i) {
      const bool goes =
          crossing(i).from == here && plan_.transfers[i].from == static_cast<int>(stage);
      if (!goes) continue;
      program.instructions.push_back(move(Instruction::Kind::kSend, i, task, places));
    }
  }

  Instruction load(size_t stage, const Task& task, const std::map<ValueId, SlotId>& places) const {
    Instruction load;
    load.kind = Instruction::Kind::kLoad;
    load.micro_batch = task.micro_batch;
    for (const auto& leaf : stages_[stage].graph->leaves) {
      const auto place = places.find(leaf.value);
      const bool loads = leaf.kind == Leaf::Kind::kInput && place != places.end();
      load.slots.push_back(loads ? place->second : kNoSlot);
    }
    return load;
  }

  const Crossing& crossing(size_t transfer) const {
    return crossings_[crossing_of_transfer_[transfer]];
  }

  Instruction move(Instruction::Kind kind, size_t transfer, const Task& task,
                   const std::map<ValueId, SlotId>& places) const {
    Instruction instruction;
    instruction.kind = kind;
    instruction.micro_batch = task.micro_batch;
    instruction.transfer = static_cast<int>(transfer);
    for (ValueId id : crossing(transfer).values) instruction.slots.push_back(places.at(id));
    return instruction;
  }

  void add_run(size_t stage, const ChunkTask& task, const Instruction& run, Program& program) {
    const bool reduces = options_.replicas * program.devices > 1;
    const bool last = run.micro_batch + 1 == options_.micro_batches;
    LastRun pieces{run, {}, options_.most_reductions, reduces_early_};
    for (size_t i = 0; i < program.gradients.size(); ++i) {
      const auto index = static_cast<int>(i);
      const bool made = made_in_.at({static_cast<int>(stage), index}) == task;
      if (made && !plan_.is_tied(static_cast<int>(stage), index)) pieces.made.push_back(index);
    }
    if (!reduces || !last || pieces.made.empty()) {
      program.instructions.push_back(run);
    } else {
      add_last_run(pieces, program);
    }
  }

  const Graph& whole_;
  const std::vector<Stage>& stages_;
  const Schedule& schedule_;
  const LowerOptions& options_;
  const std::vector<Crossing> crossings_;
  std::vector<size_t> crossing_of_transfer_;
  std::vector<ChunkTask> tasks_;              // by node of the stage that is being built
  std::map<ValueId, ChunkTask> maker_;        // likewise
  std::vector<std::map<int, Chunk>> chunks_;  // by stage and chunk
  // By stage and chunk: of micro batch 0.
  std::vector<std::map<int, std::map<ValueId, SlotId>>> first_places_;
  std::map<std::pair<int, int>, ChunkTask> made_in_;  // by stage and gradient
  bool reduces_early_ = true;  // groups of gradients set out as a program reaches them
  Plan plan_;
};

}  // namespace

Plan lower_pipeline(const Graph& whole, const std::vector<Stage>& stages, const Schedule& schedule,
                    const LowerOptions& options) {
  return PipelineLowering(whole, stages, schedule, options).run();
}

}  // namespace epl

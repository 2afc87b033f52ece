#include "plan/offload.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/text.h"
#include "plan/window_leaves.h"
#include "program/near_bytes.h"

namespace epl {
namespace {

// A leaf, or the states that belong to it.
using Item = std::pair<int, bool>;

// Calls of a run, or an update.
struct Visit {
  size_t instruction = 0;
  int first_call = 0;  // of a run
  int end_call = 0;
  std::set<Item> items;
};

// What comes with each visit.
struct Moves {
  std::set<Item> fetched;  // before it, for a later one
  std::set<Item> awaited;  // before it
  std::set<Item> stored;   // after it
};

class OffloadedProgram {
 public:
  // `written`: adds the names of parameters that the step itself writes.
  OffloadedProgram(const OffloadOptions& options, Program& program, std::set<std::string>& written)
      : options_(options), program_(program), written_(written) {}

  void run() {
    mark_leaves();
    find_visits();
    if (visits_.empty()) return;
    find_moves();
    write();
  }

 private:
  // What a step writes itself is in memory from its first use on.
  void mark_leaves() {
    const std::set<int> written(program_.written_leaves.begin(), program_.written_leaves.end());
    for (size_t i = 0; i < program_.leaves.size(); ++i) {
      PlanLeaf& leaf = program_.leaves[i];
      const bool named = leaf.kind == PlanLeaf::Kind::kTensor && leaf.slot != kNoSlot &&
                         options_.parameters.count(leaf.name) != 0;
      leaf.offloaded = named && written.count(static_cast<int>(i)) == 0;
      if (named && !leaf.offloaded) written_.insert(leaf.name);
      const auto states = options_.states.find(leaf.name);
      if (leaf.offloaded && states != options_.states.end()) leaf.states = states->second;
    }
  }

  bool is_offloaded(int leaf) const { return program_.leaves[static_cast<size_t>(leaf)].offloaded; }
  int64_t bytes_of(const Item& item) const { return near_bytes(program_, item.first, item.second); }

  int64_t visit_bytes() const {
    int64_t all = 0;
    for (size_t i = 0; i < program_.leaves.size(); ++i) {
      if (program_.leaves[i].offloaded) all += bytes_of({static_cast<int>(i), false});
    }
    return std::min(options_.most_bytes, all / options_.visits);
  }

  void add_read(SlotId id, std::set<Item>& items) const {
    const Slot& slot = program_.slots[static_cast<size_t>(id)];
    const bool reads = slot.where == Slot::Where::kLeaf && is_offloaded(slot.index);
    if (reads) items.insert({slot.index, false});
  }

  std::set<Item> read_by(const Call& call) const {
    std::set<Item> items;
    for_each_operand(call, [&](SlotId id) { add_read(id, items); });
    return items;
  }

  void find_visits() {
    const int64_t most = visit_bytes();
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      const Instruction& each = program_.instructions[i];
      if (each.kind == Instruction::Kind::kRun) add_run(i, most);
      if (each.kind == Instruction::Kind::kUpdate) add_update(i);
    }
  }

  // A new visit begins with the call whose parameters are too many for the one before.
  void add_run(size_t index, int64_t most) {
    const Instruction& run = program_.instructions[index];
    const auto& calls = program_.segments[static_cast<size_t>(run.segment)].calls;
    const int end = std::min(run.end_call, static_cast<int>(calls.size()));
    Visit visit{index, run.first_call, run.first_call, {}};
    int64_t bytes = 0;
    for (int i = run.first_call; i < end; ++i) {
      int64_t more = 0;
      const std::set<Item> items = read_by(calls[static_cast<size_t>(i)]);
      for (const Item& item : items) more += visit.items.count(item) == 0 ? bytes_of(item) : 0;
      if (more > 0 && !visit.items.empty() && bytes + more > most) {
        visits_.push_back(visit);
        visit = {index, i, i, {}};
        bytes = 0;
        for (const Item& item : items) bytes += bytes_of(item);
      } else {
        bytes += more;
      }
      visit.items.insert(items.begin(), items.end());
      visit.end_call = i + 1;
    }
    visit.end_call = run.end_call;
    // Loss and metrics are read when the segment has run, and may be parameters or views of them.
    if (end == static_cast<int>(calls.size())) {
      const SegmentOutputs& outputs = program_.outputs[static_cast<size_t>(run.segment)];
      if (outputs.loss != kNoSlot) add_read(outputs.loss, visit.items);
      for (const auto& metric : outputs.metrics) add_read(metric.slot, visit.items);
    }
    visits_.push_back(visit);
  }

  void add_update(size_t index) {
    Visit visit{index, 0, 0, {}};
    for (int i : program_.instructions[index].gradients) {
      const int leaf = program_.gradients[static_cast<size_t>(i)].leaf;
      if (!is_offloaded(leaf)) continue;
      visit.items.insert({leaf, false});
      if (program_.leaves[static_cast<size_t>(leaf)].states > 0) visit.items.insert({leaf, true});
    }
    visits_.push_back(visit);
  }

  void find_moves() {
    moves_.resize(visits_.size());
    std::map<Item, std::vector<size_t>> uses;
    for (size_t i = 0; i < visits_.size(); ++i) {
      for (const Item& item : visits_[i].items) uses[item].push_back(i);
    }
    const auto ahead = static_cast<size_t>(options_.ahead);
    for (const auto& [item, visits] : uses) {
      for (size_t i = 0; i < visits.size(); ++i) {
        const size_t now = visits[i];
        const bool stayed = i > 0 && now - visits[i - 1] <= ahead + 1;
        if (!stayed) {
          moves_[now - std::min(now, ahead)].fetched.insert(item);
          moves_[now].awaited.insert(item);
        }
        const bool stays = i + 1 < visits.size() && visits[i + 1] - now <= ahead + 1;
        if (!stays) moves_[now].stored.insert(item);
      }
    }
  }

  static void append(Instruction::Kind kind, const std::set<Item>& items,
                     std::vector<Instruction>& made) {
    for (const bool states : {false, true}) {
      Instruction moves;
      moves.kind = kind;
      moves.states = states;
      for (const Item& item : items) {
        if (item.second == states) moves.leaves.push_back(item.first);
      }
      if (!moves.leaves.empty()) made.push_back(std::move(moves));
    }
  }

  // What a visit fetches comes right behind the visit before, so that it travels while something is
  // received or loaded; that of the first one at the begin of the program.
  void write() {
    std::vector<Instruction> made;
    append(Instruction::Kind::kFetch, moves_[0].fetched, made);
    size_t next = 0;
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      const bool has_visits = next < visits_.size() && visits_[next].instruction == i;
      if (!has_visits) made.push_back(program_.instructions[i]);
      for (; next < visits_.size() && visits_[next].instruction == i; ++next) write(next, made);
    }
    program_.instructions = std::move(made);
  }

  void write(size_t number, std::vector<Instruction>& made) const {
    const Visit& visit = visits_[number];
    append(Instruction::Kind::kWait, moves_[number].awaited, made);
    Instruction own = program_.instructions[visit.instruction];
    if (own.kind == Instruction::Kind::kRun) {
      own.first_call = visit.first_call;
      own.end_call = visit.end_call;
    }
    made.push_back(std::move(own));
    append(Instruction::Kind::kStore, moves_[number].stored, made);
    if (number + 1 < moves_.size()) {
      append(Instruction::Kind::kFetch, moves_[number + 1].fetched, made);
    }
  }

  const OffloadOptions& options_;
  Program& program_;
  std::set<std::string>& written_;
  std::vector<Visit> visits_;
  std::vector<Moves> moves_;  // by visit
};

}  // namespace

int update_groups(const OffloadOptions& options, const Program& program) {
  int64_t bytes = 0;
  for (const PlanGradient& gradient : program.gradients) {
    const std::string& name = program.leaves[static_cast<size_t>(gradient.leaf)].name;
    const auto states = options.states.find(name);
    const int64_t tensors = 1 + (states == options.states.end() ? 0 : states->second);
    bytes += tensors * near_bytes(program, gradient.leaf, /*states=*/false);
  }
  return std::max(options.visits, static_cast<int>(bytes / options.most_bytes) + 1);
}

void add_offload(const OffloadOptions& given, Plan& plan) {
  OffloadOptions options = given;
  if (options.medium == OffloadOptions::Medium::kHost) {
    for (const auto& [name, why] : leaves_without_window(plan)) {
      if (options.parameters.erase(name) != 0) options.staying.emplace(name, why);
    }
  }
  for (const auto& [name, why] : options.staying) {
    plan.remarks.push_back(concat("`", name, "` stays in memory: ", why));
  }
  if (!options.any()) return;
  std::set<std::string> written;
  for (Program& program : plan.programs) OffloadedProgram(options, program, written).run();
  for (const std::string& name : written) {
    plan.remarks.push_back(
        concat("`", name, "` is in memory throughout the step, which writes it itself"));
  }
}

}  // namespace epl

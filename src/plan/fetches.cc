#include "plan/fetches.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

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

class FetchPlacing {
 public:
  FetchPlacing(const FetchOptions& options, Program& program)
      : options_(options), program_(program) {}

  void run() {
    find_visits();
    if (visits_.empty()) return;
    find_moves();
    write();
  }

 private:
  const PlanLeaf& leaf(int index) const { return program_.leaves[static_cast<size_t>(index)]; }
  int64_t bytes_of(const Item& item) const { return near_bytes(program_, item.first, item.second); }

  int64_t visit_bytes() const {
    int64_t all = 0;
    for (size_t i = 0; i < program_.leaves.size(); ++i) {
      if (program_.leaves[i].is_fetched()) all += bytes_of({static_cast<int>(i), false});
    }
    return std::min(options_.most_bytes, all / options_.visits);
  }

  void add_read(SlotId id, std::set<Item>& items) const {
    const Slot& slot = program_.slots[static_cast<size_t>(id)];
    const bool reads = slot.where == Slot::Where::kLeaf && leaf(slot.index).is_fetched();
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

  // Of what is spread a worker updates what it keeps.
  void add_update(size_t index) {
    Visit visit{index, 0, 0, {}};
    for (int i : program_.instructions[index].gradients) {
      const int index = program_.gradients[static_cast<size_t>(i)].leaf;
      if (!leaf(index).offloaded) continue;
      visit.items.insert({index, false});
      if (leaf(index).states > 0) visit.items.insert({index, true});
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

  const FetchOptions& options_;
  Program& program_;
  std::vector<Visit> visits_;
  std::vector<Moves> moves_;  // by visit
};

}  // namespace

void add_fetches(const FetchOptions& options, Program& program) {
  FetchPlacing(options, program).run();
}

}  // namespace epl

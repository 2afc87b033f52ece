#include "state/state_map.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/check.h"
#include "base/text.h"

namespace epl {
namespace {

const char* word_of(StateKind kind) {
  switch (kind) {
    case StateKind::kParameter:
      return "parameter";
    case StateKind::kBuffer:
      return "buffer";
    case StateKind::kOptimizerState:
      return "state";
  }
  EPL_ASSERT(false, "a kind of state that is not known");
}

const char* word_of(StateMedium medium) {
  switch (medium) {
    case StateMedium::kMemory:
      return "memory";
    case StateMedium::kPages:
      return "pages";
    case StateMedium::kHost:
      return "host";
    case StateMedium::kFile:
      return "file";
  }
  EPL_ASSERT(false, "a medium that is not known");
}

std::string some(const std::string& what, const std::vector<int>& numbers) {
  return concat(what, numbers.size() == 1 ? " " : "s ", join(numbers, " "));
}

std::string print_home(const StateEntry& entry, const Placement& placement,
                       const ClusterShape& cluster) {
  if (!entry.home) return "R on all workers";
  if (entry.home->roles.empty()) {
    return entry.layout().str() + " in roles of another trainer";
  }
  const bool owned = entry.kind == StateKind::kOptimizerState && !entry.home->owners.are_all();
  if (!entry.layout().is_cut()) {
    return concat(owned ? "R" + print_owners(entry.home->owners) : "R", " in ",
                  some("role", entry.home->roles), " on ",
                  some("worker", StateMap::workers_of(entry, placement, cluster)));
  }
  std::vector<std::string> pieces;
  for (size_t i = 0; i < entry.home->roles.size(); ++i) {
    const int role = entry.home->roles[i];
    pieces.push_back(concat(role, print_shard(entry.shard(i)), " on ",
                            some("worker", placement.workers_of(role, cluster))));
  }
  return concat(entry.layout().str(), owned ? print_owners(entry.home->owners) : "",
                pieces.size() == 1 ? " in role " : " in roles ", join(pieces, ", "));
}

// Roles that only read it are told of: they have to be brought what others change.
std::string print_readers(const StateEntry& entry) {
  std::vector<int> only;
  for (int reader : entry.readers) {
    const bool changes =
        entry.home && std::count(entry.home->roles.begin(), entry.home->roles.end(), reader) != 0;
    if (!changes) only.push_back(reader);
  }
  return only.empty() ? "" : concat(", read by ", some("role", only));
}

}  // namespace

Shard StateEntry::shard(size_t index) const {
  return layout().is_cut() ? home->shards[index] : Shard();
}

void StateMap::add(StateEntry entry) {
  while (!by_name_.emplace(entry.name, entries_.size()).second) entry.name += "'";
  const bool is_state = entry.kind == StateKind::kOptimizerState;
  by_parameter_[is_state ? entry.parameter : entry.name].push_back(entries_.size());
  entries_.push_back(std::move(entry));
}

const StateEntry* StateMap::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

std::optional<Layout> StateMap::layout_of(const std::string& name) const {
  const StateEntry* const entry = find(name);
  if (entry == nullptr || !entry->home) return std::nullopt;
  return entry->layout();
}

std::vector<size_t> StateMap::with_states(const std::string& parameter) const {
  const auto found = by_parameter_.find(parameter);
  return found == by_parameter_.end() ? std::vector<size_t>() : found->second;
}

void StateMap::place(const std::string& parameter, const Home& home) {
  for (size_t index : with_states(parameter)) entries_[index].home = home;
}

void StateMap::rest_in(StateMedium medium, const std::string& parameter, States states) {
  for (size_t index : with_states(parameter)) {
    StateEntry& entry = entries_[index];
    const bool is_state = entry.kind == StateKind::kOptimizerState;
    if (!is_state || states == States::kGoAlong) entry.medium = medium;
  }
}

void StateMap::place(const Plan& plan) {
  if (plan.programs.empty()) return;
  const auto& leaves = plan.programs[0].leaves;
  for (const auto& [leaf, home] : homes_of(plan)) {
    place(leaves[static_cast<size_t>(leaf)].name, home);
  }
  for (StateEntry& entry : entries_) entry.readers.clear();
  std::map<std::string, Home> written;  // buffers
  for (size_t number = 0; number < plan.roles(); ++number) {
    const PlanRole role = plan.role(number);
    const Program& program = role.program;
    std::set<int> read;
    for (const Segment& segment : program.segments) {
      for (const Call& call : segment.calls) {
        for_each_operand(call, [&](SlotId id) {
          const Slot& slot = program.slots[static_cast<size_t>(id)];
          if (slot.where == Slot::Where::kLeaf) read.insert(slot.index);
        });
      }
    }
    for (int leaf : read) {
      const auto found = by_name_.find(program.leaves[static_cast<size_t>(leaf)].name);
      if (found == by_name_.end()) continue;
      entries_[found->second].readers.push_back(static_cast<int>(number));
    }
    for (int leaf : program.written_leaves) {
      const PlanLeaf& own = program.leaves[static_cast<size_t>(leaf)];
      Home& home = written[own.name];
      home.roles.push_back(static_cast<int>(number));
      if (own.shard.is_cut()) home.shards.push_back(role.shard(leaf));
    }
  }
  for (const auto& [name, home] : written) {
    const auto found = by_name_.find(name);
    if (found == by_name_.end() || entries_[found->second].kind != StateKind::kBuffer) continue;
    entries_[found->second].home = home;
  }
}

std::vector<int> StateMap::workers_of(const StateEntry& entry, const Placement& placement,
                                      const ClusterShape& cluster) {
  std::vector<int> all(static_cast<size_t>(cluster.worker_num));
  std::iota(all.begin(), all.end(), 0);
  if (!entry.home || entry.home->roles.empty()) return all;
  std::set<int> workers;
  for (int role : entry.home->roles) {
    for (int worker : placement.workers_of(role, cluster)) workers.insert(worker);
  }
  return {workers.begin(), workers.end()};
}

std::map<int, Home> homes_of(const Plan& plan) {
  std::map<int, Home> homes;
  for (size_t number = 0; number < plan.roles(); ++number) {
    const PlanRole role = plan.role(number);
    for (const PlanGradient& gradient : role.program.gradients) {
      Home& home = homes[gradient.leaf];
      if (!home.roles.empty() && home.roles.back() == static_cast<int>(number)) continue;
      home.roles.push_back(static_cast<int>(number));
      const PlanLeaf& own = role.program.leaves[static_cast<size_t>(gradient.leaf)];
      if (own.shard.is_cut()) home.shards.push_back(role.shard(gradient.leaf));
      home.owners = gradient.owners;
      EPL_ASSERT(home.shards.empty() || home.shards.size() == home.roles.size(),
                 concat("`", own.name, "` is whole in one role and cut in another"));
    }
  }
  return homes;
}

std::string print_state_map(const StateMap& map, const Placement& placement,
                            const ClusterShape& cluster) {
  std::string text;
  for (const StateEntry& entry : map.entries()) {
    text += concat(word_of(entry.kind), " ", entry.name, " ", print_type(entry.type), ": ",
                   print_home(entry, placement, cluster), ", ", word_of(entry.medium),
                   print_readers(entry), "\n");
  }
  return text;
}

}  // namespace epl

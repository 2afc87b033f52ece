// StateMap: what a model keeps from step to step, by name, and where it lies.
//
//   parameter decoder.weight f32[8,4]: R in programs 0 1 on workers 0 1, memory
//   state decoder.weight/exp_avg f32[8,4]: R in programs 0 1 on workers 0 1, pages
//   parameter expert.weight f32[8,4]: S(0) in programs 0 [0:4 of 8 in dim 0] on worker 0,
//       1 [4:8 of 8 in dim 0] on worker 1, memory                       (one line each)
//   buffer norm.running_mean f32[4]: R in program 0 on worker 0, memory
//   parameter frozen.weight f32[4,4]: R on all workers, memory
//
// A trainer makes it of its model (model/model_state.h), of where earlier steps put things and of
// the Plan that runs. It goes into compile(), which leaves things where they are, and what a Plan
// says of where they lie comes out of it by place(). It knows names, programs and workers, and no
// tensors, so that two workers, or a file and a job of another shape, can compare theirs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "layout/layout.h"
#include "layout/shard.h"
#include "layout/state_home.h"
#include "layout/tensor_type.h"
#include "program/placement.h"
#include "program/program.h"

namespace epl {

enum class StateKind : uint8_t { kParameter, kBuffer, kOptimizerState };

// What holds the bytes. Pages are memory that takes room as it is written: what other workers hold
// of such a tensor takes none here (runtime/pages.h).
enum class StateMedium : uint8_t { kMemory, kPages, kHost, kFile };

// Tensors with fewer bytes take all of their memory at once: a mapping of their own would cost more
// than it can save.
inline constexpr int64_t kLeastPagedBytes = 1 << 20;
// Of one of which several workers keep ranges (plan/zero.h), which is worth it earlier.
inline constexpr int64_t kLeastSharedBytes = 1 << 16;

struct StateEntry {
  std::string name;  // "decoder.weight"; of an optimizer's state "decoder.weight/exp_avg"
  StateKind kind = StateKind::kParameter;
  TensorType type = {};  // of the whole
  StateMedium medium = StateMedium::kMemory;
  std::string parameter = {};  // whose state it is
  // The programs that change it, each with its shard where it is cut; none are named where those of
  // another trainer do. No home: no step has changed it, so that every worker has all of it.
  std::optional<Home> home = {};
  std::vector<int> readers = {};  // programs that read it, whether they change it or not

  Layout layout() const {
    return home && !home->shards.empty() ? Layout::cut(home->shards[0].dim) : Layout::whole();
  }
  // What a program of `home` has of it.
  Shard shard(size_t index) const;
};

class StateMap {
 public:
  // In the order in which they were added. Each name comes once: one that is there already gets a
  // mark.
  const std::vector<StateEntry>& entries() const { return entries_; }
  void add(StateEntry entry);
  const StateEntry* find(const std::string& name) const;  // null where there is none

  // How a tensor lies that some step has changed; none where it may lie in any way.
  std::optional<Layout> layout_of(const std::string& name) const;

  // A parameter lies at `home` from now on, and so do the states of its optimizers.
  void place(const std::string& parameter, const Home& home);
  // A parameter rests elsewhere than in memory, and so do the states of its optimizers where that
  // is said.
  enum class States : uint8_t { kStay, kGoAlong };
  void rest_in(StateMedium medium, const std::string& parameter, States states);
  // As a Plan says for all that it changes; who reads what is said anew. Whatever else there is
  // stays where it is.
  void place(const Plan& plan);

  // The workers that change it, in order: all where no step has.
  static std::vector<int> workers_of(const StateEntry& entry, const Placement& placement,
                                     const ClusterShape& cluster);

 private:
  std::vector<size_t> with_states(const std::string& parameter) const;

  std::vector<StateEntry> entries_;
  std::map<std::string, size_t> by_name_;
  std::map<std::string, std::vector<size_t>> by_parameter_;  // it and its states
};

// Where the gradients of a Plan's parameters are, by leaf: the home that its update gives each.
std::map<int, Home> homes_of(const Plan& plan);

// One line an entry.
std::string print_state_map(const StateMap& map, const Placement& placement,
                            const ClusterShape& cluster);

}  // namespace epl

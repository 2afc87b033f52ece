#include "plan/list_schedule.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "program/task_table.h"

namespace epl {
namespace {

using Kind = Task::Kind;

constexpr double kNever = std::numeric_limits<double>::infinity();

class ListScheduler {
 public:
  ListScheduler(Schedule frame, const std::vector<TaskCosts>& costs, const ListPolicy& policy)
      : schedule_(std::move(frame)),
        costs_(costs),
        policy_(policy),
        stages_(schedule_.stages.size()),
        chunks_(schedule_.stage_of_chunk.size()),
        ends_(schedule_.chunks(), schedule_.micro_batches, kNever) {
    double total = 0;
    for (int chunk = 0; chunk < schedule_.chunks(); ++chunk) {
      at(stages_, schedule_.stage_of(chunk)).chunks.push_back(chunk);
      for (Kind kind : kKinds) total += duration_of({kind, chunk, 0}, costs_, true);
    }
    same_time_ = 1e-9 * total;
  }

  ListedSchedule run() {
    for (auto& stage : stages_) choose(stage);
    while (true) {
      const auto first = std::min_element(
          stages_.begin(), stages_.end(),
          [](const Stage& a, const Stage& b) { return a.choice.begin < b.choice.begin; });
      if (first->choice.begin == kNever) break;
      take(*first);
    }
    double seconds = 0;
    for (const Stage& stage : stages_) seconds = std::max(seconds, stage.free);
    schedule_.in_flight = count_in_flight(schedule_);
    return {std::move(schedule_), seconds};
  }

 private:
  static constexpr Kind kKinds[] = {Kind::kBackward, Kind::kForward, Kind::kWeights};

  struct Choice {
    double begin = kNever;
    Task task;
  };
  struct Chunk {
    int begun[3] = {0, 0, 0};  // by kind
  };
  struct Stage {
    std::vector<int> chunks;
    double free = 0;  // from when on
    Choice choice;    // what it does next as far as is known
  };

  template <typename T>
  static T& at(std::vector<T>& values, int index) {
    return values[static_cast<size_t>(index)];
  }
  template <typename T>
  static const T& at(const std::vector<T>& values, int index) {
    return values[static_cast<size_t>(index)];
  }

  int begun(int chunk, Kind kind) const {
    return at(chunks_, chunk).begun[static_cast<size_t>(kind)];
  }

  bool within_limits(int chunk) const {
    const int forwards = begun(chunk, Kind::kForward);
    const Kind last = schedule_.splits_backward ? Kind::kWeights : Kind::kBackward;
    return forwards - begun(chunk, Kind::kBackward) < at(policy_.most_active, chunk) &&
           forwards - begun(chunk, last) < at(policy_.most_in_flight, chunk);
  }

  // When the stage can begin its next task of the kind, if what it needs is already under way.
  Choice next(const Stage& stage, int chunk, Kind kind) const {
    Choice choice{stage.free, {kind, chunk, begun(chunk, kind)}};
    const bool skipped = kind == Kind::kWeights && !schedule_.splits_backward;
    const bool exists = choice.task.micro_batch < schedule_.micro_batches && !skipped;
    if (!exists || (kind == Kind::kForward && !within_limits(chunk))) return {};
    for (const Task& need : needs(choice.task, schedule_.chunks())) {
      const bool stays = schedule_.stage_of(need.chunk) == schedule_.stage_of(chunk);
      choice.begin = std::max(choice.begin, ends_[need] + (stays ? 0 : policy_.transfer));
    }
    return choice;
  }

  // Of two tasks that can begin at the same time the one of smaller rank comes first.
  static std::pair<int, int> rank(const Task& task) {
    switch (task.kind) {
      case Kind::kBackward:
        return {0, task.chunk};
      case Kind::kForward:
        return {1, -task.chunk};
      case Kind::kWeights:
        break;
    }
    return {2, task.chunk};
  }

  bool comes_before(const Choice& a, const Choice& b) const {
    if (a.begin < b.begin - same_time_) return true;
    return a.begin <= b.begin + same_time_ && rank(a.task) < rank(b.task);
  }

  void choose(Stage& stage) {
    Choice best;
    for (Kind kind : {Kind::kBackward, Kind::kForward}) best = earliest(stage, kind, best);
    const Choice weights = earliest(stage, Kind::kWeights, {});
    const double waits = policy_.patience * duration_of(weights.task, costs_, true);
    if (weights.begin + waits + same_time_ < best.begin) best = weights;
    stage.choice = best;
  }

  Choice earliest(const Stage& stage, Kind kind, Choice best) const {
    for (int chunk : stage.chunks) {
      const Choice choice = next(stage, chunk, kind);
      if (choice.begin < kNever && comes_before(choice, best)) best = choice;
    }
    return best;
  }

  void take(Stage& stage) {
    const Choice choice = stage.choice;
    const Task& task = choice.task;
    stage.free = choice.begin + duration_of(task, costs_, schedule_.splits_backward);
    ends_[task] = stage.free;
    ++at(chunks_, task.chunk).begun[static_cast<size_t>(task.kind)];
    at(schedule_.stages, schedule_.stage_of(task.chunk)).push_back(task);
    for (int chunk = task.chunk - 1; chunk <= task.chunk + 1; ++chunk) {
      if (chunk < 0 || chunk >= schedule_.chunks()) continue;
      choose(at(stages_, schedule_.stage_of(chunk)));
    }
  }

  Schedule schedule_;
  const std::vector<TaskCosts>& costs_;
  const ListPolicy& policy_;
  std::vector<Stage> stages_;
  std::vector<Chunk> chunks_;
  TaskTable<double> ends_;
  double same_time_ = 0;  // sums of the same costs in another order
};

}  // namespace

double duration_of(const Task& task, const std::vector<TaskCosts>& costs, bool splits_backward) {
  const TaskCosts& cost = costs[static_cast<size_t>(task.chunk)];
  switch (task.kind) {
    case Kind::kForward:
      return cost.forward;
    case Kind::kBackward:
      return splits_backward ? cost.backward : cost.backward + cost.weights;
    case Kind::kWeights:
      return cost.weights;
  }
  return 0;
}

ListedSchedule list_schedule(Schedule frame, const std::vector<TaskCosts>& costs,
                             const ListPolicy& policy) {
  return ListScheduler(std::move(frame), costs, policy).run();
}

}  // namespace epl

#include "program/schedule_times.h"

#include <algorithm>

#include "base/check.h"
#include "program/task_table.h"

namespace epl {
namespace {

constexpr double kNotYet = -1;

// Walks all stages at once, each as far as the others let it.
class Walk {
 public:
  Walk(const Schedule& schedule, const TaskDurations& durations)
      : schedule_(schedule),
        durations_(durations),
        times_(schedule.stages.size()),
        ends_(schedule.chunks(), schedule.micro_batches, kNotYet) {}

  // Whether the stage's next task has all it needs; if so it has run.
  bool advance(size_t stage) {
    auto& done = times_[stage];
    if (done.size() == schedule_.stages[stage].size()) return false;
    const Task& task = schedule_.stages[stage][done.size()];
    TaskTime time;
    double arrived = 0;
    for (const Task& need : needs(task, schedule_.chunks())) {
      const double made = ends_[need];
      if (made == kNotYet) return false;
      const double arrives = made + transfer(need, task);
      if (arrives < arrived) continue;
      arrived = arrives;
      time.made = made;
    }
    time.begin = std::max(arrived, done.empty() ? 0 : done.back().end);
    time.end = time.begin + durations_.task(task);
    ends_[task] = time.end;
    done.push_back(time);
    return true;
  }

  // "stage 0 at B0 of chunk 0, stage 1 at F1 of chunk 1"; empty if all tasks have run.
  std::string stuck() const {
    std::vector<std::string> places;
    for (size_t stage = 0; stage < times_.size(); ++stage) {
      const auto& tasks = schedule_.stages[stage];
      if (times_[stage].size() == tasks.size()) continue;
      places.push_back(concat("stage ", stage, " at ", str(tasks[times_[stage].size()])));
    }
    return join(places, ", ");
  }

  std::vector<std::vector<TaskTime>> take_times() { return std::move(times_); }

 private:
  double transfer(const Task& from, const Task& to) const {
    const bool stays = schedule_.stage_of(from.chunk) == schedule_.stage_of(to.chunk);
    return stays || !durations_.transfer ? 0 : durations_.transfer(from, to);
  }

  const Schedule& schedule_;
  const TaskDurations& durations_;
  std::vector<std::vector<TaskTime>> times_;
  TaskTable<double> ends_;
};

}  // namespace

std::vector<std::vector<TaskTime>> task_times(const Schedule& schedule,
                                              const TaskDurations& durations) {
  Walk walk(schedule, durations);
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t stage = 0; stage < schedule.stages.size(); ++stage) {
      while (walk.advance(stage)) progress = true;
    }
  }
  EPL_ASSERT(walk.stuck().empty(), "stages wait for each other: " + walk.stuck());
  return walk.take_times();
}

double last_end(const std::vector<std::vector<TaskTime>>& times) {
  double last = 0;
  for (const auto& stage : times) {
    if (!stage.empty()) last = std::max(last, stage.back().end);
  }
  return last;
}

}  // namespace epl

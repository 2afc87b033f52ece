// TaskTable: a value for each task that a schedule may have.
#pragma once

#include <vector>

#include "program/schedule.h"

namespace epl {

template <typename T>
class TaskTable {
 public:
  TaskTable(int chunks, int micro_batches, T initial)
      : chunks_(static_cast<size_t>(chunks)),
        micro_batches_(static_cast<size_t>(micro_batches)),
        values_(kKinds * chunks_ * micro_batches_, initial) {}

  T& operator[](const Task& task) { return values_[index(task)]; }
  const T& operator[](const Task& task) const { return values_[index(task)]; }

 private:
  static constexpr size_t kKinds = 3;

  size_t index(const Task& task) const {
    return (static_cast<size_t>(task.kind) * chunks_ + static_cast<size_t>(task.chunk)) *
               micro_batches_ +
           static_cast<size_t>(task.micro_batch);
  }

  size_t chunks_;
  size_t micro_batches_;
  std::vector<T> values_;
};

}  // namespace epl

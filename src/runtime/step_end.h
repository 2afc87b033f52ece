// StepEnd: runs the end of a step, phase by phase, for all devices of this worker.
//
// Which phases there are, and in which order, stands in the Plan (program/step_end.h). What each of
// them does is known to whoever has the gradients, the optimizers and the ways to other workers.
#pragma once

#include <vector>

#include "program/step_end.h"

namespace epl {

class StepEnd {
 public:
  virtual ~StepEnd() = default;

  // Whether the step was updated: not where its loss was refused by check().
  bool run(const std::vector<EndPhase>& phases);

 protected:
  virtual void report() = 0;
  virtual void merge_state() = 0;
  virtual void clip_replicas() = 0;
  virtual void reduce() = 0;
  virtual void reduce_tied() = 0;
  virtual void await() = 0;
  virtual bool check() = 0;
  virtual void clip_reduced() = 0;
  virtual void update() = 0;
  virtual void gather() = 0;

 private:
  void run(const EndPhase& phase);
  bool refused_ = false;
};

}  // namespace epl

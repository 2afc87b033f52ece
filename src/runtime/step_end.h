// StepEnd: runs the end of a step, phase by phase, for all devices of this worker.
//
// Which phases there are, in which order and on what they work stands in the Plan
// (program/step_end.h). What a loss is reported as, and whether one that is not finite ends the
// step, is for whoever runs steps to say.
#pragma once

#include <functional>

#include "runtime/bound_step.h"
#include "runtime/clip.h"
#include "runtime/update.h"

namespace epl {

struct StepEndRequest {
  std::function<Update&(size_t optimizer)> update_of;
  ClipOptions clip = {};
  // What a replica's own gradient is of the one that it hands in: its share of the mean.
  double local_scale = 1;
  // Somebody looks at the gradients of all devices after the step: they are summed before they are
  // used, where the update would else sum them as it reads them.
  bool keeps_sums = false;
};

class StepEnd {
 public:
  StepEnd(BoundStep& step, StepEndRequest request) : step_(step), request_(std::move(request)) {}
  virtual ~StepEnd() = default;
  StepEnd(const StepEnd&) = delete;
  StepEnd& operator=(const StepEnd&) = delete;

  // Whether the step was updated: not where its loss was refused, or a gradient is not finite.
  bool run();

  // Of the reduced gradients, before they are clipped; 0 where nobody asked for it.
  double gradient_norm() const { return gradient_norm_; }

 protected:
  // Loss and metrics of all become one.
  virtual void report() = 0;
  // Whether a step with this loss is to be updated.
  virtual bool accepts_loss() = 0;
  // Around each phase that is run.
  virtual void before(const EndPhase& /*phase*/) {}
  virtual void after(const EndPhase& /*phase*/) {}

 private:
  void run(const BoundPhase& bound);
  void clip_replicas(const BoundPhase& bound);
  void clip_reduced(const BoundPhase& bound);
  void reduce_tied(const BoundPhase& bound);
  bool are_all_finite(const BoundPhase& bound) const;
  void unscale(const std::vector<at::Tensor>& gradients);
  void update(const BoundPhase& bound);
  void update_group(size_t group);
  void sum();

  BoundStep& step_;
  const StepEndRequest request_;
  double gradient_norm_ = 0;
  bool refused_ = false;
  bool unscaled_ = false;  // gradients have been divided by the loss scale
  bool summed_ = false;
};

}  // namespace epl

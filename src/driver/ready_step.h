// A step that was recorded and compiled for one shape of batch, bound to the devices of this worker
// (runtime/bound_step.h), with what only a trainer knows of it.
#pragma once

#include <memory>
#include <vector>

#include "capture/capture.h"
#include "compile/compile.h"
#include "model/model.h"
#include "runtime/bound_step.h"
#include "state/gradient_history.h"
#include "state/state_snapshot.h"

namespace epl {

// What the programs of a compiled step read of the user's.
BoundLeaves bound_leaves(const CompiledStep& step);

class ReadyStep {
 public:
  ReadyStep(CompiledStep step, const Capture& capture, const BoundStep::Where& where);

  const CompiledStep& compiled() const { return compiled_; }
  BoundStep& bound() { return bound_; }
  const BoundStep& bound() const { return bound_; }
  const Plan& plan() const { return compiled_.plan; }
  const Placement& placement() const { return bound_.placement(); }
  Place place(int device) const { return bound_.place(device); }  // of a device of this worker
  double recorded_loss() const { return recorded_loss_; }
  bool draws_random_numbers() const { return draws_random_numbers_; }

  // What a run of it changes besides its results.
  StateSnapshot snapshot() const;

  // A variable that the step function reads holds another tensor, or other memory, than when it was
  // recorded.
  bool out_of_date() const;

  // Whether the user's tensors still have the types of the recording: not after net->to(kDouble),
  // or where a parameter was replaced by one of another shape.
  bool leaves_are_as_recorded() const;

  // Parameters in `history` that this step gives no gradient go on with zeros; what it gives one is
  // added. Throws epl::Error where an optimizer's own step() would be given pieces of a parameter
  // that is cut over workers: it may look at the whole, at a norm for one.
  void bind_updates(Model& model, GradientHistory& history, Gather gather);
  // All workers have the same plan: from now on its parameters have the owners that it names.
  void settle_owners(GradientHistory& history) const;

  bool replayed = false;  // and compared with the recorded loss
  // The same step with all kept that backward reads, until its gradients were compared with those
  // of this one; null where nobody asks for that, or nothing runs again.
  std::unique_ptr<CompiledStep> all_kept;
  int sample = 0;         // the micro batch of this worker that was recorded
  int64_t last_used = 0;  // in which step

 private:
  void check_updates_of_pieces(Model& model) const;

  mutable bool settled_ = false;  // the history knows the owners of its parameters

  const CompiledStep compiled_;
  BoundStep bound_;
  const double recorded_loss_;
  const bool draws_random_numbers_;
  const std::vector<ClosedOver> closed_over_;
  std::vector<HeldUnseen> held_unseen_;
};

}  // namespace epl

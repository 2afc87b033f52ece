// BoundStep: a Plan bound to the devices of this worker, to the user's tensors and to the routes
// between workers.
//
//   BoundStep step(plan, leaves, {replicas, connections, exchange_options});
//   step.bind_updates(optimizers);
//   step.hand_out_state();
//   step.begin(number);
//   team.run([&](int device) { step.run(device, &micro_batches, runs[device]); });
//   step.finish();
//   ... StepEnd (runtime/step_end.h) does the rest of the step
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "program/step_end.h"
#include "runtime/connections.h"
#include "runtime/executor.h"
#include "runtime/gradient_exchange.h"
#include "runtime/held_parameters.h"
#include "runtime/interpreter.h"
#include "runtime/leaf_homes.h"
#include "runtime/local_replicas.h"
#include "runtime/spread_leaves.h"
#include "runtime/stage_mail.h"
#include "runtime/step_gradients.h"
#include "runtime/written_state.h"

namespace epl {

// The user's tensors that a plan reads: undefined for inputs and the seed.
struct BoundLeaves {
  struct Leaf {
    at::Tensor tensor;
    bool is_parameter = false;
  };
  std::vector<at::Tensor> users;            // by leaf: as the user has them
  std::vector<std::vector<Leaf>> of_roles;  // by role and leaf; constants may differ
};

// A phase of the step's end with what its instructions name, found once.
struct BoundPhase {
  EndPhase phase;
  std::vector<size_t> entries;  // of StepGradients: what is clipped, or summed over roles
  // Of each entry, where it is summed over roles: the workers that have some; null: this alone.
  std::vector<Communicator*> workers;
  // Of each entry, where reduced gradients of several workers are clipped: whether this one answers
  // for it, so that each counts once in their norm. `counts_scattered`: where sums come to owners.
  std::vector<bool> counts;
  std::vector<bool> counts_scattered;
};

class BoundStep {
 public:
  using SpreadOf = std::function<std::shared_ptr<SpreadTensor>(const at::Tensor& tensor)>;
  struct Where {
    LocalReplicas& replicas;
    Connections& connections;
    ExchangeOptions exchange;
    TensorHomes* homes = nullptr;  // of what is offloaded
    // The memory of parameters that are, or were, spread over workers; null for others.
    SpreadOf spread_of = [](const at::Tensor& /*tensor*/) { return nullptr; };
  };
  // The plan outlives it.
  BoundStep(const Plan& plan, BoundLeaves leaves, const Where& where);

  const Plan& plan() const { return plan_; }
  const Placement& placement() const { return connections_.placement(); }
  const Connections& connections() const { return connections_; }
  StepGradients& gradients() { return *gradients_; }
  const StepGradients& gradients() const { return *gradients_; }
  DeviceTeam& team() const { return replicas_.team; }
  int devices() const { return replicas_.size(); }  // of this worker

  // Of a device of this worker.
  Place place(int device) const { return placement().place(replicas_.first + device); }
  const Program& program(int device) const {
    return plan_.program_of(static_cast<size_t>(place(device).role));
  }

  // Binds anew what lies elsewhere than it did. Returns whether anything did.
  bool rebind_if_moved();

  // `others`: which of the parameters that go on without a gradient are gathered.
  void bind_updates(const StepOptimizers& optimizers, Gather others);

  struct Start {
    int64_t step = 0;
    // The seed of the step is multiplied by it: 1 unless the plan says that it scales its loss.
    double loss_scale = 1;
    // Sums of gradients come to all workers, and not to their owners alone, since somebody compares
    // them.
    bool sums_to_all = false;
    // For updates before the end of the step (kUpdateEarly).
    std::function<Update&(size_t optimizer)> update_of = {};
  };
  // Before and after all devices have run.
  void begin(const Start& start);
  void finish();
  void give_up() { connections_.renew_groups(); }  // where a device has failed
  // On the thread of `device`: its program up to the end of the step. `micro_batches`: null where
  // its stage does not read the batch.
  void run(int device, const std::vector<Batch>* micro_batches, DeviceRun& result);

  // The tensor of a leaf, as the user has it.
  const at::Tensor& user_tensor(int leaf) const { return leaves_.users[static_cast<size_t>(leaf)]; }

  // What ends the step on this worker. StepEnd calls the handlers below.
  const std::vector<BoundPhase>& end() const { return end_; }
  bool clips_each_replica() const;
  double loss_scale() const { return loss_scale_; }

  // Groups of gradients that set out only after the run do so now.
  void start_reductions(const EndPhase& reduce);
  void wait_for_reductions();

  // State that the step writes (running statistics) is the user's own on the first device of its
  // stage and a copy on the others: handed out before the run, and brought together after it,
  // before the update.
  void hand_out_state();
  void merge_state(const EndPhase& merge);

  // Parameters that other workers of a role have updated.
  void gather_from_owners() const;

  // Fetch, wait or store among the updates of a role, for all of its devices here.
  void bring(int role, const Instruction& instruction) const;
  // Throws where something that is offloaded could not be written.
  void check_written() const {
    if (homes_ != nullptr) homes_->check_written();
  }
  // After an update, also one that failed: the user's tensors hold what it wrote.
  void write_back() const {
    if (homes_ != nullptr) homes_->write_back();
  }

  // What is spread stays where it is.
  void gather() const { gathering_.run(stays_spread()); }
  // Beside a step; all workers call it.
  void gather(Gather which) const;

 private:
  void make_executors();
  void make_exchanges(const ExchangeOptions& options);
  void update_early(int role, const Instruction& update) EPL_EXCLUDES(updating_);
  void make_gradients();
  std::vector<at::Tensor> leaves_for(int device);
  void bind_windows();
  void make_homes(TensorHomes& homes);
  LeafHomes::Device number_in_role(int device) const;
  const BoundLeaves::Leaf& leaf(size_t role, int index) const;
  bool owns_state(size_t role, int index) const;
  WrittenState::Merge merge_of(size_t role, int index) const;
  WrittenState written_state(size_t role, int index) const;
  at::Tensor piece_of_state(size_t role, int index, const at::Tensor& whole) const;
  Executor::GivenRows given_rows(int device) const;
  void make_groups();
  void make_spread();
  at::Tensor memory_of(const at::Tensor& leaf) const;
  Gathering::Stays stays_spread() const;
  void check_state() const;
  void check_updated_early() const;
  std::vector<int> devices_of_role(size_t role) const;
  void bind_end();
  std::vector<bool> counts_of(const std::vector<size_t>& entries, bool scattered) const;

  const Plan& plan_;
  const BoundLeaves leaves_;
  LocalReplicas& replicas_;
  Connections& connections_;
  std::unique_ptr<LeafHomes> homes_;  // null where nothing is offloaded
  const SpreadOf spread_of_;
  std::vector<std::unique_ptr<SpreadLeaves>> spread_;  // by role; null where nothing is spread
  // Devices other than the first of their role: a copy of each leaf in Program::written_leaves.
  std::vector<std::vector<at::Tensor>> own_state_;
  // By role and written leaf, where it decides how they are merged: what was there before the run.
  std::vector<std::vector<at::Tensor>> state_before_;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::vector<std::unique_ptr<GradientExchange>> exchanges_;  // by role; null where none is here
  std::unique_ptr<StageMail> mail_;                           // null where there is one stage
  std::vector<Interpreter> interpreters_;                     // by device
  std::unique_ptr<StepGradients> gradients_;
  std::vector<BoundPhase> end_;
  Gathering gathering_;
  double loss_scale_ = 1;  // of the step that runs
  bool moved_ = false;     // tensors have other addresses, and nobody was told yet
  std::function<Update&(size_t optimizer)> update_of_;
  Mutex updating_;  // groups come on several lanes, and an Update does one at a time
};

}  // namespace epl

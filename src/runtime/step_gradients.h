// The gradients of a step on the devices of this worker, by parameter.
//
// A parameter's gradient is the sum of what all devices have of it: those that took other rows, and
// in a pipeline those of other stages that use the parameter as well. Within a worker the update
// reads all of them and sums as it goes; where the sum is needed itself it is made in the first of
// them.
//
// Which gradients an update, a clip or a sum over roles works on stands in its instructions;
// entries_of() finds them once, when a step is bound.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "program/placement.h"
#include "program/step_end.h"
#include "runtime/device_team.h"
#include "runtime/executor.h"
#include "runtime/gradient_exchange.h"
#include "runtime/held_parameters.h"
#include "runtime/update.h"

namespace epl {

// By parameter (a leaf): the roles that have a gradient of it, in order.
std::map<int, std::vector<int>> roles_by_leaf(const Plan& plan);

// The optimizers of a step, as far as its gradients have to know them.
struct StepOptimizers {
  std::function<const std::vector<size_t>&(const at::Tensor& parameter)> of;  // who update it
  std::function<bool(size_t optimizer)> fused;
  // Parameters that an earlier step gave a gradient and this one does not, and where they lay.
  struct WithoutGradient {
    at::Tensor parameter;
    Home home;
  };
  std::vector<WithoutGradient> without_gradient;
  std::vector<at::Tensor> resting;  // parameters that never had a gradient
};

class StepGradients {
 public:
  // `leaves`: by leaf of the plan the user's own tensor. By device of this worker: its place and
  // executor. By role: the exchange between workers, null for roles that this worker has no
  // device of.
  struct Devices {
    std::vector<at::Tensor> leaves;
    std::vector<Place> places;
    std::vector<Executor*> executors;
    std::vector<GradientExchange*> exchanges;
    std::vector<Connections::Sharers> sharers;  // by role
  };
  StepGradients(const Plan& plan, Devices devices);

  // The parameters that this step gives a gradient on some worker, in the order of leaves.
  std::vector<HeldParameter> given() const;

  // For each update instruction: the optimizers and their parts of the gradients.
  struct Part {
    size_t optimizer;
    std::vector<ParameterGradient> gradients;  // with all that is still to be added
    std::vector<ParameterGradient> summed;     // after sum_into_first()
    // For each of `gradients` its entry, or where it has pieces, theirs; none for parameters that
    // are updated with a zero gradient.
    std::vector<std::vector<size_t>> entries;
  };
  // Parameters without a gradient in this step get zeros where this worker has something of them.
  void bind_updates(const StepOptimizers& optimizers);
  std::vector<std::vector<Part>>& updates() { return updates_; }
  // Whether several of them update one parameter: then its sum is made once, before any of them
  // reads it, since an optimizer without a kernel of ours adds into the first part.
  bool have_several_optimizers() const { return have_several_optimizers_; }
  // Which of updates() an instruction of a role is; none where all of its parameters are updated
  // elsewhere. Those that no instruction is come last: parameters without a gradient.
  std::optional<size_t> group_of(int role, const Instruction& update) const;
  size_t groups() const { return groups_.size(); }
  // Who changes each parameter that the update changes on some worker. Alike on all of them.
  const std::vector<HeldParameter>& held() const { return held_; }
  // Before each update: what an optimizer of the user's own may have written is zero again, and
  // gradients that operators make anew in each run, sparse ones among them, come into their parts.
  void refresh();
  // Whether somebody else's backward() has given a gradient to a parameter that never had one.
  bool somebody_woke() const;

  // What is added up for one parameter. Tied parameters have more than one gradient a device.
  struct Contribution {
    size_t device = 0;
    size_t gradient = 0;  // of the device's program
  };
  struct Entry {
    int leaf = 0;
    std::string name;
    at::Tensor parameter;
    std::vector<Contribution> parts;  // in the order of devices
    bool tied = false;                // roles that may lie on other workers have parts as well
    Shard shard = {};                 // of a parameter that is cut over devices; each is an entry
    // What this worker updates of it, where others update the rest; of a shard in its own order.
    std::optional<Piece> owned = {};
    bool scattered = false;  // its sum is there for the owned elements alone
  };
  const std::vector<Entry>& entries() const { return entries_; }
  int role_of(const Entry& entry) const { return devices_.places[entry.parts[0].device].role; }

  // The entries whose gradients the instructions of a phase name, all parts of each.
  std::vector<size_t> entries_of(const EndPhase& phase) const;

  // Whether sums come to all workers in this step, whoever owns them: somebody compares them.
  void begin(bool sums_to_all) { sums_to_all_ = sums_to_all; }
  // Whether this worker has but a part of some sums.
  bool are_scattered() const;

  // Once reductions are there: of each entry its sum, or what is still to be added up here. Of a
  // sum that is scattered what is owned here, in a row.
  std::vector<at::Tensor> addends(const std::vector<size_t>& entries) const;

  // Into the first part of each entry, each device of the team some of them.
  void sum_into_first(DeviceTeam& team);
  // What each device has of each entry, in their order.
  std::vector<at::Tensor> of_devices() const;
  // One for each entry, once they are summed; of a sum that is scattered as above.
  std::vector<at::Tensor> reduced() const;
  std::vector<at::Tensor> reduced(const std::vector<size_t>& entries) const;

  // The gradients of one replica, which lies on this worker as a whole: those of its devices are
  // added into one of them, the others become zero. One for each of these entries.
  std::vector<at::Tensor> of_replica(int replica, const std::vector<size_t>& entries);

  // Sums what a tied parameter has on this worker, and on those of the communicator.
  void reduce_tied(const Entry& entry, Communicator& workers);

 private:
  void find_entries();
  void find_readers();
  Entry entry_of(const std::vector<Contribution>& parts) const;
  const at::Tensor& gradient(const Contribution& part) const;
  bool is_sparse(const Contribution& part) const;
  bool made_late(const Entry& entry) const;
  bool summed_between_workers(const Entry& entry) const;
  ParameterGradient bound(const Entry& entry) const;
  void add_update(const std::vector<size_t>& entries, Part& part) const;
  void bind_group(const std::vector<size_t>& group, const StepOptimizers& optimizers);
  ParameterGradient sum_of(const Entry& entry) const;
  at::Tensor known_part(const Entry& entry, const at::Tensor& sum) const;
  std::optional<Piece> owned_of(int role, const Owners& owners, int64_t elements) const;
  void bind_zero_gradient_updates(const StepOptimizers& optimizers);
  void add_zero_gradient_updates(Part updates);
  std::optional<ParameterGradient> zeros_for(const at::Tensor& parameter, const Home& home) const;
  bool has_one_of(const std::vector<int>& roles) const;
  std::vector<int> readers_of(const at::Tensor& parameter) const;
  const at::Tensor& leaf(int index) const { return devices_.leaves[static_cast<size_t>(index)]; }
  const Program& program(size_t device) const {
    return plan_.program_of(static_cast<size_t>(devices_.places[device].role));
  }

  const Plan& plan_;
  const Devices devices_;
  std::vector<Entry> entries_;
  std::vector<std::vector<size_t>> groups_;  // of entries: one for each update instruction
  std::map<std::pair<int, const Instruction*>, size_t> group_of_;  // by role
  std::set<size_t> early_;  // groups that are updated while the step runs
  std::map<const c10::TensorImpl*, std::vector<int>> readers_;  // roles, by what they read
  std::vector<std::vector<Part>> updates_;
  std::vector<HeldParameter> held_;
  std::vector<at::Tensor> written_zeros_;  // gradients that an optimizer of the user's may write
  std::vector<at::Tensor> resting_;
  bool sums_to_all_ = false;
  bool have_several_optimizers_ = false;
};

}  // namespace epl

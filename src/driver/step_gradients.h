// The gradients of a step on the devices of this worker, by parameter.
//
// A parameter's gradient is the sum of what all devices have of it: those that took other rows, and
// in a pipeline those of other stages that use the parameter as well. Within a worker the update
// reads all of them and sums as it goes; where the sum is needed itself it is made in the first of
// them.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <vector>

#include "compile/compile.h"
#include "model/model.h"
#include "program/placement.h"
#include "runtime/device_team.h"
#include "runtime/executor.h"
#include "runtime/gradient_exchange.h"
#include "state/gradient_history.h"

namespace epl {

// By parameter (a leaf): the stages that have a gradient of it, in order.
std::map<int, std::vector<int>> stages_by_leaf(const Plan& plan);

class StepGradients {
 public:
  // By device of this worker: its place and executor. By stage: the exchange between workers, null
  // for stages that this worker has no device of.
  struct Devices {
    GradientHistory::Asker whose;
    std::vector<Place> places;
    std::vector<Executor*> executors;
    std::vector<GradientExchange*> exchanges;
  };
  StepGradients(const CompiledStep& step, Devices devices);

  // For each update instruction: the optimizers and their parts of the gradients.
  struct Part {
    size_t optimizer;
    std::vector<ParameterGradient> gradients;  // with all that is still to be added
    std::vector<ParameterGradient> summed;     // after sum_into_first()
    // For each of `gradients` its entry, or where it has pieces, theirs; none for parameters that
    // are updated with a zero gradient.
    std::vector<std::vector<size_t>> entries;
  };
  // Parameters in `history` that this step gives no gradient get zeros; what it gives one is added.
  void bind_updates(Model& model, GradientHistory& history);
  std::vector<std::vector<Part>>& updates() { return updates_; }
  // Who changes each parameter that the update changes on some worker. Alike on all of them.
  struct Holders : Home {
    at::Tensor parameter;
    std::vector<int> readers;  // stages that use it, whether they change it or not
  };
  const std::vector<Holders>& holders() const { return holders_; }
  // Before each update.
  void clear_zero_gradients();
  // Whether somebody else's backward() has given a gradient to a parameter that never had one.
  bool somebody_woke() const;
  // Gradients that operators make anew in each run, sparse ones among them, come into their parts.
  void refresh_late();

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
    bool tied = false;                // stages that may lie on other workers have parts as well
    Shard shard = {};                 // of a parameter that is cut over devices; each is an entry
  };
  const std::vector<Entry>& entries() const { return entries_; }
  const at::Tensor& gradient(const Contribution& part) const;

  // Into the first part of each entry, each device of the team some of them.
  void sum_into_first(DeviceTeam& team);
  // One for each entry, once they are summed.
  std::vector<at::Tensor> reduced() const;

  // The gradients of one replica, which lies on this worker as a whole: those of its devices are
  // added into one of them, the others become zero. One for each entry.
  std::vector<at::Tensor> of_replica(int replica);

  // Sums what tied parameters have on this worker and on others. `workers_of`: a communicator of
  // the workers that have parts of the entry, or null where this worker has all.
  void reduce_tied(const std::function<Communicator*(const Entry&)>& workers_of);

 private:
  void find_entries();
  Entry entry_of(const std::vector<Contribution>& parts) const;
  bool is_sparse(const Contribution& part) const;
  bool made_late(const Entry& entry) const;
  bool summed_between_workers(const Entry& entry) const;
  ParameterGradient bound(const Entry& entry) const;
  void add_update(const std::vector<size_t>& entries, Part& part) const;
  ParameterGradient sum_of(const Entry& entry) const;
  void bind_zero_gradient_updates(Model& model, const GradientHistory& history);
  void add_zero_gradient_updates(Part updates);
  ParameterGradient zeros_for(const at::Tensor& parameter, const Home& home) const;
  bool has_one_of(const std::vector<int>& stages) const;
  std::vector<int> readers_of(const at::Tensor& parameter) const;
  const Program& program(size_t device) const {
    return step_.plan.programs[static_cast<size_t>(devices_.places[device].stage)];
  }

  const CompiledStep& step_;
  const Devices devices_;
  std::vector<Entry> entries_;
  std::vector<std::vector<size_t>> groups_;  // of entries: one for each update instruction
  std::vector<std::vector<Part>> updates_;
  std::vector<Holders> holders_;
  std::vector<at::Tensor> written_zeros_;  // gradients that an optimizer of the user's may write
  std::vector<at::Tensor> resting_;        // parameters that never had a gradient
};

}  // namespace epl

// GradientExchange: the sum of every gradient over all devices of the job, group by group.
//
// A device reports each group of the plan when its program reaches the `reduce` instruction.
// Between the devices of one worker nothing has to move: the update reads all of their gradients
// and sums as it goes (ParameterGradient::addends). Between workers, when the last device of this
// worker has reported a group, the group sets out on one of the routes while the devices go on
// computing: their gradients are summed into those of device 0, and those are reduced over the
// workers. Where not all workers update a parameter (PlanGradient::owners), the sum of each element
// comes to its owner alone.
//
// Gradients that do not stay (PlanGradient::Stays) are added to the sums that the worker keeps, or
// updated, as soon as all devices have reported them; a device that awaits their group may then use
// their places again. In one worker the last device that reports a group does that itself.
//
//   exchange.begin(step);
//   ... devices: exchange.ready(instruction), exchange.await(instruction) ...
//   exchange.wait();
#pragma once

#include <epl/config.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "program/owned_sums.h"
#include "program/program.h"
#include "runtime/device_memory.h"
#include "runtime/executor.h"
#include "runtime/route.h"
#include "runtime/worker_sums.h"

namespace epl {

struct ExchangeOptions {
  bool half = false;        // communication.fp16: between workers gradients travel as half
  double half_scale = 128;  // times this
};
ExchangeOptions exchange_options(const Config& config);

class GradientExchange {
 public:
  // Where the role is on this worker.
  struct Where {
    std::vector<Executor*> devices;
    const std::vector<Route>& routes;  // empty where this is the only worker
    std::vector<int> shares;           // the devices of each worker that has the role, by rank
    int rank = 0;                      // of this worker among those
    DeviceMemory& memory;              // copies that travel lie there, and the sums of the worker
    at::Tensor& pages;                 // of those sums
    // What updates the parameters of an instruction (kUpdateEarly): from any thread.
    std::function<void(const Instruction& update)> update_early = {};
  };
  GradientExchange(const Program& program, Where where, ExchangeOptions options);

  // Waits for reductions that are under way: they use this object and the gradients.
  ~GradientExchange();
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  // `to_all`: all sums come to all workers, since somebody compares them.
  void begin(int64_t step, bool to_all = false);

  // From a device's thread: what it names (kReduce, kUpdateEarly) is complete on that device.
  void ready(const Instruction& group) EPL_EXCLUDES(mutex_);
  // From a device's thread: until all devices have reported a group and what follows is done.
  // `look` throws where the step is given up; throws what the reduction threw.
  void await(const Instruction& group, const std::function<void()>& look) EPL_EXCLUDES(mutex_);

  // Reports a group for all devices, where it was not allowed to set out while they computed.
  void start(const Instruction& reduce);

  // Once all devices have reported all groups; throws what a reduction threw. Afterwards the
  // gradients of device 0 hold the sums over all workers, if there are several.
  void wait() EPL_EXCLUDES(mutex_);

  // Whether the gradients of device 0 hold all there is, so that nobody else's are to be added.
  bool sums_into_first() const { return !routes_.empty(); }

  // The sum of a sparse gradient, after wait().
  const at::Tensor& sparse(int gradient) const { return sparse_.at(gradient); }

  // Sums that the worker keeps itself.
  const WorkerSums& sums() const { return sums_; }

 private:
  struct Group {
    const Instruction* reduce = nullptr;
    const Instruction* update = nullptr;  // early
    const Instruction& any() const { return reduce == nullptr ? *update : *reduce; }
    bool is_short() const { return !any().slots.empty(); }
  };
  void start_on_lane(size_t group) EPL_EXCLUDES(mutex_);
  void finish_here(size_t group) EPL_EXCLUDES(mutex_);
  void finish_short(const Group& group) const;
  void keep_sum(const Instruction& group, size_t place) const;
  Piece owned_here(int index, int64_t elements) const;
  void forget_last_step() EPL_EXCLUDES(mutex_);
  void end_works() EPL_EXCLUDES(mutex_);
  void release_sums_of_others() const;
  void count_sums();
  void reduce(const Instruction& group, Communicator* communicator);
  SlotId slot_of(const Instruction& group, size_t place) const;
  at::Tensor gradient(size_t device, int index) const;
  std::vector<std::string> names() const;  // of their parameters, in order; ";" ends a group
  [[noreturn]] void refuse_to_mix() const;
  bool is_sparse(int index) const;
  struct Travelling {
    at::Tensor gradient;  // in the order of memory, where it has no gaps
    at::Tensor travels;   // that, or a copy
    Owners owners;
  };
  void reduce_dense(const Instruction& group, const std::vector<size_t>& places,
                    Communicator& communicator) const;
  Travelling travelling(const Instruction& group, size_t place) const;
  void reduce_of_type(const std::vector<Travelling>& gradients, Communicator& communicator) const;
  at::Tensor reduce_sparse(int index, Communicator* communicator) const;

  const Program& program_;
  const std::vector<Executor*> devices_;
  const std::vector<Route>& routes_;
  const std::vector<int> shares_;
  const int rank_;
  const ExchangeOptions options_;
  DeviceMemory& memory_;
  const std::function<void(const Instruction&)> update_early_;
  const WorkerSums sums_;
  int64_t step_ = 0;
  bool to_all_ = false;
  bool counted_sums_ = false;               // by the account of the memory
  std::vector<Group> groups_;               // by number
  int64_t about_ = 0;                       // a number for the names of all, in their order
  std::vector<std::atomic<int>> reported_;  // devices, by group
  std::map<int, at::Tensor> sparse_;        // by gradient; entries are made beforehand
  mutable Mutex mutex_;
  Condition changed_;
  // By group: what the lanes do; and whether all is done, where there are none.
  std::vector<std::shared_ptr<Work>> works_ EPL_GUARDED_BY(mutex_);
  std::vector<bool> done_ EPL_GUARDED_BY(mutex_);
};

}  // namespace epl

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
//   exchange.begin(step);
//   ... devices: exchange.ready(instruction) ...
//   exchange.wait();
#pragma once

#include <epl/config.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "program/program.h"
#include "runtime/device_memory.h"
#include "runtime/executor.h"
#include "runtime/route.h"

namespace epl {

struct ExchangeOptions {
  bool half = false;        // communication.fp16: between workers gradients travel as half
  double half_scale = 128;  // times this
};
ExchangeOptions exchange_options(const Config& config);

// Whether the sum of a gradient comes to its owners alone: not where it lies in memory in another
// order than its parameter, whose elements they own.
bool comes_to_owners(const Program& program, const PlanGradient& gradient);

class GradientExchange {
 public:
  // `routes` is empty where this is the only worker. `shares`: the devices of each worker that has
  // the role, by rank. Copies that travel lie in `memory`.
  GradientExchange(const Program& program, std::vector<Executor*> devices,
                   const std::vector<Route>& routes, std::vector<int> shares,
                   ExchangeOptions options, DeviceMemory& memory);

  // Waits for reductions that are under way: they use this object and the gradients.
  ~GradientExchange();
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  // `to_all`: all sums come to all workers, since somebody compares them.
  void begin(int64_t step, bool to_all = false);

  // From a device's thread.
  void ready(const Instruction& reduce);

  // Reports a group for all devices, where it was not allowed to set out while they computed.
  void start(const Instruction& reduce);

  // Once all devices have reported all groups; throws what a reduction threw. Afterwards the
  // gradients of device 0 hold the sums over all workers, if there are several.
  void wait();

  // Whether the gradients of device 0 hold all there is, so that nobody else's are to be added.
  bool sums_into_first() const { return !routes_.empty(); }

  // The sum of a sparse gradient, after wait().
  const at::Tensor& sparse(int gradient) const { return sparse_.at(gradient); }

 private:
  void reduce(const Instruction& group, Communicator* communicator);
  at::Tensor gradient(size_t device, int index) const;
  std::vector<std::string> names() const;  // of their parameters, in order; ";" ends a group
  [[noreturn]] void refuse_to_mix() const;
  bool is_sparse(int index) const;
  struct Travelling {
    at::Tensor gradient;  // in the order of memory, where it has no gaps
    at::Tensor travels;   // that, or a copy
    Owners owners;
  };
  void reduce_dense(const std::vector<int>& gradients, Communicator& communicator) const;
  Travelling travelling(int index) const;
  void reduce_of_type(const std::vector<Travelling>& gradients, Communicator& communicator) const;
  at::Tensor reduce_sparse(int index, Communicator* communicator) const;

  const Program& program_;
  const std::vector<Executor*> devices_;
  const std::vector<Route>& routes_;
  const std::vector<int> shares_;
  const ExchangeOptions options_;
  DeviceMemory& memory_;
  int64_t step_ = 0;
  bool to_all_ = false;
  std::vector<const Instruction*> groups_;    // by number
  int64_t about_ = 0;                         // a number for the names of all, in their order
  std::vector<std::atomic<int>> reported_;    // devices, by group
  std::vector<std::shared_ptr<Work>> works_;  // by group
  std::map<int, at::Tensor> sparse_;          // by gradient; entries are made beforehand
};

}  // namespace epl

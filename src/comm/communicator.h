// Communicator: one member's end of a group that moves tensors.
//
// Calls block: they return when this member's tensors may be read and written again. Lane (lane.h)
// runs them on a thread of its own where they should overlap with something else. All members call
// the same operations in the same order with tensors of the same types and sizes; a member that
// does not is an error that names both calls, not a hang. Every wait has the communicator's
// deadline and looks at the Watch: it throws JobFailed.
//
// Tensors are dense and contiguous, of any element type that LibTorch trains with (float, double,
// half, bfloat16, the integers, bool). Sums are made in the order of ranks, in at least the
// precision of the element type (half and bfloat16 in float), so that all members get the same
// bits, in every run.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/FunctionRef.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/watch.h"

namespace epl::comm {

enum class ReduceOp : uint8_t { kSum, kMean, kMax, kMin, kProd };

struct CommunicatorOptions {
  std::string name;  // for messages: "gradients 0"
  std::chrono::milliseconds deadline{std::chrono::minutes(30)};
  // Looked at while a call waits, on the waiting thread; throws to end the wait at once, where a
  // deadline and the Watch are not all that matters. The communicator is not whole any more then.
  std::function<void()> meanwhile = {};
};

struct MemberCall;

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const CommunicatorOptions& options() const = 0;

  // A number for what the calls from now on are about. Members whose calls look alike but are about
  // something else would mix it up: that is an error as well.
  virtual void set_about(int64_t about) = 0;

  // In place. Several tensors count as one, as if they lay end to end.
  virtual void all_reduce(const std::vector<at::Tensor>& tensors, ReduceOp op) = 0;
  virtual void broadcast(const std::vector<at::Tensor>& tensors, int root) = 0;
  // The result is in the root's tensors; those of the others are as they were.
  virtual void reduce(const std::vector<at::Tensor>& tensors, ReduceOp op, int root) = 0;

  // Member i has rows[i] rows (dim 0) of the whole tensor, which lies in the order of ranks. Rows
  // may differ and may be 0.
  virtual void reduce_scatter(const at::Tensor& whole, const at::Tensor& part,
                              const std::vector<int64_t>& rows, ReduceOp op) = 0;
  virtual void all_gather(const at::Tensor& part, const at::Tensor& whole,
                          const std::vector<int64_t>& rows) = 0;

  // In place, of several tensors that count as one, as if they lay end to end: member i owns
  // counts[i] of their elements, in the order of ranks. Counts may differ and may be 0; a border
  // may lie within a tensor. A reduction leaves in the elements that a member owns what all_reduce
  // would, to the bit, and anything in the others; a gathering hands the elements that a member
  // owns to all.
  virtual void reduce_scatter_in_place(const std::vector<at::Tensor>& tensors,
                                       const std::vector<int64_t>& counts, ReduceOp op) = 0;
  virtual void all_gather_in_place(const std::vector<at::Tensor>& tensors,
                                   const std::vector<int64_t>& counts) = 0;

  // rows_to[i] rows of `input` go to member i, rows_from[i] rows of `output` come from it.
  virtual void all_to_all(const at::Tensor& input, const at::Tensor& output,
                          const std::vector<int64_t>& rows_to,
                          const std::vector<int64_t>& rows_from) = 0;

  // A receive takes what the member `from` sends with the same tag, in the order of its sends.
  virtual void send(const at::Tensor& tensor, int to, int tag) = 0;
  virtual void receive(const at::Tensor& tensor, int from, int tag) = 0;

  virtual void barrier() = 0;

  // The communicator of these members among themselves, ranked as listed. All members of this
  // communicator call it, with the same list; those that are not in it get null.
  virtual std::unique_ptr<Communicator> group(const std::vector<int>& ranks) = 0;

  // Members that can read each other's memory (threads of one process) need no buffers between
  // them: each shows some tensors, of any strides, and `work` gets those of all members, in the
  // order of ranks. They stay as they are until all members have finished their work. `call` is
  // what members compare (call.h). All members return false, and do nothing, where they cannot.
  using ShownTensors = c10::ArrayRef<at::TensorList>;
  virtual bool read_each_other(const MemberCall& /*call*/, at::TensorList /*mine*/,
                               c10::function_ref<void(ShownTensors)> /*work*/) {
    return false;
  }
};

// Hands the text of each member to all, in the order of ranks. How the ends of a communicator find
// each other before there is one.
using Exchange = std::function<std::vector<std::string>(const std::string& mine)>;

// The threads of one process: all ends at once, one for each thread. They read each other's memory.
std::vector<std::unique_ptr<Communicator>> make_local_communicators(
    int size, Watch& watch, const CommunicatorOptions& options);

// The processes of one host. Memory is mapped without a name, so that nothing is left behind
// however a process ends.
std::unique_ptr<Communicator> make_shared_memory_communicator(int rank, int size, Watch& watch,
                                                              const Exchange& exchange,
                                                              const CommunicatorOptions& options);

// Processes of any hosts, over TCP connections that listen at the address `interface` of this host,
// or at loopback where it is empty.
std::unique_ptr<Communicator> make_tcp_communicator(int rank, int size, Watch& watch,
                                                    const Exchange& exchange,
                                                    const CommunicatorOptions& options,
                                                    const std::string& interface);

// The ends that a two-level communicator is made of: members that are near each other (same
// process, same host), the first ones of all such groups, and all members without detours.
struct TwoLevelParts {
  std::unique_ptr<Communicator> inner;
  std::unique_ptr<Communicator> outer;   // null unless this member has rank 0 in `inner`
  std::unique_ptr<Communicator> direct;  // ranked as the communicator itself
};

// Reduced inside, exchanged between, spread inside; what goes from one member to another goes
// directly. ranks[i] are the members of inner group i, in the order of the outer ranks.
std::unique_ptr<Communicator> make_two_level_communicator(TwoLevelParts parts,
                                                          std::vector<std::vector<int>> ranks,
                                                          int rank,
                                                          const CommunicatorOptions& options);

}  // namespace epl::comm

namespace epl {
using comm::Communicator;
using comm::CommunicatorOptions;
using comm::Exchange;
using comm::make_local_communicators;
using comm::make_shared_memory_communicator;
using comm::ReduceOp;
}  // namespace epl

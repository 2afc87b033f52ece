// Communication as operators of LibTorch: what stands in the graph of a device that runs its part
// of a split TaskGraph.
//
//   epl::all_reduce(Tensor x, str op, str axis) -> Tensor            op: "sum" or "max"
//   epl::all_gather(Tensor x, int dim, int[] pieces, str axis) -> Tensor
//   epl::reduce_scatter(Tensor x, int dim, int[] pieces, str axis) -> Tensor    sums
//   epl::all_to_all(Tensor x, int from, int to, int[] from_pieces, int[] to_pieces, str axis)
//       -> Tensor
//   epl::broadcast(Tensor x, int root, str axis) -> Tensor
//   epl::own_piece(Tensor x, int dim, int[] pieces, str axis) -> Tensor   of what all devices have
//   epl::own_addend(Tensor x, str axis) -> Tensor                    x on the first one, else zeros
//
// `pieces` are the lengths along a dimension by rank; they may differ and may be 0. all_to_all
// takes this device's piece of dimension `from` with all of `to`, and gives all of `from` with its
// piece of `to`. Each operator has an overload `.out`, so that the Executor lets it write into its
// slot.
//
// `axis` is one of the mesh of the device's stage (layout/mesh.h): the devices that differ from
// this one in that coordinate alone are its group. The groups are those of the CollectiveScope on
// this thread:
//
//   const CollectiveScope scope({{kPartAxis, parts.of(device)}}, &meter);
//   executor.run(segment);   // a call along an axis that has no group here is an internal error
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "layout/axis.h"

namespace epl {

// What the operators of one thread moved. Bytes are those that this device sends to others where
// everybody sends as little as possible, k devices and n bytes in all: all_reduce 2n(k-1)/k,
// reduce_scatter n(k-1)/k, all_gather (k-1) times its piece, all_to_all what is not its own,
// broadcast (k-1)n from its root.
struct CollectiveMeter {
  using Clock = std::chrono::steady_clock;
  struct Span {
    const char* name;  // "all_reduce"
    Clock::time_point begin, end;
    int64_t bytes;
  };

  std::vector<Span> spans;  // one a call, since whoever reads them cleared them
  int64_t calls = 0;
  int64_t bytes = 0;
  double seconds = 0;  // with the time in which others were waited for
};

// A device's end of the communicator of those along an axis. Whoever made it keeps the name.
struct AxisGroup {
  std::string_view axis;
  Communicator* group = nullptr;
};
// A mesh has few axes: whoever looks for one goes through all of them.
using AxisGroups = std::vector<AxisGroup>;

// The groups that collective operators of this thread talk to while it stands. Scopes may stand
// inside of each other: the innermost counts.
class CollectiveScope {
 public:
  explicit CollectiveScope(AxisGroups groups, CollectiveMeter* meter = nullptr);
  ~CollectiveScope();
  CollectiveScope(const CollectiveScope&) = delete;
  CollectiveScope& operator=(const CollectiveScope&) = delete;

 private:
  const AxisGroups groups_;
  const AxisGroups* const groups_before_;
  CollectiveMeter* const meter_before_;
};

}  // namespace epl

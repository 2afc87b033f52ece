// Axis: an axis of a Mesh (layout/mesh.h), over which a dimension of a tensor may be cut.
//
//   Axis parts = 4;                  four devices, with pieces that are as even as they can be
//   Axis parts(2, {3, 1});           the first takes three times as much as the second
//
// Along an axis with shares a size is dealt out by largest remainders: each has what is its due
// rounded down, and what is left goes to those that lost most by that. So the pieces of a size
// always sum up to it, and are the same wherever they are worked out. Where there are as many
// elements as devices, each device has one at least.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace epl {

// How often the model stands in the cluster.
inline constexpr const char* kReplicaAxis = "replica";
// The devices of a replica that rows or operators of a stage are cut over.
inline constexpr const char* kPartAxis = "part";

struct Axis {
  Axis(int size, std::vector<double> shares = {},  // NOLINT: a number of devices converts
       std::string name = kPartAxis);

  std::string name;
  int size = 1;                // devices along it
  std::vector<double> shares;  // weights by coordinate, all above 0; none: even

  bool is_even() const { return shares.empty(); }
  // How much sooner work is done that is cut over the devices than by the slowest of them alone,
  // where shares are as speeds are. Where they are even: the number of devices.
  double speedup() const;
};

// The lengths of all pieces of `size` elements. Where the axis is even the first ones have one
// element more if it does not divide, and with fewer elements than devices the last ones are empty.
std::vector<int64_t> pieces_of(int64_t size, const Axis& parts);

}  // namespace epl

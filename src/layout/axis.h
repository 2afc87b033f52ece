// Axis: an axis of a Mesh (layout/mesh.h), over which a dimension of a tensor may be cut.
//
//   Axis parts = 4;                  four devices, with pieces that are as even as they can be
//   Axis parts(2, {3, 1});           the first takes three times as much as the second
//
// Along an axis with shares a size is dealt out by largest remainders: each has what is its due
// rounded down, and what is left goes to those that lost most by that. So the pieces of a size
// always sum up to it, and are the same wherever they are worked out. Whoever asks for as many
// elements as there are devices, or more, has none left without.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace epl {

inline constexpr const char* kReplicaAxis = "replica";  // how often the model stands in the cluster
inline constexpr const char* kPartAxis =
    "part";  // the devices of a replica that a stage is cut over

struct Axis {
  // Implicit: a number of devices is an axis whose devices share evenly.
  Axis(int size, std::vector<double> shares = {}, std::string name = kPartAxis);

  std::string name;
  int size = 1;                // devices along it
  std::vector<double> shares;  // weights by coordinate, all above 0; none: even

  bool is_even() const { return shares.empty(); }
  // How much less than all of some work the slowest device has, where shares are as speeds are: the
  // number of devices, where they are even.
  double speedup() const;
};

// The lengths of all pieces of `size` elements. Where the axis is even the first ones have one
// element more if it does not divide, and with fewer elements than devices the last ones are empty.
std::vector<int64_t> pieces_of(int64_t size, const Axis& parts);

}  // namespace epl

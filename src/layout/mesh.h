// Mesh: the devices of one stage of a step, by named axes.
//
//   replica 2 x part 4      the model stands twice in the cluster, and in each of them rows or
//                           operators of the stage are cut over four devices
//
// Devices that differ in one coordinate alone are a group along that axis: the four parts of a
// replica are one along "part", the two devices that have the same part of the model are one along
// "replica". A collective names the axis that it runs along (runtime/collectives.h).
//
// A Mesh is a value: copied freely.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "layout/axis.h"

namespace epl {

class Mesh {
 public:
  // The axes from the outermost to the innermost; each name comes once.
  explicit Mesh(std::vector<Axis> axes);

  const std::vector<Axis>& axes() const { return axes_; }
  const Axis* find(std::string_view name) const;  // null where there is none of that name
  int64_t size() const;                           // devices

  // Devices are counted so that the coordinate of the last axis changes first.
  int index(const std::vector<int>& coordinates) const;
  std::vector<int> coordinates(int index) const;

  std::string str() const;  // "replica 2 x part 4"

 private:
  std::vector<Axis> axes_;
};

// Of a stage: how often the model stands in the cluster, and over how many devices of one replica
// the stage is cut.
Mesh mesh_of_stage(int replicas, Axis parts);

}  // namespace epl

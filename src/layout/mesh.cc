#include "layout/mesh.h"

#include <algorithm>
#include <set>

#include "base/check.h"

namespace epl {

Mesh::Mesh(std::vector<Axis> axes) : axes_(std::move(axes)) {
  std::set<std::string> names;
  for (const Axis& axis : axes_) {
    EPL_ASSERT(names.insert(axis.name).second, concat("a mesh has two axes \"", axis.name, "\""));
  }
}

const Axis* Mesh::find(std::string_view name) const {
  const auto found =
      std::find_if(axes_.begin(), axes_.end(), [&](const Axis& axis) { return axis.name == name; });
  return found == axes_.end() ? nullptr : &*found;
}

int64_t Mesh::size() const {
  int64_t devices = 1;
  for (const Axis& axis : axes_) devices *= axis.size;
  return devices;
}

int Mesh::index(const std::vector<int>& coordinates) const {
  EPL_ASSERT(coordinates.size() == axes_.size(), "a device has a coordinate on each axis");
  int index = 0;
  for (size_t i = 0; i < axes_.size(); ++i) {
    EPL_ASSERT(
        coordinates[i] >= 0 && coordinates[i] < axes_[i].size,
        concat("coordinate ", coordinates[i], " on axis ", axes_[i].name, " of ", axes_[i].size));
    index = index * axes_[i].size + coordinates[i];
  }
  return index;
}

std::vector<int> Mesh::coordinates(int index) const {
  EPL_ASSERT(index >= 0 && index < size(), concat("device ", index, " of ", size(), " of a mesh"));
  std::vector<int> coordinates(axes_.size());
  for (size_t i = axes_.size(); i-- > 0;) {
    coordinates[i] = index % axes_[i].size;
    index /= axes_[i].size;
  }
  return coordinates;
}

std::string Mesh::str() const {
  std::vector<std::string> parts;
  for (const Axis& axis : axes_) parts.push_back(concat(axis.name, " ", axis.size));
  return join(parts, " x ");
}

Mesh mesh_of_stage(int replicas, Axis parts) {
  return Mesh({Axis(replicas, {}, kReplicaAxis), std::move(parts)});
}

}  // namespace epl

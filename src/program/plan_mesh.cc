#include "program/plan_mesh.h"

#include <map>

#include "base/check.h"

namespace epl {
namespace {

// Behind the last argument where the operator has none of that name.
size_t place_of_axis(const Call& call) {
  const auto& arguments = call.op.schema().arguments();
  size_t place = 0;
  while (place < arguments.size() && arguments[place].name() != "axis") ++place;
  return place;
}

}  // namespace

std::vector<ProgramMesh> meshes_of(const Plan& plan) {
  std::map<int, int> devices;  // by stage
  std::vector<int> first_parts;
  for (const Program& program : plan.programs) {
    int& before = devices[program.stage];
    first_parts.push_back(before);
    before += program.roles * program.devices;
  }
  std::vector<ProgramMesh> meshes;
  for (const Program& program : plan.programs) {
    const int first = first_parts[meshes.size()];
    meshes.push_back({mesh_of_stage(plan.replicas, devices[program.stage]), first});
  }
  return meshes;
}

std::string print_mesh(const ProgramMesh& mesh, int devices) {
  const int first = mesh.first_part;
  const std::string own =
      devices == 1 ? concat("part ", first) : concat("parts ", first, " to ", first + devices - 1);
  return concat(mesh.mesh.str(), ", ", own);
}

bool runs_along_axis(const Call& call) {
  return call.op.operator_name().name.compare(0, 5, "epl::") == 0;
}

std::string_view axis_of(const Call& call) {
  const size_t place = place_of_axis(call);
  EPL_ASSERT(place < call.operands.size() && call.operands[place].constant.isString(),
             concat(c10::toString(call.op.operator_name()), " names no axis"));
  return call.operands[place].constant.toStringRef();
}

std::set<std::string> axes_of_collectives(const Plan& plan) {
  std::set<std::string> axes;
  for (const Program& program : plan.programs) {
    for (const Segment& segment : program.segments) {
      for (const Call& call : segment.calls) {
        if (runs_along_axis(call)) axes.emplace(axis_of(call));
      }
    }
  }
  return axes;
}

}  // namespace epl

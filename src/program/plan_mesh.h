// The meshes of a Plan: where each Program stands among the devices of its stage.
//
//   mesh      replica 2 x part 4, parts 0 to 3     one Program that all devices of a stage share
//   mesh      replica 1 x part 2, part 1           the second of the devices that operators are cut
//                                                  over, which has other work than the first
//
// All of it follows from the number of replicas, and from the stages, roles and devices of the
// Programs: those of one stage have consecutive parts, in their order.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "layout/mesh.h"
#include "program/program.h"

namespace epl {

struct ProgramMesh {
  Mesh mesh;
  int first_part = 0;  // the Program's devices have this one and those behind it
};

// One a Program.
std::vector<ProgramMesh> meshes_of(const Plan& plan);

// "replica 2 x part 4, parts 0 to 3"
std::string print_mesh(const ProgramMesh& mesh, int devices);

// Operators of EPL's own that devices of a group run together, or that ask which of them this one
// is.
bool runs_along_axis(const Call& call);
// The axis that such a call names.
std::string_view axis_of(const Call& call);

// The axes that calls of the Plan run along.
std::set<std::string> axes_of_collectives(const Plan& plan);

}  // namespace epl

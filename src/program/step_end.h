// The end of a step: what happens once the last micro batch has been computed.
//
//   report   loss and metrics become one
//   merge    state that the step has written becomes one
//   clip     each replica its own gradients
//   reduce   gradients that did not set out while they were computed; those of tied parameters
//   await    until they are there
//   check    whether the loss is finite
//   finite   whether the reduced gradients are, where the loss is scaled
//   clip     the reduced gradients
//   update   parameters, group by group, with what brings those that are offloaded
//   gather   parameters that other workers have updated
//
// Devices of a worker, whichever program they run, do each of these together: so all programs of a
// Plan have the same phases, in this order, and one that has nothing to do in a phase says so by an
// instruction without operands.
#pragma once

#include <vector>

#include "program/program.h"

namespace epl {

// Whether an instruction belongs to the end of a step. Reductions, and what brings offloaded
// parameters, do where they stand behind one that does.
bool ends_step(Instruction::Kind kind);

// Where the end of a program begins: an index into its instructions.
size_t begin_of_end(const Program& program);

// Instructions of one kind, one after the other, of all roles. An update has those among its own
// that bring what is offloaded.
struct EndPhase {
  Instruction::Kind kind = Instruction::Kind::kUpdate;
  Instruction::Over over = Instruction::Over::kReplicas;
  struct OfRole {
    int role = 0;
    const Instruction* instruction = nullptr;  // of the plan
  };
  std::vector<OfRole> instructions;
};

// The phases of a plan, in order. Throws where programs do not have the same.
std::vector<EndPhase> end_of_step(const Plan& plan);

}  // namespace epl

// How many bytes instructions move, by the types of the slots that they name.
#pragma once

#include <cstdint>

#include "program/program.h"

namespace epl {

int64_t slot_bytes(const Program& program, SlotId id);  // 0 for kNoSlot

// Of one device: see InstructionCost.
int64_t bytes_moved(const Program& program, const Instruction& instruction);

// Whether the text of such an instruction has them anyway.
bool prints_bytes(Instruction::Kind kind);

}  // namespace epl

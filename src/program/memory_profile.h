// What lives in the arena of a Program while it runs, by kind, and when most does.
//
//   const MemoryProfile profile = profile_memory(program);
//   profile.bytes.total() == program.arena_bytes + profile.bytes[MemoryKind::kWorkspace]
//
// Everything follows from the instructions: a buffer lives from a write of all of it to the last
// read before the next such write. It is *saved* where forward makes what backward reads, a
// *gradient* where the end of the step reads it, of the *batch* where it is loaded; all else is
// temporary. The arena is one block, so what nothing lives in at the peak counts as well, as
// fragmentation.
#pragma once

#include <epl/memory.h>

#include <string>
#include <vector>

#include "program/program.h"

namespace epl {

struct MemoryProfile {
  MemoryBytes bytes;  // at the peak, and the largest workspace
  std::string peak_at;
  std::string workspace_at;
  // One for each call, instruction before the end of the step, and group of the update; without
  // fragmentation, and with what is near at the time of what rests in a file.
  std::vector<MemoryBytes> over_time;
  std::vector<MemoryReport::Device::Phase> phases;
};

MemoryProfile profile_memory(const Program& program);

}  // namespace epl

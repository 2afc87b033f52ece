// Places what brings leaves into memory that are not there throughout (PlanLeaf::is_fetched): those
// that are offloaded, with the states of their optimizers, and those that are spread over workers.
//
//   fetch   2 parameters ...     the calls after the next ones read them
//   wait    3 parameters ...
//   run     step  calls 4 to 6   reads these three
//   store   3 parameters ...     nobody reads them before the next fetch
//
// A run is cut into visits: calls one behind the other that read parameters of about so many bytes.
// An update instruction is a visit as well. All visits of a program, of all micro batches, are one
// sequence; what a visit needs is fetched some visits ahead, while others compute, and stored
// behind its last use. It stays where the next use is so near that it would be fetched at once.
#pragma once

#include "program/program.h"

namespace epl {

struct FetchOptions {
  int64_t most_bytes = int64_t{64} << 20;  // of a visit, unless one tensor has more
  int visits = 16;                         // as many to read all parameters once, if they are small
  int ahead = 3;                           // visits
};

// After the end of the step was added, with leaves that say how they lie.
void add_fetches(const FetchOptions& options, Program& program);

}  // namespace epl

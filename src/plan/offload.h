// Places what brings offloaded parameters, and the states of their optimizers, into the programs of
// a plan (offload.level).
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

#include <map>
#include <set>
#include <string>

#include "program/program.h"

namespace epl {

struct OffloadOptions {
  std::set<std::string> parameters = {};   // by name; none: nothing is offloaded
  std::map<std::string, int> states = {};  // by parameter: tensors that its optimizer keeps
  std::map<std::string, std::string> staying = {};  // others, with the reason
  // Of what rests in the host's memory a device computes with a copy (plan/window_leaves.h).
  enum class Medium : uint8_t { kFile, kHost };
  Medium medium = Medium::kFile;
  int64_t most_bytes = int64_t{64} << 20;  // of a visit, unless one tensor has more
  int visits = 16;                         // as many to read all parameters once, if they are small
  int ahead = 3;                           // visits

  bool any() const { return !parameters.empty(); }
};

// Into how many groups updates are to be cut, so that one has no more bytes than a visit.
int update_groups(const OffloadOptions& options, const Program& program);

// After the end of the step was added.
void add_offload(const OffloadOptions& options, Plan& plan);

}  // namespace epl

// offload.level: which parameters of a plan, and states of their optimizers, rest in a file. What
// brings them stands in the programs (plan/fetches.h).
#pragma once

#include <map>
#include <set>
#include <string>

#include "plan/fetches.h"
#include "program/program.h"

namespace epl {

struct OffloadOptions : FetchOptions {
  std::set<std::string> parameters = {};   // by name; none: nothing is offloaded
  std::map<std::string, int> states = {};  // by parameter: tensors that its optimizer keeps
  std::map<std::string, std::string> staying = {};  // others, with the reason
  // Of what rests in the host's memory a device computes with a copy (plan/window_leaves.h).
  enum class Medium : uint8_t { kFile, kHost };
  Medium medium = Medium::kFile;

  bool any() const { return !parameters.empty(); }
};

// Into how many groups updates are to be cut, so that one has no more bytes than a visit.
int update_groups(const OffloadOptions& options, const Program& program);

// After the end of the step was added.
void add_offload(const OffloadOptions& options, Plan& plan);

}  // namespace epl

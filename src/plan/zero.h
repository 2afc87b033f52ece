// zero.level: which worker updates which parameter of a plan, and keeps its optimizer's states.
//
// Workers that have a role have its parameters alike. Large parameters are cut into ranges of
// elements, one a worker; small ones go whole to the worker that has least so far, so that their
// states take no memory elsewhere. Who owns a parameter stays from step to step and from shape to
// shape, since its states lie there.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "plan/fetches.h"
#include "program/program.h"

namespace epl {

struct ZeroOptions {
  // By role: the devices of each worker that has some, in order. Empty: all update all.
  std::vector<std::vector<int>> shares = {};
  std::map<std::string, Owners> settled = {};  // by name: as earlier steps have it
  // Names of parameters that are updated as a whole, with the reason: an optimizer's own step()
  // may look at all of it.
  std::map<std::string, std::string> whole = {};
  // Gradients, too: a worker keeps the sums of what it updates (plan/short_gradients.h).
  bool cuts_gradients = false;
  // zero.level = "v2": workers keep their ranges of parameters alone (plan/spread.h), of those that
  // are named here.
  bool spreads = false;
  std::set<std::string> spread = {};
  FetchOptions fetches = {int64_t{64} << 20, 32, 2};
};

// Names the owners of all gradients, and says in the remarks what is not cut. Tied gradients are
// known by then; programs are those of the roles, one each.
void assign_owners(const ZeroOptions& options, Plan& plan);

}  // namespace epl

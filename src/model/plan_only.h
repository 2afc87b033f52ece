// plan.only: the program that there is, unchanged, asked what its step needs, without the memory
// and the time for it.
//
// From epl::init() on, operators of the calling thread work on shapes (capture/ghost.h): models,
// batches and optimizers are made of ghosts. The first step of a trainer is recorded and planned,
// what it needs is printed, and the process ends (footprint/step_memory.h).
#pragma once

#include <epl/config.h>

#include <string>
#include <vector>

namespace epl {

// Called by epl::init(). Where the configuration does not say plan.only, ends what an earlier call
// began on this thread. Throws where there are other workers: they meet with contents.
void plan_only_where_asked(const Config& config, int workers);

// What was answered in the place of contents since then, a line each.
std::vector<std::string> planning_assumptions();

}  // namespace epl

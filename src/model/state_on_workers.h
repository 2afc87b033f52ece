// What a model has on several workers, once a step has put its stages and pieces there: memory of
// what others hold is given back, and for a file all of it comes to worker 0.
#pragma once

#include "model/model.h"
#include "runtime/bound_step.h"
#include "state/state_map.h"

namespace epl {

// Gives back the memory of parameters, and of the states that optimizers keep for them, that only
// other workers update and read. A parameter whose memory another tensor of the model shows as well
// stays.
void release_what_others_hold(const Model& model, const BoundStep& step);

// Brings the states of all optimizers to worker 0; `map` says where they lie. All workers call it.
void bring_states_to_first_worker(const Model& model, const BoundStep& step, const StateMap& map);

}  // namespace epl

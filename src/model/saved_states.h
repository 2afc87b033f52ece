// The states of some parameters as text, to be sent from one worker to another.
//
//   const std::string text = saved_states(optimizer, {state_key(weight)});   // on the one
//   add_saved_states(optimizer, text, {state_key(weight)});                  // on the other
//
// The text is what torch::save would write of an optimizer with these states alone, so that those
// of the user's own optimizers travel as well, where their save() and load() do. Everything else of
// either optimizer stays: its other states and its options.
#pragma once

#include <torch/optim/optimizer.h>

#include <set>
#include <string>

#include "config/libtorch.h"

namespace epl {

std::string saved_states(torch::optim::Optimizer& optimizer, const std::set<StateKey>& keys);

// `keys`: the same parameters as they are known here; others in the text are left aside.
void add_saved_states(torch::optim::Optimizer& optimizer, const std::string& text,
                      const std::set<StateKey>& keys);

}  // namespace epl

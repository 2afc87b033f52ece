// The map of a model's state: its tensors and what its optimizers keep for them, by name, and where
// earlier steps of the process have put them.
#pragma once

#include <map>
#include <set>
#include <string>

#include "capture/capture.h"
#include "model/model.h"
#include "state/gradient_history.h"
#include "state/state_map.h"

namespace epl {

// Parameters, then buffers, each parameter followed by the states that its optimizers keep for it
// by their rules, whether they are made yet or not. What optimizers of the user's own keep is not
// known, and stands in no map.
//
// `placement`: of the trainer that asks. Where another trainer with another one has put a parameter
// the map says how it lies, and not where.
StateMap state_of(const Model& model, const GradientHistory& history, const Placement& placement);

// The names of those states that are there from the begin, whether their parameter is trained or
// not.
std::set<std::string> states_made_with_optimizers(const Model& model);

// How many tensors of its size the optimizers keep for each parameter. Of an optimizer that EPL
// does not know: two, as of Adam.
std::map<std::string, int> states_kept(const Model& model);

// Bytes of state a byte of parameters, of the optimizer that keeps most.
double most_state_per_parameter(const Model& model);

// Tensors that other models train, which a step has reached: in LibTorch 1 their own optimizers go
// on with zeros where their steps give them no gradient.
void add_reached(const std::vector<WeakTensor>& reached, const Model& model,
                 GradientHistory& history);

}  // namespace epl

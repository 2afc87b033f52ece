// The states that an optimizer keeps for its parameters, read by the table of optimizers.
//
//   for (const at::Tensor& moment : state_tensors(optimizer, weight))   // exp_avg, exp_avg_sq
//     release_pages(moment, dim, begin, length);
//
// Nothing here is asked for a type: a state that has no row (optimizer_table.h) belongs to an
// optimizer of the user's own, and what it holds is not known.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace epl {

// What Optimizer::state() is: states by state_key(parameter).
using OptimizerStates =
    std::remove_reference_t<decltype(std::declval<torch::optim::Optimizer&>().state())>;

// The tensors of a parameter's state that lie as it does (moments, momentum), in the table's order;
// none where there is no state yet, or one that is not known.
std::vector<at::Tensor> state_tensors(torch::optim::Optimizer& optimizer,
                                      const at::Tensor& parameter);

// A state with tensors of its own. It must be known.
std::unique_ptr<torch::optim::OptimizerParamState> copy_of_state(
    const torch::optim::OptimizerParamState& state);

// Whether a state tells that its parameter had a gradient: one that is made with the optimizer does
// so once it has counted a step.
bool has_seen_gradient(torch::optim::OptimizerParamState& state);

// For forecasts: how many tensors of a parameter's size the optimizer keeps for it, by the options
// of its first group. Options that are not known count as Adam's.
double state_per_parameter(const torch::optim::Optimizer& optimizer);

}  // namespace epl

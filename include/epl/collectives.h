// What workers tell each other between steps.
//
//   auto right = torch::tensor(right_of_this_worker);
//   if (epl::Env::get().cluster.worker_index == 0) ...     // not around all_reduce: all workers
//   call it std::cout << epl::all_reduce(right) << "\n";           // of all workers
//
// All workers of the job make the same calls in the same order, with tensors of the same type and
// sizes; one that does not is an error that names both calls. Called on the thread that trains, not
// in a step function. Nobody waits for ever: after communication.wait_seconds, and where a worker
// is lost, JobFailed is thrown. With one worker they do nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace epl {

// The sum of the workers' tensors, their "mean", "max", "min" or product ("prod"), element by
// element, the same bits on every worker. `tensor` stays as it is; the result is a tensor of its
// own, without a gradient. A mean of integers is refused: it would have to be rounded.
at::Tensor all_reduce(const at::Tensor& tensor, const std::string& how = "sum");

// Returns when all workers have called it.
void barrier();

}  // namespace epl

// Calls of operators, at least one for each row of the table of rules.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

namespace epl::testing {

struct Example {
  std::string op;                      // "aten::mm"
  std::vector<c10::IValue> arguments;  // those that are left out have their defaults
};

using Examples = std::vector<Example>;

// Numbers that are the same in each run, in double precision: what rounding leaves of a
// difference is far below what a wrong rule makes of it.
at::Tensor reals(at::IntArrayRef sizes);                  // within [-1, 1]
at::Tensor positives(at::IntArrayRef sizes);              // within [0.1, 1]
at::Tensor wholes(int64_t below, at::IntArrayRef sizes);  // from 0
at::Tensor truths(at::IntArrayRef sizes);
at::Tensor complexes(at::IntArrayRef sizes);

inline std::vector<int64_t> ints(std::vector<int64_t> list) { return list; }

// The generator is at its begin again.
void restart_numbers();

Examples product_examples();
Examples view_examples();
Examples pointwise_examples();
Examples reduction_examples();
Examples softmax_examples();
Examples class_loss_examples();
Examples pair_loss_examples();
Examples norm_examples();
Examples channel_norm_examples();
Examples convolution_examples();
Examples pool_examples();
Examples resize_examples();
Examples sampling_examples();
Examples matrix_examples();
Examples complex_examples();
Examples bag_examples();
Examples embedding_examples();
Examples gather_examples();
Examples index_examples();
Examples gating_examples();
Examples join_examples();
Examples random_examples();
Examples creation_examples();
Examples libtorch2_examples();

Examples all_examples();

}  // namespace epl::testing

// Settings that several rooms ask about, each answered in one place.
#pragma once

#include <epl/config.h>

#include <string>

namespace epl {

// Gradients are reduced by their mean over micro batches and replicas, not by their sum.
inline bool averages_gradients(const Config& config) {
  return config.get<std::string>("communication.gradients_reduce_method") == "mean";
}

// The step function computes in mixed precision.
inline bool mixes_precisions(const Config& config) {
  return config.get<std::string>("amp.level") == "O1";
}

// Workers, and devices of a worker, keep the sums of the gradients that they update, and no others.
// With "v2" only where that gives the bits of data parallelism: sums over several micro batches
// would have another order.
inline bool cuts_gradients(const Config& config) {
  const auto level = config.get<std::string>("zero.level");
  return level == "v1" || (level == "v2" && config.get<int64_t>("pipeline.num_micro_batch") == 1);
}

// Workers of a role keep parts of its parameters, not only of their optimizers' states.
inline bool cuts_parameters(const Config& config) {
  return config.get<std::string>("zero.level") == "v2";
}

// Backward may make values of forward once more.
inline bool may_recompute(const Config& config) {
  return !config.get<std::string>("gradient_checkpoint.type").empty() ||
         config.get<int64_t>("memory.limit") > 0;
}

}  // namespace epl

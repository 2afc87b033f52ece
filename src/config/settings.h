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

// Backward may make values of forward once more.
inline bool may_recompute(const Config& config) {
  return !config.get<std::string>("gradient_checkpoint.type").empty() ||
         config.get<int64_t>("memory.limit") > 0;
}

}  // namespace epl

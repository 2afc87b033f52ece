// Collections: names under which the step function hands tensors to EPL.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace epl {

// How StepResult::metrics merges a tensor over micro batches (LOCAL_*: of one model replica) and
// over all model replicas as well (GLOBAL_*).
namespace collections {
inline constexpr const char* kGlobalMean = "GLOBAL_MEAN";
inline constexpr const char* kGlobalSum = "GLOBAL_SUM";
inline constexpr const char* kGlobalConcat = "GLOBAL_CONCAT";
inline constexpr const char* kLocalMean = "LOCAL_MEAN";
inline constexpr const char* kLocalSum = "LOCAL_SUM";
inline constexpr const char* kLocalConcat = "LOCAL_CONCAT";
// Tensors to keep for gradient checkpointing by hand.
inline constexpr const char* kCheckpoints = "checkpoints";
}  // namespace collections

// Called in the step function. A metric appears in StepResult::metrics under `name`; without one
// under "<collection>_<position>", counted from 0. Outside of a recording this does nothing, so
// that an annotated model still runs as plain LibTorch. An unknown collection is an error that
// names them all.
void add_to_collection(const std::string& collection, const at::Tensor& tensor,
                       const std::string& name = "");

}  // namespace epl

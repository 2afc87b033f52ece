// Tensors of LibTorch as checkpoints have them: the one place of this folder that knows LibTorch.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "checkpoint/reader.h"
#include "checkpoint/shard_file.h"

namespace epl {

// Throws Error where safetensors has no such type (complex, quantized), with the tensor's name.
StoredType stored_type_of(c10::ScalarType type, const std::string& name);

// All of a tensor, to be written or read, in its own memory. Throws Error where that is not in the
// order of its elements, or not of this process's own: the tensor outlives what is made of it.
HeldPart held(const std::string& name, const at::Tensor& tensor);
WantedPart wanted(const std::string& name, const at::Tensor& tensor);

}  // namespace epl

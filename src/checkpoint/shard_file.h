// Writes what one worker has of a checkpoint's tensors as a file of safetensors.
//
//   write_shard(manifest, "checkpoints/step-00001200.partial", "w00000-model.safetensors",
//               {{"fc.weight", StoredType::kF32, {8, 4}, rows({8, 4}, 0, 4), memory}});
//
// A tensor that lies whole in a file has its own name and shape there, so that other readers of
// safetensors find it; a piece has its place behind its name: `fc.weight[0:16]`.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/manifest.h"

namespace epl {

// Some of a tensor, and where it lies.
struct HeldPart {
  std::string name;
  StoredType type = StoredType::kF32;
  Shape shape;  // of the whole tensor
  TensorPart part;
  const void* from = nullptr;
};

// Adds the file and its pieces to the manifest. On the disk when it returns. Throws Error where it
// cannot be written.
void write_shard(Manifest& manifest, const std::string& folder, const std::string& file,
                 const std::vector<HeldPart>& parts);

}  // namespace epl

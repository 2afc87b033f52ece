// Manifest: what a checkpoint has, and where: the file manifest.json of its folder.
//
// {"format": "epl-checkpoint", "version": 1, "step": 1200, "layout": {...}, "entries": {...},
//  "files": {"w00000-model.safetensors": {"bytes": 4196, "crc32c": ["1a2b3c4d"]}},
//  "tensors": {"fc.weight": {"dtype": "F32", "shape": [2, 3], "pieces": [
//    {"file": "w00000-model.safetensors", "key": "fc.weight", "offset": 4096, "elements": [0,
//    6]}]}},
//  "crc32c": "5e6f7a8b"}
//
// A piece of a tensor that is split has "slab": [dim, begin, end] besides. The last line has the
// checksum of all bytes before it, so that a flipped bit anywhere in it is found.
//
// What parses is consistent in itself: names of files are names, parts are parts of their tensor,
// their elements sum up to it, offsets lie in the file. Whether files are as it says is asked by
// CheckpointReader (checkpoint/reader.h).
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/checked_file.h"
#include "checkpoint/stored_type.h"
#include "checkpoint/tensor_part.h"

namespace epl {

inline constexpr const char* kManifestName = "manifest.json";

struct TensorPiece {
  std::string file;
  std::string key;     // its name there
  int64_t offset = 0;  // from the file's beginning
  TensorPart part;
};

struct TensorRecord {
  StoredType type = StoredType::kF32;
  Shape shape;
  std::vector<TensorPiece> pieces;  // each element is in one of them
};

struct Manifest {
  int64_t step = 0;
  nlohmann::json layout = nlohmann::json::object();   // of the job that wrote it
  nlohmann::json entries = nlohmann::json::object();  // by name: schedule, sampler, ...
  std::map<std::string, FileRecord> files;
  std::map<std::string, TensorRecord> tensors;
};

std::string print_manifest(const Manifest& manifest);

// kSome: what one of several workers wrote, whose pieces are not all that there are.
enum class Cover : uint8_t { kWhole, kSome };

// Throws DamagedCheckpoint; `path` is what its message names.
Manifest parse_manifest(const std::string& text, const std::string& path,
                        Cover cover = Cover::kWhole);

// Adds what another worker wrote: its files and pieces. Throws Error where the two have one file,
// or where they have a tensor with different types or shapes.
void add_manifest(Manifest& manifest, const Manifest& other);

// Puts the checksum behind the text of an object of JSON, and takes it off: what print_manifest()
// and parse_manifest() do last and first.
std::string seal(std::string object);
std::string unseal(const std::string& text, const std::string& path);

}  // namespace epl

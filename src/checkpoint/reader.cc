#include "checkpoint/reader.h"

#include <set>
#include <utility>

#include "base/check.h"
#include "checkpoint/damage.h"

namespace epl {
namespace {

// A manifest has some hundred bytes a tensor and 11 a block.
constexpr int64_t kMostManifestBytes = int64_t{1} << 30;

Manifest manifest_of(const std::string& folder) {
  const std::string path = folder + "/" + kManifestName;
  return parse_manifest(read_text_file(path, kMostManifestBytes), path);
}

// Every overlap of a piece with what is wanted: bytes of its file, bytes of the caller's memory.
template <typename Visit>
void for_ranges(const TensorPiece& piece, const WantedPart& wanted, const Visit& visit) {
  const int64_t size = bytes_of(wanted.type);
  for_overlaps(piece.part, wanted.part, wanted.shape,
               [&](int64_t in_piece, int64_t in_wanted, int64_t count) {
                 visit(piece.offset + in_piece * size, in_wanted * size, count * size);
               });
}

}  // namespace

CheckpointReader::CheckpointReader(const std::string& folder)
    : folder_(folder), manifest_(manifest_of(folder)) {
  for (const auto& [name, record] : manifest_.files) {
    files_[name].bytes = std::make_unique<CheckedFileReader>(folder_ + "/" + name, record);
  }
}

// Each read looks at the files as they are then.
void CheckpointReader::forget() {
  for (auto& [name, file] : files_) file.bytes->forget();
}

CheckpointReader::File& CheckpointReader::with_header(const std::string& name) {
  File& file = files_.at(name);
  if (file.has_header) return file;
  for (StoredTensor& tensor : read_header(*file.bytes).tensors) {
    const std::string key = tensor.name;
    file.tensors.emplace(key, std::move(tensor));
  }
  file.has_header = true;
  return file;
}

// What the manifest says of a tensor's pieces is what the headers of the files say, and each
// element of the tensor is in one of them.
void CheckpointReader::check_pieces(const std::string& name, const TensorRecord& tensor) {
  std::vector<TensorPart> parts;
  for (const TensorPiece& piece : tensor.pieces) {
    const File& file = with_header(piece.file);
    const auto stored = file.tensors.find(piece.key);
    const bool fits = stored != file.tensors.end() && stored->second.type == tensor.type &&
                      stored->second.offset == piece.offset &&
                      stored->second.bytes == piece.part.count() * bytes_of(tensor.type);
    if (!fits) {
      throw DamagedCheckpoint(file.bytes->path(),
                              concat("it does not have ", print_part(piece.part), " of `", name,
                                     "` as the manifest says"));
    }
    parts.push_back(piece.part);
  }
  const std::string fault = fault_of_cover(parts, tensor.shape);
  if (!fault.empty()) {
    throw DamagedCheckpoint(folder_ + "/" + kManifestName, concat("of `", name, "` ", fault));
  }
}

const TensorRecord& CheckpointReader::fitting(const WantedPart& wanted) const {
  const auto found = manifest_.tensors.find(wanted.name);
  EPL_CHECK(
      found != manifest_.tensors.end(),
      concat("cannot read `", wanted.name, "`: the checkpoint ", folder_, " does not have it"),
      "reading a checkpoint", "the model that wrote it (epl-checkpoint list --tensors)");
  const TensorRecord& tensor = found->second;
  EPL_CHECK(tensor.type == wanted.type && tensor.shape == wanted.shape,
            concat("cannot read `", wanted.name, "` as ", name_of(wanted.type),
                   print_shape(wanted.shape), ": in the checkpoint ", folder_, " it is ",
                   name_of(tensor.type), print_shape(tensor.shape)),
            "reading a checkpoint", "the model that wrote it (epl-checkpoint list --tensors)");
  EPL_ASSERT(is_part_of(wanted.part, wanted.shape), "what is wanted is a part of its tensor");
  return tensor;
}

void CheckpointReader::read(const std::vector<WantedPart>& wanted) {
  forget();
  std::set<std::string> checked;
  for (const WantedPart& part : wanted) {
    const TensorRecord& tensor = fitting(part);
    if (checked.insert(part.name).second) check_pieces(part.name, tensor);
    for (const TensorPiece& piece : tensor.pieces) {
      CheckedFileReader& file = *files_.at(piece.file).bytes;
      for_ranges(piece, part,
                 [&](int64_t in_file, int64_t, int64_t size) { file.verify(in_file, size); });
    }
  }
  for (const WantedPart& part : wanted) {
    for (const TensorPiece& piece : manifest_.tensors.at(part.name).pieces) {
      CheckedFileReader& file = *files_.at(piece.file).bytes;
      for_ranges(piece, part, [&](int64_t in_file, int64_t in_memory, int64_t size) {
        file.read(in_file, size, static_cast<char*>(part.to) + in_memory);
      });
    }
  }
}

// A tensor that no entry of the manifest names would be lost by whoever reads by the manifest.
void CheckpointReader::check_unlisted() {
  std::set<std::pair<std::string, std::string>> listed;
  for (const auto& [name, tensor] : manifest_.tensors) {
    for (const TensorPiece& piece : tensor.pieces) listed.emplace(piece.file, piece.key);
  }
  for (const auto& [name, file] : files_) {
    for (const auto& [key, tensor] : file.tensors) {
      if (listed.count({name, key}) == 0) {
        throw DamagedCheckpoint(file.bytes->path(),
                                concat("it has `", key, "`, which the manifest does not name"));
      }
    }
  }
}

std::vector<std::string> CheckpointReader::faults() {
  forget();
  std::vector<std::string> faults;
  for (auto& [name, file] : files_) {
    for (const int64_t block : file.bytes->damaged_blocks()) {
      faults.push_back(concat(name, ": ", file.bytes->name_of_block(block), " is damaged"));
    }
  }
  if (!faults.empty()) return faults;
  try {
    for (const auto& [name, file] : manifest_.files) with_header(name);
    for (const auto& [name, tensor] : manifest_.tensors) check_pieces(name, tensor);
    check_unlisted();
  } catch (const DamagedCheckpoint& error) {
    faults.emplace_back(error.what());
  }
  return faults;
}

}  // namespace epl

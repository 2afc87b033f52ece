#include "checkpoint_tool/one_step.h"

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "base/check.h"

namespace epl {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kChunkBytes = kBlockBytes;

[[noreturn]] void no_checkpoint(const std::string& path, const std::string& what) {
  throw Error(concat("there is no ", what, " in ", path), "the command line of epl-checkpoint",
              "a folder of checkpoints, or one of its folders step-...");
}

bool is_step(const std::string& path) { return fs::exists(path + "/" + kManifestName); }

}  // namespace

std::vector<SavedStep> steps_of_path(const std::string& path) {
  std::vector<SavedStep> steps = saved_steps(path);
  if (!steps.empty()) return steps;
  const fs::path plain =
      fs::path(path).has_filename() ? fs::path(path) : fs::path(path).parent_path();
  // Also where its manifest is missing: its name says that it should be a checkpoint.
  for (const SavedStep& saved :
       saved_steps(plain.parent_path().empty() ? "." : plain.parent_path())) {
    if (fs::path(saved.path).filename() == plain.filename()) return {saved};
  }
  if (!is_step(path)) no_checkpoint(path, "checkpoint");
  return {{CheckpointReader(path).manifest().step, path}};
}

std::unique_ptr<CheckpointReader> open_step(const std::string& path) {
  if (is_step(path)) return std::make_unique<CheckpointReader>(path);
  const auto newest = newest_good(path, [](const SavedStep& saved, const std::string& fault) {
    std::cerr << saved.path << " is damaged, an older one is looked for: " << fault << "\n";
  });
  if (!newest) no_checkpoint(path, "good checkpoint");
  return std::make_unique<CheckpointReader>(newest->path);
}

void for_chunks(CheckpointReader& reader, const std::string& name,
                const std::function<void(int64_t first, const std::vector<char>& bytes)>& with) {
  const TensorRecord& tensor = reader.manifest().tensors.at(name);
  const int64_t size = bytes_of(tensor.type);
  const int64_t count = *element_count(tensor.shape);
  std::vector<char> bytes;
  for (int64_t first = 0; first < count; first += kChunkBytes / size) {
    const int64_t last = std::min(count, first + kChunkBytes / size);
    bytes.resize(static_cast<size_t>((last - first) * size));
    reader.read(
        {{name, tensor.type, tensor.shape, elements(tensor.shape, first, last), bytes.data()}});
    with(first, bytes);
  }
}

}  // namespace epl

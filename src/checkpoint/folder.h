// The folder of a job's checkpoints: a folder a step, and which of them are good.
//
//   checkpoints/step-00001200/            manifest.json, w00000-model.safetensors, ...
//   checkpoints/step-00001300.partial/    one that is being written, or was when its job ended
//   checkpoints/latest                    "step-00001200": for people and scripts
//
// A checkpoint is there once its folder has its name: all of it lies on the disk by then. A crash
// at any time leaves those before as they were.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"

namespace epl {

struct SavedStep {
  int64_t step = 0;
  std::string path;
};

// Makes the folder that the files of a step are written into, empty, and says which. What an
// earlier try left there is removed. By one worker.
std::string begin_step(const std::string& folder, int64_t step);
// Writes the manifest and gives the folder its name; a checkpoint of the same step is replaced.
// Throws Error where it cannot be; the checkpoint is not there then, but where `latest` alone could
// not be written.
void commit_step(const std::string& folder, const Manifest& manifest);

// In the order of steps, good or not.
std::vector<SavedStep> saved_steps(const std::string& folder);

// What is wrong with the checkpoint of this path, a line each; empty: it is good.
std::vector<std::string> faults_of_step(const std::string& path);

// The newest that is good. `on_damage` is told of each that is newer and is not, and why.
std::optional<SavedStep> newest_good(
    const std::string& folder,
    const std::function<void(const SavedStep&, const std::string& fault)>& on_damage);

// Which checkpoints stay.
struct Retention {
  int64_t keep_last = 0;   // so many of the newest; 0: all
  int64_t keep_every = 0;  // and those of steps that this divides; 0: no others
};

// Removes the others, and what killed jobs left of steps before the newest. One that is good stays
// in any case: where none of those that are to stay is, so does the newest that is. Gives the steps
// that were removed.
std::vector<int64_t> remove_old_steps(const std::string& folder, const Retention& retention);

}  // namespace epl

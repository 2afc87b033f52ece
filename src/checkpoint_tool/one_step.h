// The checkpoint that a path of the command line names.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/folder.h"
#include "checkpoint/reader.h"

namespace epl {

// The step of the path, or all of the folder's. Throws Error where there is none.
std::vector<SavedStep> steps_of_path(const std::string& path);

// The step of the path, or the newest good one of the folder; says on std::cerr which were damaged.
std::unique_ptr<CheckpointReader> open_step(const std::string& path);

// Calls `with` for all bytes of a tensor, in order, some megabytes at a time.
void for_chunks(CheckpointReader& reader, const std::string& name,
                const std::function<void(int64_t first, const std::vector<char>& bytes)>& with);

}  // namespace epl

// Modules and optimizers in one file: a LibTorch archive with an entry for each of them, which
// Trainer::load reads; torch::load() of a module alone does not.
#pragma once

#include <string>

#include "driver/model.h"

namespace epl {

// Written under a temporary name and renamed, so that a crash or a full disk
// leaves the old file whole.
// `random_step`: where the random streams of devices are, see RandomStreams.
void save_checkpoint(const std::string& path, const Model& model, int64_t random_step);
// A file that does not fit is an error that leaves the model as it was. Returns the random step, 0
// where an older file has none.
int64_t load_checkpoint(const std::string& path, const Model& model);

}  // namespace epl

// One file that a model can be restored from: a LibTorch archive, which Trainer::load reads;
// torch::load() of a module alone does not.
//
// What stands in the archive is the model's own matter (Model::save, Model::load).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

namespace epl {

// Written under a temporary name and renamed, so that a crash or a full disk leaves the old file
// whole.
// `random_step`: where the random streams of devices are, see RandomStreams.
void save_checkpoint(const std::string& path, int64_t random_step,
                     const std::function<void(torch::serialize::OutputArchive&)>& save);

// A file that does not fit is an error; `load` leaves the model as it was then. Returns the random
// step, 0 where an older file has none.
int64_t load_checkpoint(const std::string& path,
                        const std::function<void(torch::serialize::InputArchive&)>& load);

}  // namespace epl

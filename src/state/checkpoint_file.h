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

// What a trainer goes on from, besides its model.
struct SavedProgress {
  int64_t random_step = 0;  // where the random streams of devices are, see RandomStreams
  double loss_scale = 0;    // 0 where the loss is not scaled
  int64_t good_steps = 0;   // since the loss scale last changed
};

// Written under a temporary name and renamed, so that a crash or a full disk leaves the old file
// whole.
void save_checkpoint(const std::string& path, const SavedProgress& progress,
                     const std::function<void(torch::serialize::OutputArchive&)>& save);

// A file that does not fit is an error; `load` leaves the model as it was then. What an older file
// does not have is 0.
SavedProgress load_checkpoint(const std::string& path,
                              const std::function<void(torch::serialize::InputArchive&)>& load);

}  // namespace epl

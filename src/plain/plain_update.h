// The end of a step that ran plainly: its gradients are clipped, and the optimizers go on with
// them.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "model/model.h"
#include "plain/plain_run.h"
#include "runtime/clip.h"
#include "runtime/device_team.h"

namespace epl {

// Divides the reduced gradients by the loss scale. Returns false where one of them is not finite,
// which is so on all workers or on none: they have the same sums.
bool unscale_gradients(const PlainRun& plain, double scale, DeviceTeam& team);

// The first parameter whose reduced gradient is not finite; empty where all are.
std::string infinite_gradient(const Model& model, const PlainRun& plain);

// Clips the reduced gradients in place, and gives the norm that they had before.
double clip_gradients(const PlainRun& plain, const ClipOptions& clip);

// Whether some earlier step gave a parameter a gradient. It is told whether this one does.
using HadGradient =
    std::function<bool(const std::string& name, const at::Tensor& parameter, bool has_one)>;

// What this worker updates of a parameter, where others update the rest (zero.level).
using OwnedHere = std::function<std::optional<Piece>(const at::Tensor& parameter)>;

// Each optimizer gets all its gradients at once. What had one before and has none now goes on with
// zeros where the plain loop does.
struct PlainUpdate {
  HadGradient had_gradient;
  OwnedHere owned_here;
};
void update_plainly(Model& model, const PlainRun& plain, const PlainUpdate& update,
                    DeviceTeam& team);

}  // namespace epl

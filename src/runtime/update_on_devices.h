// The update of a worker's parameters, shared by its devices.
#pragma once

#include <vector>

#include "runtime/device_team.h"
#include "runtime/update.h"

namespace epl {

// Every device updates its part of the elements, and sums as it reads what all devices have.
// Parameters on one memory are updated one after the other, as LibTorch does.
void update_on_devices(Update& update, const std::vector<ParameterGradient>& gradients,
                       DeviceTeam& team);

}  // namespace epl

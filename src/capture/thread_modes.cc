#include "capture/thread_modes.h"

#include <c10/core/DefaultDtype.h>
#include <c10/core/InferenceMode.h>

#include "config/libtorch.h"

namespace epl {

void append_thread_modes(std::vector<int64_t>& key) {
  key.push_back(static_cast<int64_t>(is_cpu_autocast()));
  key.push_back(static_cast<int64_t>(cpu_autocast_dtype()));
  key.push_back(static_cast<int64_t>(c10::typeMetaToScalarType(c10::get_default_dtype())));
  key.push_back(static_cast<int64_t>(c10::InferenceMode::is_enabled()));
}

}  // namespace epl

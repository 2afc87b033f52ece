// What a user hears of mixed precision: text behind "epl: ". An empty one is not told.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>

#include "capture/amp_scope.h"

namespace epl {

// How many times the time of a product in float32 one in `lower` takes, measured in a few
// milliseconds on this thread; none where there is no kernel for it.
std::optional<double> relative_product_time(c10::ScalarType lower, c10::Device device);

// Where it is not faster; else empty.
std::string remark_on_speed(c10::ScalarType lower, std::optional<double> relative_time);

// Of the first step that is skipped, after the scale has followed it.
std::string remark_on_skipped_step(int64_t step, double scale, double next_scale);

// amp.debug_log: lines, with their ends. `times`: how often a step calls the function.
std::string remark_on_casts(const CastLog& casts, int64_t times);

}  // namespace epl

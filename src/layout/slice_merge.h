// How what the slices of a micro batch give becomes what the whole would have given.
#pragma once

#include <cstdint>

namespace epl {

enum class SliceMerge : uint8_t {
  kMean,    // the same however often the rows come
  kSum,     // it grows with them
  kConcat,  // it has a row for each
};

}  // namespace epl

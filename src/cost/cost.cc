#include "cost/cost.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace epl {

Cost operator+(const Cost& a, const Cost& b) {
  return {a.seconds + b.seconds, a.flops + b.flops, a.bytes + b.bytes,
          std::max(a.source, b.source)};
}

void SourceShares::add(const Cost& cost) {
  switch (cost.source) {
    case CostSource::kMeasured:
      measured += cost.seconds;
      break;
    case CostSource::kFitted:
      fitted += cost.seconds;
      break;
    case CostSource::kRoofline:
      roofline += cost.seconds;
      break;
  }
}

std::string SourceShares::str() const {
  const auto percent = [&](double seconds) {
    return std::lround(total() > 0 ? 100 * seconds / total() : 0);
  };
  return concat(percent(measured), " % measured, ", percent(fitted), " % fitted, ",
                percent(roofline), " % by peaks");
}

}  // namespace epl

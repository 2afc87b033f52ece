// Cost: seconds of some work, and how EPL came to know them.
#pragma once

#include <cstdint>
#include <string>

namespace epl {

// The units of a cluster's file, in seconds, operations and bytes.
constexpr double kMicro = 1e-6;
constexpr double kMega = 1e6;
constexpr double kGiga = 1e9;

enum class CostSource : uint8_t {
  kMeasured,  // this very work was timed on a machine of this kind
  kFitted,    // from timings of other sizes of it
  kRoofline,  // from the peaks that a cluster's file names
};

struct Cost {
  double seconds = 0;
  double flops = 0;
  double bytes = 0;  // moved
  CostSource source = CostSource::kRoofline;
};

// Work that follows work: it is known as well as the part that is known least.
Cost operator+(const Cost& a, const Cost& b);

// Seconds by their sources: how far a forecast rests on measurements.
struct SourceShares {
  double measured = 0;
  double fitted = 0;
  double roofline = 0;

  void add(const Cost& cost);
  double total() const { return measured + fitted + roofline; }
  std::string str() const;  // "81 % measured, 15 % fitted, 4 % by peaks"
};

}  // namespace epl

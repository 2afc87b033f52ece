// What a core does with products, with memory and with a call: the fits of a CostTable.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "calibrate/timing.h"
#include "cost/cost_table.h"

namespace epl {

using CalibrateProgress = std::function<void(const std::string& line)>;  // what is measured now

// Products of float32, for all m, n and k of these.
ProductGrid measure_products(const std::vector<int64_t>& sizes, const Timing& timing);

// A line for each of some operators over what bounds it, and one for all that are bound by bytes.
std::map<std::string, LineFit> measure_families(const std::vector<int64_t>& elements,
                                                const Timing& timing,
                                                const CalibrateProgress& progress);

// Seconds of an operator that has nearly nothing to do.
double measure_call(const Timing& timing);

// Lines over elements, of the optimizers' kernels (runtime/update_kernels.h).
std::map<std::string, LineFit> measure_updates(const std::vector<int64_t>& elements,
                                               const Timing& timing);

}  // namespace epl

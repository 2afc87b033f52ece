// The loop that a user of LibTorch writes, and how far another one is from it.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/programs.h"

namespace epl::bench {

inline double number_of_parameters(const Program& program) {
  int64_t count = 0;
  for (const auto& parameter : program.net->parameters()) count += parameter.numel();
  return static_cast<double>(count);
}

// The rows of one of several equal parts of a batch: of a device, or a micro batch.
inline Batch part_of(const Batch& batch, int part, int parts) {
  Batch rows;
  for (const auto& tensor : batch) {
    const int64_t count = tensor.size(0) / parts;
    rows.push_back(tensor.narrow(0, part * count, count).clone());
  }
  return rows;
}

// One update by the mean over some of the parts, whose rows are normalised apart from each other.
inline void plain_step(const Program& program, const std::vector<int>& those, int parts) {
  program.optimizer->zero_grad();
  for (int part : those) {
    const auto loss = program.step(part_of(program.batch, part, parts)).loss;
    (loss / static_cast<double>(those.size())).backward();
  }
  program.optimizer->step();
}

// In terms of the largest change that the plain loop made to a parameter: right where it is at most
// `tolerance`. Of parameters that hardly change, what rounding explains is right, too: it counts as
// that much at most.
inline double worst_difference(const Program& start, const Program& plain, const Program& epl,
                               double tolerance) {
  const torch::NoGradGuard no_grad;
  const auto from = start.net->parameters(), expected = plain.net->parameters(),
             found = epl.net->parameters();
  double worst = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    const double change = (expected[i] - from[i]).abs().max().item<double>();
    const double apart = (found[i] - expected[i]).abs().max().item<double>();
    const double rounding = 4 * std::ldexp(1.0, -23) * from[i].abs().max().item<double>();
    if (std::isnan(apart)) return apart;
    if (apart == 0) continue;  // nor need it have changed
    worst = std::max(worst, apart / std::max(change, rounding / tolerance));
  }
  return worst;
}

// Tells workers apart that differ.
inline double sum_of_parameters(const Program& program) {
  const torch::NoGradGuard no_grad;
  double sum = 0;
  for (const auto& parameter : program.net->parameters()) {
    sum += parameter.to(torch::kDouble).abs().sum().item<double>();
  }
  return sum;
}

}  // namespace epl::bench

#include "verify/finite_loss.h"

#include <cmath>
#include <string>

#include "base/check.h"
#include "base/text.h"
#include "batch/given_batch.h"

namespace epl {
namespace {

// "that of micro batch 2 on device 1 is, others are finite"; empty where all are alike.
std::string parts_that_are_not_finite(const std::vector<DeviceRun>& runs, int first_device) {
  std::string first;
  bool others = false;
  for (size_t device = 0; device < runs.size(); ++device) {
    for (size_t i = 0; i < runs[device].losses.size(); ++i) {
      const bool finite = std::isfinite(runs[device].losses[i]);
      others |= finite;
      if (finite || !first.empty()) continue;
      first = concat("micro batch ", i, " on device ", first_device + static_cast<int>(device));
    }
  }
  return others && !first.empty() ? concat(" (that of ", first, "; others are finite)") : "";
}

}  // namespace

bool accepts_loss(const LossOfStep& result, const Config& config) {
  const std::string policy = config.get<std::string>("debug.nan_loss");
  if (policy == "ignore" || std::isfinite(result.loss)) return true;
  if (policy == "skip") return false;
  check_has_rows(result.batch);  // a mean over no rows is no number
  const std::string part = parts_that_are_not_finite(result.runs, result.first_device);
  const bool early = config.get<bool>("optimizer.update_early");
  throw Error(concat("the loss of step ", result.step, " is ", result.loss, part,
                     early ? "; parameters have been updated with it (optimizer.update_early)"
                           : "; the parameters are as before the step"),
              config.asked_by("debug.nan_loss"),
              concat(part.empty() ? ""
                                  : "rows that have something to take a mean of in every part (all "
                                    "targets of this one may be ignored or masked), ",
                     "a smaller learning rate, TrainerOptions::clip_grad_norm, or debug.nan_loss = "
                     "\"skip\" or \"ignore\""));
}

}  // namespace epl

// What EPL says of the stages that it chose.
//
//   epl: 2 stages, cut by measured cost
//     stage_0   61 operators   49.7 % of the time   parameters 31.0 MiB   saves 12.1 MiB
//     stage_1   58 operators   50.3 % of the time   parameters 29.5 MiB   saves 10.8 MiB
//     the slowest stage takes 1.01 of the mean; 1.0 MiB cross a micro batch
//     4 micro batches: about 1.59 times as fast as one device
//   The same as scopes:
//     { epl::With stage(epl::replicate(1, "stage_0")); ... }  // tokens to block1.norm2
//     { epl::With stage(epl::replicate(1, "stage_1")); ... }  // from block2.qkv
#pragma once

#include <string>
#include <vector>

#include "plan/stage_cuts.h"
#include "plan/stage_model.h"

namespace epl {

// `begins` holds the first position of each chunk.
std::string explain_stages(const StageModel& model, const std::vector<int>& begins,
                           const StageCuts& chosen, const StageCutsRequest& request, bool measured);

}  // namespace epl

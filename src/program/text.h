// The text form of a Plan, as Trainer::plan() prints it.
//
//   plan: 1 program, 2 micro batches, arena 1.5 MiB
//   program 0
//     0  load    micro batch 0
//     1  run     step             micro batch 0
//     ...
//   segment step
//     s9 f32[4,8] @512 = aten::addmm.out(s3, s1, s2, 1, 1)    forward 0
#pragma once

#include <string>

#include "program/program.h"

namespace epl {

std::string print_plan(const Plan& plan);

}  // namespace epl

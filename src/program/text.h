// The text form of a Plan, as Trainer::plan() prints it and parse_plan() reads it.
//
//   plan: 1 program, 2 micro batches, arena 1.5 MiB
//   program 0
//      0  load    micro batch 0
//      1  run     step  micro batch 0
//      ...
//   leaves
//       s3 f32[8] = "fc.bias"
//   views
//       s5 f32[8,8]{1,8} of "fc.weight"
//   segment step
//       s9 f32[4,8] @512 = aten::addmm.out(s3, s1, s5, 1, 1)  forward 0
//       return loss s9
//   gradients
//       s9 of "fc.bias"
//
// Behind the plan's first line stand shares in loss and metrics, where there are several:
//
//   loss      role 1, 2 devices, mean, over 8.0, seed 0.125
//   metric    "hits" of "GLOBAL_SUM", role 1, 2 devices, sum
//
// Behind a program's first line stands its mesh, where that has several devices
// (program/plan_mesh.h):
//
//   mesh      replica 2 x part 4, parts 0 to 3
//
// Roles that share a program are counted through all programs. What grows from one of them to the
// next stands behind the offset of a slot, or behind an integer; a shard is that of the first:
//
//   program 1  3 roles, each 1 device, arena 1.5 MiB
//       s5 f32[2,8]+16 by role 16 = "fc.weight" [2:4 of 8 in dim 0]
//       s9 i64[4] @512 = epl_rows::index_in_piece.out(s1, 2 by role 2, 8, None, False)  forward 0
//
// All that a Plan holds is in the text, written or by the rules of program/text_rules.h: what is as
// they say does not print. Then comes what is not as usual of the whole:
//
//   stage     1             of the schedule, where it is not the number of the program's first role
//   guards    yes           a run may find other values than recorded, though no call expects any
//   tolerance 1e-06         of guards
//   arena     330 bytes     where it does not end with its last buffer
//   writes    "norm.mean"   state that the segments change
//
// Behind an instruction stands what it costs, where the planner has stamped it; its bytes only
// where they do not stand before:
//
//      0  load    micro batch 0  [48 B, 2.005 us]
//      4  update  2 parameters  80 B  [2.028 us]
//
// The text does not hold slots that nothing names (views of views leave some), the state of random
// generators, and schedules without a stage.
#pragma once

#include <cstdint>
#include <string>

#include "program/program.h"

namespace epl {

// Plans without costs parse back as well, to plans without costs.
enum class CostText : uint8_t { kPrinted, kLeftOut };
std::string print_plan(const Plan& plan, CostText costs = CostText::kPrinted);

}  // namespace epl

// How long a Plan takes, before anything runs: a Timeline from the costs of its instructions.
//
//   std::cout << simulate(plan).str();               // by the costs that the planner has stamped
//
//   PlanCosts costs = stamped_costs(plan);
//   costs.run = [](int program, const Instruction& run) { return PlanCosts::Run{0.010, 0.020}; };
//   std::cout << simulate(plan, costs).str();
//
// The walk is that of the checker (program/walk.h). Runs go one after the other on their device;
// what is sent, and gradients that are reduced, travel meanwhile. At the end of the step all
// programs wait for each other before each phase, as they do when it runs.
#pragma once

#include <epl/timeline.h>

#include <functional>

#include "program/program.h"

namespace epl {

// In seconds; what is left out takes no time.
struct PlanCosts {
  struct Run {
    double own = 0;       // of the segment, or of its forward part
    double backward = 0;  // where one segment does both
  };
  using OfRun = std::function<Run(int program, const Instruction& run)>;
  using OfInstruction = std::function<double(int program, const Instruction& instruction)>;

  OfRun run;
  OfInstruction send;    // from the send to the moment at which the value can be received
  OfInstruction reduce;  // those of one program, one after the other
  OfInstruction bring;   // fetch, store: those of one program, one after the other
  OfInstruction end;     // merge, clip, update, gather: on a device of the program
};

// Those that stand in the plan, which outlives what is returned. Where one segment does forward and
// backward its seconds are shared out by the number of their calls.
PlanCosts stamped_costs(const Plan& plan);

// One device a program.
Timeline simulate(const Plan& plan, const PlanCosts& costs);
Timeline simulate(const Plan& plan);

}  // namespace epl

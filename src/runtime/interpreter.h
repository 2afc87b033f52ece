// Interpreter: runs the Program of one device, instruction by instruction, on the device's thread.
//
// It decides nothing: what happens, in which order and in which memory stands in the Program. All
// that its instructions name is bound beforehand.
//
//   Interpreter interpreter({plan, program, executor, exchange, mail, team, device});
//   interpreter.run({&micro_batches, seed, groups}, result);
//
// What a run computed is in its DeviceRun, as far as it came where it throws.
#pragma once

#include <epl/step.h>
#include <epl/timeline.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "program/program.h"
#include "runtime/collectives.h"
#include "runtime/device_team.h"
#include "runtime/executor.h"
#include "runtime/gradient_exchange.h"
#include "runtime/leaf_homes.h"
#include "runtime/spread_leaves.h"
#include "runtime/stage_mail.h"

namespace epl {

// What one device computed in one step, micro batch by micro batch.
struct DeviceRun {
  struct Metric {
    std::string collection;
    std::vector<at::Tensor> parts;
  };

  std::vector<double> losses;  // none on devices whose stage does not compute it
  std::map<std::string, Metric> metrics;
  int micro_batch = 0;      // where it is, or where it stopped
  std::vector<Span> spans;  // times since `begin`
  CollectiveMeter meter;    // what the device said to others while it computed
  std::chrono::steady_clock::time_point begin;
};

class Interpreter {
 public:
  // All of them outlive the interpreter.
  struct Bound {
    const Plan& plan;
    const Program& program;
    Executor& executor;
    GradientExchange& exchange;      // takes groups of gradients as they are ready
    StageMail* mail = nullptr;       // null where there is one stage
    DeviceTeam& team;                // whose devices stop where one of them fails
    int device = 0;                  // its number in the job
    Executor::GivenRows rows = {};   // of a micro batch, that this worker has
    LeafHomes* homes = nullptr;      // null where nothing is offloaded
    LeafHomes::Device in_role = {};  // its number there
    SpreadLeaves* spread = nullptr;  // null where nothing is spread over workers
  };
  explicit Interpreter(const Bound& bound);

  struct Given {
    const std::vector<Batch>* micro_batches = nullptr;  // null where its stage does not read them
    double seed = 1;                                    // the gradient of a micro batch's loss
    AxisGroups groups = {};  // by axis, of the devices that it computes together with; may be none
  };
  // The program up to the end of the step, which all devices of a worker go through together
  // (StepEnd, in runtime/step_end.h).
  void run(const Given& given, DeviceRun& result);

 private:
  void run_instruction(const Instruction& instruction, const Given& given, DeviceRun& result);
  void receive(const Instruction& instruction, DeviceRun& result);
  void run_calls(const Instruction& instruction, DeviceRun& result);
  void add_spans(Span span, DeviceRun& result) const;
  void read_outputs(const SegmentOutputs& outputs, DeviceRun& result) const;
  bool in_pipeline() const { return !bound_.plan.schedule.stages.empty(); }

  const Bound bound_;
  // By segment: the call that begins backward where one segment does both; else the end.
  std::vector<int> first_backward_;
};

}  // namespace epl

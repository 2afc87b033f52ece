// How close does a pipeline come to what its stages allow?
//
//   bench_pipeline [--models gpt,bert_base] [--micro-batches 4,8] [--rounds 7] [--steps 0]
//                  [--cut 0] [--sides one_device,pipeline,zero_bubble,pipe,hand_1f1b,two_at_once]
//
// The same network, optimizer (SGD with momentum) and 8 rows a step, one thread a device:
//
//   one_device   EPL, one device: the micro batches one after another, their gradients summed
//   pipeline     EPL, one process with two devices, a stage each: PreferBackward (1F1B)
//   zero_bubble  the same, ZeroBubble
//   pipe         PyTorch's torch.distributed.pipeline.sync.Pipe (bench/peers/pipeline.py), which
//                later versions do not have
//   hand_1f1b    two processes with a stage each over gloo, written by hand (the same file)
//   two_at_once  one_device in two processes at once that know nothing of each other; for
//                information: what the cores take from each other
//
// All pipelines are cut in front of the same block (--cut tries another one). The sides take turns,
// chunk by chunk (--steps steps), in processes of their own; a side whose turn it is not waits in a
// read. They are compared round by round, and the median of the ratios is reported. Rounds in which
// somebody else used the machine are repeated, up to three times as many; the calmest ones count,
// and what others used even in those is printed ("foreign"). Before a side is timed its parameters
// after two steps are compared with those of the plain loop.
//
// What is printed, with f, b, w the mean seconds of the tasks of a stage in the timelines of the
// same turn (Trainer::timeline), and u what the step took beside its tasks, mostly the update:
//
//   share of this schedule's ideal
//     by the costs of these tasks: simulate(schedule, f, b, w, u, no transfers) / step.
//       What waiting for values and for each other beyond the schedule costs.
//     by the step of one device: (step of one_device / step) / ideal speed-up, the latter the sum
//       of all tasks and updates over that simulated step. Two cores share memory and caches, and
//       small tasks may cost more than one large one: here it counts against the pipeline.
//   share of the no-bubble limit: (sum of all tasks and updates / 2) / step, and
//     (step of one_device / 2) / step. Stages that are not equal count against the pipeline.
//   share of the busiest stage: (tasks and update of the stage with the most work) / step. With the
//     stages as they are, no schedule comes beyond 1.
//   simulated over measured: simulate() with the medians of the tasks, transfers and updates of all
//     other rounds, over the step of this round.
//
// The last line is one JSON object: by model and number of micro batches `share_of_ideal` (of
// pipeline, by the costs of its tasks), `zero_bubble_share_of_limit` (of zero_bubble, likewise),
// `vs_pipe` and `vs_hand_1f1b` (how much faster pipeline is), `simulated_over_measured`; then both
// shares by the step of one device, and zero_bubble's share of the busiest stage and simulation.
// Where python3-torch is missing, what it would be compared with is null.
#include <cmath>
#include <cstdio>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/pipeline_report.h"
#include "bench/pipeline_sides.h"

namespace epl::bench {
namespace {

const std::vector<std::string>& all_sides() {
  static const std::vector<std::string> all = {"one_device", "pipeline",  "zero_bubble",
                                               "pipe",       "hand_1f1b", "two_at_once"};
  return all;
}

struct Arguments {
  std::vector<std::string> models;
  std::vector<int> micro_batches = {4, 8};
  std::vector<std::string> sides;
  int rounds = 7;
  int steps = 0;      // in a turn; 0: as the workload says
  int64_t cut = 0;    // 0: as the workload says
  std::string serve;  // this process is one of a side
  std::string check;

  std::vector<Case> cases() const {
    std::vector<Case> result;
    for (PipelineWorkload workload : workloads()) {
      if (std::find(models.begin(), models.end(), workload.name) == models.end()) continue;
      if (cut > 0) workload.cut = cut;
      for (int count : micro_batches) result.push_back({workload, count});
    }
    return result;
  }
};

void check_side(const std::string& side, const Case& asked) {
  if (is_of_torch(side) || side == "two_at_once") return;  // pipeline.py checks itself
  Crew checked(side, starts_of(side, asked, 1, "--check"), 1);
  const auto answer = checked.answers().at(0);
  checked.end();
  if (answer.size() != 1 || !(answer[0] <= kTolerance)) {
    throw std::runtime_error(asked.title() + ", " + side + ": after 2 steps a parameter is " +
                             std::to_string(answer.empty() ? NAN : answer[0]) +
                             " of its change away from the plain loop's; allowed is " +
                             std::to_string(kTolerance));
  }
  std::fprintf(stderr, "%s: %s is right (largest difference %.1e of a parameter's change)\n",
               asked.title().c_str(), side.c_str(), answer[0]);
}

Result run(const Case& asked, const Arguments& arguments, const std::vector<std::string>& sides) {
  Result result;
  result.asked = asked;
  result.steps = arguments.steps > 0 ? arguments.steps : asked.workload.chunk;
  for (const auto& side : sides) check_side(side, asked);
  Crews running;
  std::optional<double> parameters;
  for (const auto& side : sides) {
    auto& started = running[side] =
        std::make_unique<Crew>(side, starts_of(side, asked, result.steps, "--serve"), result.steps);
    for (const auto& answer : started->answers()) {
      if (!parameters) parameters = answer.at(0);
      if (answer.at(0) != *parameters) {
        throw std::runtime_error(asked.title() + ": " + side + " has another number of parameters");
      }
      if (!is_pipeline(side)) continue;
      result.schedules[side] = schedule_from(strategy_of(side), {answer.begin() + 1, answer.end()});
    }
    started->turn();  // warms up
  }
  result.rounds = take_turns(asked.title(), sides, running, arguments.rounds, result.steps);
  for (const auto& [side, started] : running) {
    result.megabytes[side] = started->peak_megabytes();
    started->end();
  }
  return result;
}

[[noreturn]] void explain() {
  throw std::runtime_error(
      "usage: bench_pipeline [--models gpt,bert_base] [--micro-batches 4,8] [--rounds N] "
      "[--steps N] [--cut BLOCK] [--sides "
      "one_device,pipeline,zero_bubble,pipe,hand_1f1b,two_at_once]");
}

void take(const std::string& key, const std::string& value, Arguments& arguments) {
  if (value.empty()) explain();
  if (key == "--models") {
    arguments.models = parts(value);
  } else if (key == "--micro-batches") {
    arguments.micro_batches.clear();
    for (const auto& count : parts(value)) arguments.micro_batches.push_back(std::stoi(count));
  } else if (key == "--sides") {
    arguments.sides = parts(value);
  } else if (key == "--rounds") {
    arguments.rounds = std::max(2, std::stoi(value));
  } else if (key == "--steps") {
    arguments.steps = std::max(0, std::stoi(value));
  } else if (key == "--cut") {
    arguments.cut = std::stoi(value);
  } else if (key == "--serve") {
    arguments.serve = value;
  } else if (key == "--check") {
    arguments.check = value;
  } else {
    explain();
  }
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  arguments.sides = all_sides();
  for (int i = 1; i < argc; i += 2) take(argv[i], i + 1 < argc ? argv[i + 1] : "", arguments);
  std::vector<std::string> known;
  for (const auto& workload : workloads()) known.push_back(workload.name);
  check_known(arguments.models, known);
  if (arguments.models.empty()) arguments.models = {"gpt", "bert_base"};
  check_known(arguments.sides, all_sides());
  return arguments;
}

int run_process(const Arguments& arguments) {
  use_one_thread();
  const Case asked = arguments.cases().at(0);
  const std::string side = arguments.serve.empty() ? arguments.check : arguments.serve;
  epl::init(epl::Config{{"pipeline.num_micro_batch", asked.micro_batches},
                        {"pipeline.strategy", strategy_of(side)}});
  if (arguments.serve.empty()) {
    check_process(asked, side);
  } else {
    serve_process(asked, side, arguments.steps);
  }
  return 0;
}

int run_all(const Arguments& arguments) {
  end_sides_when_interrupted();
  std::vector<std::string> sides = arguments.sides;
  if (!torch_is_installed()) {
    std::fprintf(
        stderr,
        "%s has no torch (Debian: apt-get install python3-torch): nothing is compared with "
        "PyTorch\n",
        kPython);
    sides.erase(std::remove_if(sides.begin(), sides.end(), is_of_torch), sides.end());
  } else if (!python_has("torch.distributed.pipeline")) {
    std::fprintf(stderr,
                 "this PyTorch has no torch.distributed.pipeline: nothing is compared with Pipe\n");
    sides.erase(std::remove(sides.begin(), sides.end(), "pipe"), sides.end());
  }
  std::vector<Result> results;
  for (const auto& asked : arguments.cases()) results.push_back(run(asked, arguments, sides));
  print_report(results, sides);
  print_json(results);
  return 0;
}

}  // namespace
}  // namespace epl::bench

int main(int argc, char** argv) {
  try {
    const auto arguments = epl::bench::parse(argc, argv);
    const bool serves = !arguments.serve.empty() || !arguments.check.empty();
    return serves ? epl::bench::run_process(arguments) : epl::bench::run_all(arguments);
  } catch (const std::exception& error) {
    std::cerr << "bench_pipeline: " << error.what() << "\n";
    return 1;
  }
}

#include "sim/simulate_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/text.h"
#include "program/span_kind.h"
#include "program/walk.h"

namespace epl {
namespace {

double cost_of(const PlanCosts::OfInstruction& costs, size_t role, const Instruction& each) {
  return costs ? costs(static_cast<int>(role), each) : 0;
}

// Forward and backward of one segment.
PlanCosts::Run shared_out(const Segment& segment, const Instruction& run) {
  const int end = std::min(run.end_call, static_cast<int>(segment.calls.size()));
  int backward = 0;
  for (int i = run.first_call; i < end; ++i) {
    backward += segment.calls[static_cast<size_t>(i)].backward ? 1 : 0;
  }
  const int calls = std::max(1, end - run.first_call);
  const double share = run.cost.seconds * backward / calls;
  return {run.cost.seconds - share, share};
}

class Simulation final : public PlanVisitor {
 public:
  Simulation(const Plan& plan, const PlanCosts& costs)
      : plan_(plan), costs_(costs), devices_(plan.roles()) {}

  void visit(size_t role, const Instruction& instruction, const Instruction*) override {
    Device& device = devices_[role];
    switch (instruction.kind) {
      case Instruction::Kind::kRun:
        return run(role, instruction, device);
      case Instruction::Kind::kSend:
        letters_[key_of(role, instruction)] = {
            device.free, device.free + cost_of(costs_.send, role, instruction)};
        return;
      case Instruction::Kind::kReceive:
        return receive(instruction, letters_.at(key_of(role, instruction)), device);
      case Instruction::Kind::kReduce:
        return reduce(role, instruction, device);
      case Instruction::Kind::kUpdateEarly:
        return update_early(role, instruction, device);
      case Instruction::Kind::kAwaitGroup:
        return await_group(instruction, device);
      case Instruction::Kind::kFetch:
      case Instruction::Kind::kWait:
      case Instruction::Kind::kStore:
        return bring(role, instruction, device);
      default:
        return;
    }
  }

  void visit(const EndPhase& phase) override {
    if (phase.kind == Instruction::Kind::kAwait) return await();
    const double begin = latest();
    for (Device& device : devices_) device.free = begin;
    for (const auto& [role, instruction] : phase.instructions) {
      Device& device = devices_[static_cast<size_t>(role)];
      const auto index = static_cast<size_t>(role);
      if (phase.kind == Instruction::Kind::kReduce) {
        reduce(index, *instruction, device);
      } else if (is_of_offload(instruction->kind)) {
        bring(index, *instruction, device);
      } else {
        add({kind_of_end(phase), -1, -1, device.free,
             device.free + cost_of(costs_.end, index, *instruction)},
            device);
      }
    }
  }

  Timeline timeline() {
    Timeline made;
    made.title = concat("simulated, ", plan_.roles(), plan_.roles() == 1 ? " role, " : " roles, ",
                        plan_.micro_batches, " micro batches");
    made.seconds = latest();
    for (size_t i = 0; i < devices_.size(); ++i) {
      const bool pipeline = !plan_.schedule.stages.empty();
      made.devices.push_back(
          {pipeline ? concat("stage ", plan_.program_of(i).stage) : concat("role ", i),
           std::move(devices_[i].spans)});
    }
    return made;
  }

 private:
  struct Device {
    double free = 0;                                 // when it is done with all so far
    double reduced = 0;                              // when all of its sums are there
    std::map<int, double> groups;                    // when each of them is
    double brought = 0;                              // when its file is done with all so far
    std::map<std::pair<int, bool>, double> arrives;  // what is fetched: a leaf, or its states
    std::vector<Span> spans;
  };
  struct Letter {
    double sent = 0;
    double arrived = 0;
  };

  static Span::Kind kind_of_end(const EndPhase& phase) {
    const bool computes = phase.kind == Instruction::Kind::kUpdate ||
                          phase.kind == Instruction::Kind::kClip ||
                          phase.kind == Instruction::Kind::kFinite;
    return computes ? Span::Kind::kUpdate : Span::Kind::kCommunication;
  }

  static void add(const Span& span, Device& device) {
    if (span.end > span.begin) device.spans.push_back(span);
    device.free = span.end;
  }

  using LetterKey = std::pair<int, int>;  // transfer and micro batch
  LetterKey key_of(size_t role, const Instruction& instruction) const {
    return {plan_.role(role).transfer(instruction), instruction.micro_batch};
  }

  void run(size_t role, const Instruction& run, Device& device) {
    if (!costs_.run) return;
    const Segment& segment = plan_.program_of(role).segments[static_cast<size_t>(run.segment)];
    const PlanCosts::Run cost = costs_.run(static_cast<int>(role), run);
    add({span_kind(segment.kind), segment.chunk, run.micro_batch, device.free,
         device.free + cost.own},
        device);
    add({Span::Kind::kBackward, segment.chunk, run.micro_batch, device.free,
         device.free + cost.backward},
        device);
  }

  // What it waits for before the letter is sent is a bubble.
  static void receive(const Instruction& instruction, const Letter& letter, Device& device) {
    if (letter.arrived <= device.free) return;
    device.free = std::max(device.free, letter.sent);
    add({Span::Kind::kCommunication, -1, instruction.micro_batch, device.free, letter.arrived},
        device);
  }

  void reduce(size_t role, const Instruction& instruction, Device& device) const {
    device.reduced =
        std::max(device.reduced, device.free) + cost_of(costs_.reduce, role, instruction);
    device.groups[instruction.group] = device.reduced;
  }

  // Where its sum is on its way it follows that; else the device does it itself.
  void update_early(size_t role, const Instruction& instruction, Device& device) const {
    const double seconds = cost_of(costs_.end, role, instruction);
    const auto sum = device.groups.find(instruction.group);
    if (sum == device.groups.end()) {
      add({Span::Kind::kUpdate, -1, -1, device.free, device.free + seconds}, device);
    } else {
      sum->second = device.reduced += seconds;
    }
  }

  static void await_group(const Instruction& instruction, Device& device) {
    const auto sum = device.groups.find(instruction.group);
    const double there = sum == device.groups.end() ? 0 : sum->second;
    add({Span::Kind::kCommunication, -1, -1, device.free, std::max(device.free, there)}, device);
  }

  // One thing after the other comes from the file and goes there, while the device computes.
  void bring(size_t role, const Instruction& instruction, Device& device) const {
    if (instruction.kind != Instruction::Kind::kWait) {
      device.brought =
          std::max(device.brought, device.free) + cost_of(costs_.bring, role, instruction);
    }
    double there = device.free;
    for (int leaf : instruction.leaves) {
      double& arrives = device.arrives[{leaf, instruction.states}];
      if (instruction.kind == Instruction::Kind::kFetch) arrives = device.brought;
      there = std::max(there, arrives);
    }
    if (instruction.kind != Instruction::Kind::kWait) return;
    add({Span::Kind::kCommunication, -1, -1, device.free, there}, device);
  }

  void await() {
    for (Device& device : devices_) {
      add({Span::Kind::kCommunication, -1, -1, device.free, std::max(device.free, device.reduced)},
          device);
    }
  }

  double latest() const {
    double last = 0;
    for (const Device& device : devices_) last = std::max(last, device.free);
    return last;
  }

  const Plan& plan_;
  const PlanCosts& costs_;
  std::vector<Device> devices_;
  std::map<LetterKey, Letter> letters_;
};

}  // namespace

PlanCosts stamped_costs(const Plan& plan) {
  PlanCosts costs;
  costs.run = [&plan](int role, const Instruction& run) {
    const Segment& segment =
        plan.program_of(static_cast<size_t>(role)).segments[static_cast<size_t>(run.segment)];
    const bool task_of_pipeline = !plan.schedule.stages.empty();
    return task_of_pipeline ? PlanCosts::Run{run.cost.seconds, 0} : shared_out(segment, run);
  };
  const auto stamped = [](int, const Instruction& each) { return each.cost.seconds; };
  costs.send = stamped;
  costs.reduce = stamped;
  costs.bring = stamped;
  costs.end = stamped;
  return costs;
}

Timeline simulate(const Plan& plan) { return simulate(plan, stamped_costs(plan)); }

Timeline simulate(const Plan& plan, const PlanCosts& costs) {
  Simulation simulation(plan, costs);
  walk(plan, simulation);
  return simulation.timeline();
}

}  // namespace epl

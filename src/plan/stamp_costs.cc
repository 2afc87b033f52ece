#include "plan/stamp_costs.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "ops/facts.h"
#include "program/bytes_moved.h"

namespace epl {
namespace {

// A graph of one node that does what the call does.
class GraphOfCall {
 public:
  GraphOfCall(const Program& program, const Call& call)
      : program_(program), node_{call.op, {}, {}, Phase::kForward, -1, {}} {
    for (const Operand& operand : call.operands) node_.arguments.push_back(argument(operand));
    for (SlotId id : call.results) {
      node_.results.push_back({false, {value_of(id)}});
    }
  }

  double seconds(const Machine& machine) const { return estimated_seconds(graph_, node_, machine); }

 private:
  Argument argument(const Operand& operand) {
    Argument made;
    made.constant = operand.constant;
    if (operand.kind == Operand::Kind::kConstant) return made;
    const bool list = operand.kind == Operand::Kind::kList;
    made.kind = list ? Argument::Kind::kList : Argument::Kind::kValue;
    for (SlotId id : operand.slots) made.values.push_back(value_of(id));
    return made;
  }

  ValueId value_of(SlotId id) {
    if (id == kNoSlot) return kNoValue;
    const auto known = values_.find(id);
    if (known != values_.end()) return known->second;
    const ValueId made = graph_.add_value(program_.slots[static_cast<size_t>(id)].type);
    return values_[id] = made;
  }

  const Program& program_;
  Graph graph_;
  Node node_;
  std::map<SlotId, ValueId> values_;
};

int64_t bytes_of_results(const Program& program, const Call& call) {
  int64_t bytes = 0;
  for_each_result(call, [&](SlotId id) { bytes += slot_bytes(program, id); });
  return bytes;
}

// From one device to another one.
double sent_seconds(const Link& link, int64_t bytes) {
  return link.seconds_per_call + static_cast<double>(bytes) / link.sent_bytes_per_second;
}

double moved_seconds(const Link& link, int64_t bytes) {
  return link.seconds_per_call + static_cast<double>(bytes) / link.bytes_per_second;
}

// The sum of what so many devices have comes to all of them: each sends, and is sent, all but its
// own share twice.
double all_reduce_seconds(const Link& link, int64_t bytes, int devices) {
  if (devices < 2) return 0;
  const auto others = static_cast<double>(devices - 1) / devices;
  return 2 * (link.seconds_per_call + others * static_cast<double>(bytes) / link.bytes_per_second);
}

// Of a disk without moving parts.
constexpr double kFileBytesPerSecond = 1e9;

class CostStamp {
 public:
  CostStamp(const Plan& plan, const Machine& machine) : plan_(plan), machine_(machine) {}

  InstructionCost of(const Program& program, const Instruction& each) {
    // What a wait is for is counted where it is fetched; a parameter that goes is mostly as it was.
    const bool moves_nothing = each.kind == Instruction::Kind::kWait ||
                               (each.kind == Instruction::Kind::kStore && !each.states);
    if (moves_nothing) return {};
    const int64_t bytes = bytes_moved(program, each);
    return {bytes, std::round(seconds_of(program, each, bytes) * 1e9) / 1e9};
  }

 private:
  // How often memory is gone through, of so many tensors.
  double in_memory(int64_t bytes, int times, size_t tensors) const {
    return static_cast<double>(tensors) * machine_.device.seconds_per_call +
           times * static_cast<double>(bytes) / machine_.device.bytes_per_second;
  }

  double seconds_of(const Program& program, const Instruction& each, int64_t bytes) {
    constexpr int kOfACopy = 2;     // read and written
    constexpr int kOfClipping = 3;  // read for the norm, read and written for the factor
    constexpr int kOfAnUpdate = 7;  // as Adam does: gradient, parameter and two moments
    const int devices = plan_.replicas * program.devices;
    switch (each.kind) {
      case Instruction::Kind::kLoad:
        return in_memory(bytes, kOfACopy, 1);
      case Instruction::Kind::kRun:
        return seconds_of_run(program, each);
      case Instruction::Kind::kSend:
        return stays_on_device(each) ? in_memory(bytes, kOfACopy, 1)
                                     : sent_seconds(machine_.link, bytes);
      case Instruction::Kind::kGather:
        if (each.leaves.empty()) return 0;
        return each.over == Instruction::Over::kReplicas
                   ? all_reduce_seconds(machine_.link, bytes, plan_.replicas) / 2
                   : moved_seconds(machine_.link, bytes);
      case Instruction::Kind::kReduce:
        if (each.gradients.empty()) return 0;
        return all_reduce_seconds(
                   machine_.link, bytes,
                   each.over == Instruction::Over::kRoles ? users_of_tied() : devices) *
               part_that_comes_back(program, each);
      case Instruction::Kind::kMerge:
        return each.leaves.empty() ? 0 : all_reduce_seconds(machine_.link, bytes, devices);
      case Instruction::Kind::kClip:
        return in_memory(bytes, kOfClipping, 2 * each.gradients.size());
      case Instruction::Kind::kFinite:
        return in_memory(bytes, 1, each.gradients.empty() ? 0 : 1);
      case Instruction::Kind::kUpdate:
      case Instruction::Kind::kUpdateEarly:
        return in_memory(bytes, kOfAnUpdate, each.gradients.empty() ? 0 : 1);
      case Instruction::Kind::kFetch:
      case Instruction::Kind::kStore:
        return static_cast<double>(bytes) / kFileBytesPerSecond;
      case Instruction::Kind::kWait:     // what it waits for is its fetch's
      case Instruction::Kind::kReceive:  // and its send's
      case Instruction::Kind::kReport:
      case Instruction::Kind::kAwait:
      case Instruction::Kind::kAwaitGroup:
      case Instruction::Kind::kCheck:
        break;
    }
    return 0;
  }

  // A sum that comes to its owners alone is half of the way.
  static double part_that_comes_back(const Program& program, const Instruction& reduce) {
    int64_t all = 0;
    int64_t owned = 0;
    for (int i : reduce.gradients) {
      const PlanGradient& gradient = program.gradients[static_cast<size_t>(i)];
      const int64_t bytes = slot_bytes(program, gradient.slot);
      all += bytes;
      if (!gradient.owners.are_all()) owned += bytes;
    }
    return all == 0 ? 1 : 1 - static_cast<double>(owned) / (2 * static_cast<double>(all));
  }

  // From one chunk of a stage to another one.
  bool stays_on_device(const Instruction& send) const {
    const Transfer& transfer = plan_.transfers[static_cast<size_t>(send.transfer)];
    return transfer.from == transfer.to;
  }

  // Runs of one segment come again for each micro batch.
  const std::vector<double>& seconds_of_calls(const Program& program, int segment) {
    const auto& calls = program.segments[static_cast<size_t>(segment)].calls;
    std::vector<double>& seconds = seconds_[{&program, segment}];
    for (size_t i = seconds.size(); i < calls.size(); ++i) {
      const double said = is_collective(calls[i].op)
                              ? moved_seconds(machine_.link, bytes_of_results(program, calls[i]))
                              : 0;
      seconds.push_back(estimated_seconds(program, calls[i], machine_) + said);
    }
    return seconds;
  }

  double seconds_of_run(const Program& program, const Instruction& run) {
    const std::vector<double>& calls = seconds_of_calls(program, run.segment);
    const int end = std::min(run.end_call, static_cast<int>(calls.size()));
    double seconds = 0;
    for (int i = run.first_call; i < end; ++i) seconds += calls[static_cast<size_t>(i)];
    return seconds;
  }

  // Devices that have a gradient of a tied parameter: of the one that most of them have.
  int users_of_tied() const {
    size_t programs = 0;
    for (const auto& gradients : plan_.tied) programs = std::max(programs, gradients.size());
    return plan_.replicas * static_cast<int>(programs);
  }

  const Plan& plan_;
  const Machine machine_;
  std::map<std::pair<const Program*, int>, std::vector<double>> seconds_;  // by segment: its calls
};

}  // namespace

double estimated_seconds(const Program& program, const Call& call, const Machine& machine) {
  if (call.mode == Call::Mode::kNothing) return 0;
  return GraphOfCall(program, call).seconds(machine);
}

void stamp_costs(Plan& plan, const Machine& machine) {
  CostStamp stamp(plan, machine);
  for (auto& program : plan.programs) {
    for (auto& each : program.instructions) each.cost = stamp.of(program, each);
  }
}

}  // namespace epl

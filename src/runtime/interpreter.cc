#include "runtime/interpreter.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "program/span_kind.h"
#include "program/step_end.h"

namespace epl {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

Interpreter::Interpreter(const Bound& bound) : bound_(bound) {
  // A step without stages is one segment, forward and backward: its timeline tells them apart.
  for (const auto& segment : bound.program.segments) {
    const auto& calls = segment.calls;
    const auto first = in_pipeline() ? calls.end()
                                     : std::find_if(calls.begin(), calls.end(),
                                                    [](const Call& call) { return call.backward; });
    first_backward_.push_back(static_cast<int>(first - calls.begin()));
  }
}

void Interpreter::run(const Given& given, DeviceRun& result) {
  const c10::AutoGradMode no_grad(false);
  bound_.executor.set_seed(given.seed);
  std::optional<CollectiveScope> scope;
  if (!given.groups.empty()) scope.emplace(given.groups, &result.meter);
  const size_t end = begin_of_end(bound_.program);
  for (size_t i = 0; i < end; ++i) {
    if (bound_.team.cancelled()) throw Cancelled();
    run_instruction(bound_.program.instructions[i], given, result);
  }
}

void Interpreter::run_instruction(const Instruction& instruction, const Given& given,
                                  DeviceRun& result) {
  switch (instruction.kind) {
    case Instruction::Kind::kLoad:
      result.micro_batch = instruction.micro_batch;
      bound_.executor.load((*given.micro_batches)[static_cast<size_t>(instruction.micro_batch)],
                           instruction.slots, bound_.rows);
      break;
    case Instruction::Kind::kReceive:
      receive(instruction, result);
      break;
    case Instruction::Kind::kRun:
      run_calls(instruction, result);
      break;
    case Instruction::Kind::kSend:
      bound_.mail->send(bound_.device, bound_.executor, instruction);
      break;
    case Instruction::Kind::kReduce:
    case Instruction::Kind::kUpdateEarly:
      bound_.exchange.ready(instruction);
      break;
    case Instruction::Kind::kAwaitGroup:
      bound_.exchange.await(instruction, [&] {
        if (bound_.team.cancelled()) throw Cancelled();
      });
      break;
    case Instruction::Kind::kFetch:
    case Instruction::Kind::kWait:
    case Instruction::Kind::kStore:
      if (bound_.spread != nullptr) {
        bound_.spread->run(instruction);
      } else {
        bound_.homes->run(instruction, bound_.in_role, [&] {
          if (bound_.team.cancelled()) throw Cancelled();
        });
      }
      break;
    default:
      EPL_ASSERT(false, "an instruction of the step's end stands before it");
  }
}

void Interpreter::receive(const Instruction& instruction, DeviceRun& result) {
  result.micro_batch = instruction.micro_batch;
  const auto asked = Clock::now();
  const auto sent = bound_.mail->receive(bound_.device, bound_.executor, instruction, [&] {
    if (bound_.team.cancelled()) throw Cancelled();
  });
  Span span;
  span.kind = Span::Kind::kCommunication;
  span.micro_batch = instruction.micro_batch;
  span.begin = seconds(std::max(asked, sent) - result.begin);
  span.end = seconds(Clock::now() - result.begin);
  result.spans.push_back(span);
}

void Interpreter::run_calls(const Instruction& instruction, DeviceRun& result) {
  const auto index = static_cast<size_t>(instruction.segment);
  const Segment& segment = bound_.program.segments[index];
  result.micro_batch = instruction.micro_batch;
  Span span;
  span.chunk = segment.chunk;
  span.micro_batch = instruction.micro_batch;
  const auto run_part = [&](int first, int end, Span::Kind kind) {
    span.kind = kind;
    span.begin = seconds(Clock::now() - result.begin);
    bound_.executor.run(instruction.segment, first, end);
    span.end = seconds(Clock::now() - result.begin);
    add_spans(span, result);
  };
  const int size = static_cast<int>(segment.calls.size());
  const int first = instruction.first_call;
  const int end = std::min(instruction.end_call, size);
  const int border = std::clamp(first_backward_[index], first, std::max(first, end));
  if (first < border || border == end) run_part(first, border, span_kind(segment.kind));
  if (border < end) run_part(border, end, Span::Kind::kBackward);
  if (instruction.end_call < size) return;
  read_outputs(bound_.program.outputs[index], result);
}

// What devices say to each other while they compute is told apart, but not in a pipeline, whose
// tasks are counted as a whole.
void Interpreter::add_spans(Span span, DeviceRun& result) const {
  if (!in_pipeline()) {
    for (const auto& said : result.meter.spans) {
      Span before = span;
      before.end = seconds(said.begin - result.begin);
      result.spans.push_back(before);
      Span talk = span;
      talk.kind = Span::Kind::kCommunication;
      talk.begin = before.end;
      talk.end = span.begin = seconds(said.end - result.begin);
      result.spans.push_back(talk);
    }
  }
  result.meter.spans.clear();
  result.spans.push_back(span);
}

void Interpreter::read_outputs(const SegmentOutputs& outputs, DeviceRun& result) const {
  if (outputs.loss != kNoSlot) {
    result.losses.push_back(bound_.executor.tensor(outputs.loss).item<double>());
  }
  for (const auto& metric : outputs.metrics) {
    DeviceRun::Metric& merged = result.metrics[metric.name];
    merged.collection = metric.collection;
    merged.parts.push_back(bound_.executor.tensor(metric.slot).clone());
  }
}

}  // namespace epl

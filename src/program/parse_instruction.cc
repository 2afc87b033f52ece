#include "program/parse_instruction.h"

#include <cmath>

#include "base/text.h"
#include "program/bytes_moved.h"
#include "program/parse_parts.h"
#include "program/text_rules.h"

namespace epl {
namespace {

using InstructionKind = Instruction::Kind;

class InstructionParser {
 public:
  InstructionParser(TextLine& line, const Program& program, size_t transfers, SlotParser& slots)
      : line_(line), program_(program), transfers_(transfers), slots_(slots) {}

  Instruction parse() {
    const size_t number = program_.instructions.size();
    if (line_.integer() != static_cast<int64_t>(number)) {
      line_.fail(concat("expected instruction ", number));
    }
    parse_kind();
    while (!line_.at_end()) parse_rest();
    return std::move(made_);
  }

 private:
  void parse_kind() {
    if (line_.take("load ")) {
      made_.kind = InstructionKind::kLoad;
      parse_micro_batch();
    } else if (line_.take("receive ")) {
      parse_move(InstructionKind::kReceive);
    } else if (line_.take("send ")) {
      parse_move(InstructionKind::kSend);
    } else if (line_.take("run ")) {
      parse_run();
    } else if (line_.take("reduce ")) {
      made_.kind = InstructionKind::kReduce;
      if (!parse_over()) {
        line_.expect("group");
        made_.group = line_.small_integer();
      }
      line_.expect(":");
      parse_count("gradients");
    } else if (line_.take("fetch ")) {
      parse_offloaded(InstructionKind::kFetch);
    } else if (line_.take("wait ")) {
      parse_offloaded(InstructionKind::kWait);
    } else if (line_.take("store ")) {
      parse_offloaded(InstructionKind::kStore);
    } else {
      parse_end();
    }
  }

  void parse_end() {
    if (line_.take("report ")) {
      made_.kind = InstructionKind::kReport;
      line_.expect("loss and metrics");
    } else if (line_.take("merge ")) {
      parse_leaves_of(InstructionKind::kMerge, "states");
    } else if (line_.take("await ")) {
      parse_await();
    } else if (line_.take("clip ")) {
      made_.kind = InstructionKind::kClip;
      if (!parse_over()) line_.fail("expected whose gradients are clipped");
      line_.expect(":");
      parse_count("gradients");
    } else if (line_.take("finite ")) {
      made_.kind = InstructionKind::kFinite;
      parse_count("gradients");
    } else if (line_.take("check ")) {
      made_.kind = InstructionKind::kCheck;
      line_.expect("loss");
    } else if (line_.take("gather ")) {
      if (!parse_over()) line_.fail("expected whose updates are gathered");
      line_.expect(":");
      parse_leaves_of(InstructionKind::kGather, "parameters");
    } else {
      line_.expect("update ");
      made_.kind = InstructionKind::kUpdate;
      if (line_.take("early")) parse_group(InstructionKind::kUpdateEarly);
      parse_count("parameters");
    }
  }

  void parse_await() {
    made_.kind = InstructionKind::kAwait;
    if (line_.take("reductions")) return;
    parse_group(InstructionKind::kAwaitGroup);
    parse_count("gradients");
  }

  void parse_group(InstructionKind kind) {
    made_.kind = kind;
    line_.expect("group");
    made_.group = line_.small_integer();
    line_.expect(":");
  }

  bool parse_over() {
    if (line_.take("over replicas")) {
      made_.over = Instruction::Over::kReplicas;
    } else if (line_.take("over roles")) {
      made_.over = Instruction::Over::kRoles;
    } else if (line_.take("each replica")) {
      made_.over = Instruction::Over::kReplica;
    } else if (line_.take("all")) {
      made_.over = Instruction::Over::kAll;
    } else {
      return false;
    }
    return true;
  }

  void parse_leaves_of(InstructionKind kind, const std::string& name) {
    made_.kind = kind;
    const int count = line_.index(program_.leaves.size() + 1);
    line_.expect(name);
    skip_bytes(line_);
    if (line_.take("leaves ")) {
      parse_list(program_.leaves.size(), made_.leaves);
    } else {
      made_.leaves = usual_leaves(program_, kind, static_cast<size_t>(count));
    }
    if (made_.leaves.size() != static_cast<size_t>(count)) {
      line_.fail(concat("expected which of ", program_.leaves.size(), " leaves"));
    }
  }

  void parse_offloaded(InstructionKind kind) {
    made_.states = line_.take("states of");
    parse_leaves_of(kind, "parameters");
  }

  void parse_micro_batch() {
    line_.expect("micro batch");
    made_.micro_batch = line_.small_integer();
  }

  void parse_move(InstructionKind kind) {
    made_.kind = kind;
    line_.expect("transfer");
    made_.transfer = line_.index(transfers_);
    parse_micro_batch();
  }

  void parse_run() {
    made_.kind = InstructionKind::kRun;
    const std::string name = parse_words(line_, "  ");
    made_.segment = segment_named(program_, name);
    if (made_.segment < 0) line_.fail("no segment is named \"" + name + "\"");
    parse_micro_batch();
  }

  // How many there are, and how many bytes; which ones comes behind, where it is not clear.
  void parse_count(const std::string& name) {
    const int count = line_.index(program_.gradients.size() + 1);
    line_.expect(name);
    if (made_.kind != InstructionKind::kAwaitGroup) skip_bytes(line_);
    if (!line_.take("gradients ")) {
      const auto& before = program_.instructions;
      made_.gradients =
          usual_gradients(before, before.size(), made_.kind, static_cast<size_t>(count));
      const bool there = made_.gradients.empty() ||
                         made_.gradients.back() < static_cast<int>(program_.gradients.size());
      if (!there) line_.fail(concat("expected which of ", program_.gradients.size(), " gradients"));
    } else {
      parse_gradients();
    }
  }

  void parse_gradients() { parse_list(program_.gradients.size(), made_.gradients); }

  // "2, 4 to 7", each below `count`.
  void parse_list(size_t count, std::vector<int>& numbers) {
    do {
      const int first = line_.index(count);
      const int last = line_.take("to") ? line_.index(count) : first;
      for (int i = first; i <= last; ++i) numbers.push_back(i);
    } while (line_.take(","));
  }

  void parse_rest() {
    if (line_.take("[")) {
      parse_cost();
    } else if (line_.take(":") || line_.take("slots ")) {
      parse_slots();
    } else if (line_.looking_at("micro batch")) {
      parse_micro_batch();
    } else if (line_.take("segment ")) {
      const bool runs = made_.kind == InstructionKind::kRun;
      made_.segment = runs ? line_.index(program_.segments.size()) : line_.small_integer();
    } else if (line_.take("calls ")) {
      parse_calls();
    } else if (line_.take("group ")) {
      made_.group = line_.small_integer();
    } else if (line_.take("transfer ")) {
      made_.transfer = line_.small_integer();
    } else if (line_.take("gradients ")) {
      parse_gradients();
    } else if (line_.take("leaves ")) {
      parse_list(program_.leaves.size(), made_.leaves);
    } else if (line_.take("states")) {
      made_.states = true;
    } else if (parse_over()) {
      return;
    } else {
      line_.fail("expected the end of the line");
    }
  }

  // Bytes that stand before are not said again.
  void parse_cost() {
    TextLine ahead = line_;
    ahead.number();
    const bool has_bytes = ahead.take("B");
    made_.cost.bytes = has_bytes ? line_.integer() : 0;
    if (has_bytes) {
      line_.expect("B");
      if (line_.take("]")) return line_.expect_end();
      line_.expect(",");
    } else if (prints_bytes(made_.kind)) {
      made_.cost.bytes = kBytesThatItMoves;
    }
    const TextLine::Number number = line_.number();
    made_.cost.seconds = number.is_integer ? static_cast<double>(number.integer) : number.real;
    if (line_.take("us")) {
      const auto nanoseconds = std::llround(made_.cost.seconds * 1e3);
      made_.cost.seconds = static_cast<double>(nanoseconds) / 1e9;
    } else {
      line_.expect("s");
    }
    line_.expect("]");
    line_.expect_end();
  }

  void parse_calls() {
    const auto segment = static_cast<size_t>(made_.segment);
    const bool exists = made_.segment >= 0 && segment < program_.segments.size();
    const auto calls = exists ? static_cast<int>(program_.segments[segment].calls.size()) : 0;
    made_.first_call = line_.small_integer();
    line_.expect("to");
    const int last = line_.small_integer();
    if (last == Instruction::kToTheEnd) line_.fail("expected a smaller number");
    made_.end_call = last + 1;
    if (line_.take("of")) {
      line_.integer();
    } else if (made_.end_call == calls) {
      made_.end_call = Instruction::kToTheEnd;
    }
  }

  void parse_slots() {
    do {
      if (line_.at_end() || line_.looking_at("[")) break;
      made_.slots.push_back(slots_.parse_use(line_));
    } while (line_.take(","));
    if (line_.take("of")) {
      made_.slots.resize(static_cast<size_t>(line_.index(slots_.most() + 1)), kNoSlot);
    } else if (made_.kind == InstructionKind::kLoad) {
      made_.slots.resize(program_.leaves.size(), kNoSlot);
    }
  }

  TextLine& line_;
  const Program& program_;
  const size_t transfers_;
  SlotParser& slots_;
  Instruction made_;
};

}  // namespace

Instruction parse_instruction(TextLine& line, const Program& program, size_t transfers,
                              SlotParser& slots) {
  return InstructionParser(line, program, transfers, slots).parse();
}

}  // namespace epl

#include <algorithm>
#include <map>
#include <optional>

#include "base/text.h"
#include "layout/constant_text.h"
#include "layout/operator_text.h"
#include "layout/shard.h"
#include "program/bytes_moved.h"
#include "program/parse_instruction.h"
#include "program/parse_parts.h"
#include "program/parse_slots.h"
#include "program/text_rules.h"

namespace epl {
namespace {

bool opens_section(TextLine line) {
  if (line.looking_at("segment ") || line.looking_at("program ")) return true;
  for (const char* name : {"leaves", "views", "buffers", "gradients"}) {
    if (line.take(name)) return line.at_end();
  }
  return false;
}

class ProgramParser {
 public:
  ProgramParser(TextLines& lines, const ProgramContext& context)
      : lines_(lines), context_(context), slots_(context.most_slots) {}

  // Instructions come first in the text, and name what stands behind them: they are read last.
  Program parse() {
    program_.stage = context_.stage;
    while (parse_unusual()) {
    }
    std::vector<TextLine> instructions;
    while (!lines_.at_end() && lines_.peek("").looking_at_digit()) {
      instructions.push_back(lines_.take(""));
    }
    parse_section("leaves", [this](TextLine& line) { parse_leaf(line); });
    if (lines_.looking_at("views")) {
      parse_section("views", [this](TextLine& line) { slots_.parse_definition(line); });
    }
    if (lines_.looking_at("buffers")) {
      parse_section("buffers", [this](TextLine& line) { slots_.parse_buffer(line); });
    }
    while (lines_.looking_at("segment ")) parse_segment();
    parse_section("gradients", [this](TextLine& line) { parse_gradient(line); });
    parse_written();  // which is what is merged, where the text says no more
    for (auto& line : instructions) {
      program_.instructions.push_back(
          parse_instruction(line, program_, context_.transfers, slots_));
    }
    slots_.place_all(program_);
    for (auto& each : program_.instructions) {
      if (each.cost.bytes == kBytesThatItMoves) each.cost.bytes = bytes_moved(program_, each);
    }
    program_.has_guards = guards_.value_or(usual_guards(program_));
    program_.arena_bytes = arena_.value_or(usual_arena(program_));
    return std::move(program_);
  }

 private:
  // One of the lines behind the first that say what is not as it mostly is.
  bool parse_unusual() {
    TextLine& line = lines_.peek("'leaves'");
    if (line.take("stage ")) {
      program_.stage = line.small_integer();
    } else if (line.take("guards ")) {
      guards_ = line.take("yes");
      if (!*guards_) line.expect("no");
    } else if (line.take("tolerance ")) {
      program_.guard_tolerance = line.number().real;
    } else if (line.take("arena ")) {
      arena_ = line.integer();
      line.expect("bytes");
    } else if (line.take("writes ")) {
      written_ = line;
      lines_.take("");
      return true;
    } else {
      return false;
    }
    line.expect_end();
    lines_.take("");
    return true;
  }

  template <typename Parse>
  void parse_section(const std::string& name, Parse parse) {
    TextLine& title = lines_.take("'" + name + "'");
    title.expect(name);
    title.expect_end();
    while (!lines_.at_end() && !opens_section(lines_.peek(""))) {
      TextLine& line = lines_.take("");
      parse(line);
      line.expect_end();
    }
  }

  void parse_leaf(TextLine& line) {
    PlanLeaf leaf;
    if (!line.take("no slot")) leaf.slot = slots_.parse_definition(line);
    line.expect("=");
    if (line.take("input")) {
      leaf.kind = PlanLeaf::Kind::kInput;
      leaf.index = line.small_integer();
    } else if (line.take("seed")) {
      leaf.kind = PlanLeaf::Kind::kSeed;
    } else {
      leaf.name = line.string();
    }
    leaf.shard = parse_shard(line);
    if (line.take("index")) leaf.index = line.small_integer();
    if (line.take("named")) leaf.name = line.string();
    leaf.offloaded = line.take("offloaded");
    if (line.take("with")) {
      leaf.states = line.small_integer();
      line.expect("states");
    }
    if (line.take("spread")) leaf.others = line.integer();
    program_.leaves.push_back(std::move(leaf));
  }

  void parse_segment() {
    TextLine& title = lines_.take("a segment");
    title.expect("segment");
    Segment segment;
    segment.name = parse_words(title, "  ");
    const SegmentTask usual = usual_task(segment.name);
    segment.kind = usual.kind;
    segment.chunk = usual.chunk;
    if (!title.at_end()) parse_task(title, segment);
    while (!lines_.peek("'return'").looking_at("return ")) {
      TextLine& line = lines_.take("");
      segment.calls.push_back(parse_call(line));
      line.expect_end();
    }
    program_.segments.push_back(std::move(segment));
    TextLine& end = lines_.take("'return'");
    program_.outputs.push_back(parse_outputs(end));
    end.expect_end();
  }

  static void parse_task(TextLine& line, Segment& segment) {
    if (line.take("backward")) {
      segment.kind = Task::Kind::kBackward;
    } else if (line.take("weights")) {
      segment.kind = Task::Kind::kWeights;
    } else {
      line.expect("forward");
      segment.kind = Task::Kind::kForward;
    }
    line.expect("of chunk");
    segment.chunk = line.small_integer();
    line.expect_end();
  }

  // "s4 f32[4] @64, _ = aten::max.dim(...)", or the operator alone where it makes no tensor.
  Call parse_call(TextLine& line) {
    std::vector<SlotId> results;
    TextLine ahead = line;
    if (ahead.word().find("::") == std::string::npos) {
      do {
        results.push_back(slots_.parse_definition(line));
      } while (line.take(","));
      line.expect("=");
    }
    const c10::OperatorHandle op = find_operator(line, line.word());
    Call call{op, Call::Mode::kResult, {}, std::move(results), false, -1, {}, {}};
    parse_operands(line, call);
    if (line.take("backward")) {
      call.backward = true;
    } else {
      line.expect("forward");
    }
    const bool in_taskgraph = line.looking_at_digit() || line.looking_at("-");
    if (in_taskgraph) call.taskgraph = line.small_integer();
    call.mode = parse_mode(line).value_or(usual_mode(call));
    if (line.take("expects")) call.expects = parse_constant(line, nullptr);
    while (line.take("free")) call.frees.push_back(slots_.parse_use(line));
    return call;
  }

  void parse_operands(TextLine& line, Call& call) {
    line.expect("(");
    for (const auto& argument : call.op.schema().arguments()) {
      if (line.looking_at(")")) break;
      if (!call.operands.empty()) line.expect(",");
      call.operands.push_back(parse_operand(line, form_of(argument)));
    }
    line.expect(")");
  }

  Operand parse_operand(TextLine& line, const ArgumentForm& form) {
    Operand operand;
    const bool is_slot = line.looking_at("_") || (line.looking_at("s") && line.looking_at_digit(1));
    if (is_slot) {
      operand.kind = Operand::Kind::kSlot;
      operand.slots = {slots_.parse_use(line)};
    } else if (form.is_tensor_list && line.take("[")) {
      operand.kind = Operand::Kind::kList;
      while (!line.take("]")) {
        if (!operand.slots.empty()) line.expect(",");
        operand.slots.push_back(slots_.parse_use(line));
      }
    } else {
      operand.constant = parse_constant(line, form.element);
      if (operand.constant.isInt() && line.take("by role")) operand.by_role = line.integer();
    }
    return operand;
  }

  static std::optional<Call::Mode> parse_mode(TextLine& line) {
    if (line.take("out")) return Call::Mode::kOut;
    if (line.take("result")) return Call::Mode::kResult;
    if (line.take("in place")) return Call::Mode::kInPlace;
    if (line.take("nothing")) return Call::Mode::kNothing;
    return std::nullopt;
  }

  SegmentOutputs parse_outputs(TextLine& line) {
    SegmentOutputs outputs;
    line.expect("return");
    line.expect("loss");
    outputs.loss = slots_.parse_use(line);
    while (line.take(",")) {
      PlanMetric metric;
      metric.collection = line.word_or_string();
      metric.name = line.string();
      metric.slot = slots_.parse_use(line);
      outputs.metrics.push_back(std::move(metric));
    }
    return outputs;
  }

  void parse_gradient(TextLine& line) {
    PlanGradient gradient;
    gradient.slot = slots_.parse_use(line);
    line.expect("of");
    gradient.leaf = parse_leaf_name(line, program_);
    gradient.owners = parse_owners(line);
    if (line.take("until summed")) gradient.stays = PlanGradient::Stays::kUntilSummed;
    if (line.take("until updated")) gradient.stays = PlanGradient::Stays::kUntilUpdated;
    program_.gradients.push_back(gradient);
  }

  void parse_written() {
    if (!written_) return;
    do {
      program_.written_leaves.push_back(parse_leaf_name(*written_, program_));
    } while (written_->take(","));
    written_->expect_end();
  }

  TextLines& lines_;
  const ProgramContext context_;
  SlotParser slots_;
  std::optional<bool> guards_;
  std::optional<int64_t> arena_;
  std::optional<TextLine> written_;
  Program program_;
};

}  // namespace

Program parse_program(TextLines& lines, const ProgramContext& context) {
  return ProgramParser(lines, context).parse();
}

}  // namespace epl

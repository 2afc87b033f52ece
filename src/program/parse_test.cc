#include "program/parse.h"

#include <epl/error.h>
#include <gtest/gtest.h>

#include <random>
#include <sstream>

#include "program/test_plan.h"
#include "program/text.h"

namespace epl {
namespace {

using namespace test_plan;

// Of the epl::Error; any other exception fails the test that asks.
std::string complaint(const std::string& text) {
  try {
    parse_plan(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

const Plan kPlans[] = {good_plan(), pipeline_plan(), Plan()};

TEST(ParsePlan, GivesThePlanThatWasPrinted) {
  for (const Plan& plan : kPlans) {
    const std::string text = print_plan(plan);
    const Plan parsed = parse_plan(text);
    EXPECT_EQ(print_plan(parsed), text);
    EXPECT_EQ(describe(parsed), describe(plan));
  }
}

TEST(ParsePlan, DoesNotMindBlanks) {
  const std::string text = print_plan(pipeline_plan());
  std::string spaced;
  for (char c : text) {
    spaced += c;
    if (c == '\n') spaced += "\n  ";
  }
  EXPECT_EQ(print_plan(parse_plan(spaced)), text);
}

// Slots that nothing names come back as empty ones, so that the others keep their numbers.
TEST(ParsePlan, KeepsTheNumbersOfSlotsBehindOneThatNothingNames) {
  Plan plan = good_plan();
  plan.programs[0].slots.insert(plan.programs[0].slots.begin() + 10, in_arena(0, {2}));
  for (auto& call : plan.programs[0].segments[0].calls) {
    for (auto& operand : call.operands) {
      for (SlotId& id : operand.slots) id += id >= 10 ? 1 : 0;
    }
  }
  const Plan parsed = parse_plan(print_plan(plan));
  EXPECT_EQ(print_plan(parsed), print_plan(plan));
  ASSERT_EQ(parsed.programs[0].slots.size(), plan.programs[0].slots.size());
  EXPECT_EQ(parsed.programs[0].slots[10].where, Slot::Where::kMadeByOperator);
  EXPECT_EQ(describe(parsed), describe(plan));
}

// --- faults
// ----------------------------------------------------------------------------------------

struct Fault {
  const char* name;
  const char* from;
  const char* to;
  const char* complaint;
};

// In the text of the plan of one program: PrintPlan.WritesAllThatAPlanHolds has it.
const Fault kFaults[] = {
    {"NoHeader", "plan:", "plans:", "expected 'plan:' at column 1 of line 1"},
    {"NoProgram", "program 0", "programs 0", "expected"},
    {"AnotherProgram", "program 0\n", "program 1\n", "expected 'program 0' at column 1 of line 2"},
    {"MorePrograms", "1 program,", "2 programs,", "expected a number at column 10 of line 2"},
    {"TheSizeOfTheArena", "256 B", "255 B",
     "expected 'plan: 1 program, 1 micro batches, arena 256 B' at column 1 of line 1"},
    {"OrderOfInstructions", "   1  run", "   2  run", "expected instruction 1 at column 7"},
    {"UnknownInstruction", "load ", "read ", "expected 'update ' at column 7 of line 3"},
    {"UnknownSegment", "run     step", "run     stop", "no segment is named \"stop\" at column 21"},
    {"UnknownGradient", "1 parameters  16 B\nleaves", "2 parameters  16 B\nleaves",
     "expected which of 2 gradients"},
    {"SizeOfAGradient", "1 parameters  16 B", "1 parameters  17 B",
     "expected '2 update 1 parameters 16 B' at column 4 of line 5"},
    {"NoLeaves", "leaves\n", "", "expected 'leaves' at column 5 of line 7"},
    {"NoType", "s2 f32[4] =", "s2 =", "expected a word at column 8 of line 10"},
    {"UnknownElementType", "s2 f32[4]", "s2 f31[4]", "unknown element type 'f31' at column 11"},
    {"SparseInTheArena", "s4 f32[4]", "s4 sparse f32[4]", "only dense tensors lie in the arena"},
    {"UndefinedSlot", "relu(s0)", "relu(s13)", "s13 is not defined at column 35 of line 20"},
    {"HugeSlot", "relu(s0)", "relu(s123456789)", "123456789 of "},
    {"SlotThatChanges", "s7 f32[4]", "s4 f32[5]", "s4 was something else before"},
    {"ViewOfNothing", "of \"w\"\n", "of \"v\"\n", "no leaf is named \"v\""},
    {"ViewThatNobodyReads", "    s11", "    s12 f32[1] @0\n    s11", "nobody reads or writes s12"},
    {"BufferElsewhere", "@64 in buffer 1", "@64 in buffer 0", "buffer 0 lies @0"},
    {"BuffersThatNobodyDefines", "@64 in buffer 1", "@64 in buffer 99", "buffer 5 is not defined"},
    {"UnknownOperator", "aten::relu(", "aten::rleu(", "LibTorch has no operator aten::rleu"},
    {"NoOperator", "aten::relu(", "relu(", "expected an operator, not relu"},
    {"TooManyOperands", "relu(s0)", "relu(s0, s0)", "expected ')'"},
    {"UnknownPhase", "relu(s0)  forward", "relu(s0)  sideward", "expected 'forward'"},
    {"UnknownMode", "relu(s0)  forward", "relu(s0)  forward  inside",
     "expected the end of the line"},
    {"ModeThatIsClear", "relu(s0)  forward", "relu(s0)  forward  result",
     "expected 's6 f32[4] @64 = aten::relu(s0) forward' at column 5 of line 20"},
    {"NoReturn", "    return loss s5, GLOBAL_MEAN \"accuracy\" s5\n", "",
     "expected 's' at column 1 of line 25"},
    {"GradientOfNoLeaf", "s7 of \"w\"", "s7 of \"x\"", "no leaf is named \"x\""},
    {"TextBehindTheEnd", "s9 of \"table\"", "s9 of \"table\"\nprogram 1",
     "expected the end of the plan at column 1 of line 29"},
};

class ParsePlanFault : public testing::TestWithParam<Fault> {};

TEST_P(ParsePlanFault, IsNamedWithItsLine) {
  const Fault& fault = GetParam();
  const std::string told = complaint(replaced(print_plan(good_plan()), fault.from, fault.to));
  EXPECT_NE(told.find(fault.complaint), std::string::npos) << told;
  EXPECT_NE(told.find(" of line "), std::string::npos) << told;
}

INSTANTIATE_TEST_SUITE_P(Where, ParsePlanFault, testing::ValuesIn(kFaults),
                         [](const auto& fault) { return fault.param.name; });

std::vector<std::string> meshes(const Plan& plan) {
  std::vector<std::string> found;
  std::istringstream lines(print_plan(plan));
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("mesh", 0) == 0) found.push_back(line.substr(10));
  }
  return found;
}

TEST(PrintPlan, WritesTheMeshOfEachProgramThatHasSeveralDevices) {
  Plan plan = good_plan();
  EXPECT_EQ(meshes(plan), std::vector<std::string>());
  plan.programs[0].devices = 4;
  EXPECT_EQ(meshes(plan), std::vector<std::string>{"replica 1 x part 4, parts 0 to 3"});
  plan.replicas = 2;
  plan.programs[0].devices = 1;
  EXPECT_EQ(meshes(plan), std::vector<std::string>{"replica 2 x part 1, part 0"});
  plan = pipeline_plan();
  plan.programs.push_back(plan.programs[1]);
  const std::vector<std::string> stages = {
      "replica 2 x part 1, part 0", "replica 2 x part 2, part 0", "replica 2 x part 2, part 1"};
  EXPECT_EQ(meshes(plan), stages);
}

TEST(ParsePlan, RefusesAMeshThatIsNotThatOfItsPrograms) {
  const std::string text = print_plan(pipeline_plan());
  for (const char* other : {"replica 2 x part 2, part 0", "replica 2 x part 1, part 1"}) {
    EXPECT_NE(complaint(replaced(text, "replica 2 x part 1, part 0", other)), "");
  }
  EXPECT_NE(complaint(replaced(text, "mesh      replica 2 x part 1, part 0\n", "")), "");
}

TEST(ParsePlan, TellsWhatIsMissingWhereTheTextEnds) {
  EXPECT_EQ(complaint(""),
            "epl: cannot read the plan: expected 'plan:', but the text ends after line 0");
  const std::string text = print_plan(good_plan());
  EXPECT_EQ(complaint(text.substr(0, text.find("   0  load"))),
            "epl: cannot read the plan: expected 'leaves', but the text ends after line 2");
}

TEST(ParsePlan, RefusesAScheduleThatWaitsForEver) {
  const std::string told = complaint(replaced(print_plan(pipeline_plan()), "F0 B0---", "B0---"));
  EXPECT_NE(told.find("epl: cannot read the plan"), std::string::npos) << told;
}

TEST(ParsePlan, RefusesEveryTextThatEndsTooEarly) {
  for (const Plan& plan : {good_plan(), pipeline_plan()}) {
    const std::string text = print_plan(plan);
    for (size_t i = text.find('\n'); i + 1 < text.size(); i = text.find('\n', i + 1)) {
      EXPECT_NE(complaint(text.substr(0, i + 1)), "") << text.substr(0, i + 1);
    }
  }
}

// Either the text is refused, or it is the text of the plan that was read.
TEST(ParsePlan, SurvivesAnyChangeOfItsText) {
  std::mt19937 random(1);
  const auto below = [&](size_t end) { return random() % end; };
  for (int i = 0; i < 4000; ++i) {
    std::string text = print_plan(i % 2 == 0 ? good_plan() : pipeline_plan());
    for (size_t change = 0; change <= below(3); ++change) {
      const size_t at = below(text.size());
      switch (below(4)) {
        case 0:
          text[at] = static_cast<char>(below(256));
          break;
        case 1:
          text.erase(at, 1 + below(8));
          break;
        case 2:
          text.insert(at, text.substr(below(text.size()), below(20)));
          break;
        default:
          text[at] = "0123456789-@[]{}(),.:_ s\n"[below(25)];
      }
    }
    SCOPED_TRACE(text);
    const std::string told = complaint(text);
    if (!told.empty()) {
      EXPECT_EQ(told.rfind("epl: cannot read the plan: ", 0), 0u) << told;
    } else {
      const std::string printed = print_plan(parse_plan(text));
      EXPECT_EQ(print_plan(parse_plan(printed)), printed);
    }
  }
}

}  // namespace
}  // namespace epl

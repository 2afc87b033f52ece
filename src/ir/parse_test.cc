#include <gtest/gtest.h>

#include "base/check.h"
#include "ir/text.h"

namespace epl {
namespace {

struct Fault {
  const char* name;
  const char* line;
  const char* complaint;  // what, and the column
};

// Each is the second line of a graph whose first defines %0 and the parameter %1.
const Fault kFaults[] = {
    {"NoName", "f32[] = input 0", "expected '%' at column 1"},
    {"NoNumber", "%x: f32[] = input 0", "expected a number at column 2"},
    {"NumberIsNotWhole", "%1.5: f32[] = input 0", "expected an integer at column 5"},
    {"NumberIsNegative", "%-1: f32[] = input 0", "%-1 is no name of a value at column 4"},
    {"NumberIsHuge", "%99999999999: f32[] = input 0",
     "%99999999999 is no name of a value at column 13"},
    {"NoColon", "%2 f32[] = input 0", "expected ':' at column 4"},
    {"UnknownElementType", "%2: float[] = input 0", "unknown element type 'float' at column 10"},
    {"NoSizes", "%2: f32 = input 0", "expected '[' at column 9"},
    {"SizesWithoutComma", "%2: f32[2 3] = input 0", "expected ',' at column 11"},
    {"SizeIsNotWhole", "%2: f32[2.5] = input 0", "expected an integer at column 12"},
    {"OpenSizes", "%2: f32[2", "expected ',' at column 10"},
    {"TooFewStrides", "%2: f32[2,3]{1} = input 0", "1 strides for 2 sizes at column 17"},
    {"UnknownStorage", "%2: f32[2] @%7 = input 0", "%7 is not defined at column 16"},
    {"StorageIsNoRoot", "%2: f32[2] @%8 = input 0", "%8 lies in the storage of %0 at column 16"},
    {"DefinedTwice", "%1: f32[] = input 0", "%1 is defined twice at column 11"},
    {"NoEquals", "%2: f32[] input 0", "expected '=' at column 11"},
    {"NoRightSide", "%2: f32[] =", "expected a word at column 12"},
    {"UnknownLeaf", "%2: f32[] = buffer \"x\"", "unknown leaf buffer at column 20"},
    {"LeafWithoutAName", "%2: f32[] = parameter fc", "expected a string at column 23"},
    {"LeafOfNoValue", "() = input 1", "a leaf is one value at column 12"},
    {"LeafOfTwoValues", "%2: f32[], %3: f32[] = input 1", "a leaf is one value at column 30"},
    {"UndefinedLeaf", "_ = constant \"a\" 1", "a leaf is one value at column 14"},
    {"OpenString", "%2: f32[] = state \"x", "a string without an end at column 21"},
    {"ConstantIsNoNumber", "%2: f32[] = constant \"x\" none",
     "a constant is one number at column 30"},
    {"PieceWithoutAnEnd", "%2: f32[] = constant \"x\" [1]", "expected ':' at column 28"},
    {"PieceWithoutALength", "%2: f32[] = parameter \"x\" [2:1 of 2 in dim 0]",
     "a piece without a length at column 32"},
    {"NumberWithDimensions", "%2: f32[2] = constant \"x\" 0.5 number",
     "a number has no dimensions at column 37"},
    {"SizeIsNegative", "%2: f32[-1] = input 0", "a size of -1 at column 13"},
    {"MoreElementsThanAnyoneHas", "%2: f32[9999999999,9999999999] = input 0",
     "more elements than can be counted at column 32"},
    {"ListOfOtherThings", "%2: f32[] = aten::view(%0, [1.5]) {forward}",
     "a list of other things than its operator takes at column 33"},
    {"ListsInLists", "%2: f32[] = aten::view(%0, [[[[[1]]]]]) {forward}",
     "lists in lists in lists at column 33"},
    {"ChunkIsNoNumber", "%2: f32[] = aten::relu(%0) {forward chunk x}",
     "expected a number at column 43"},
    {"GradientOfNoLeaf", "return loss %0, gradient leaf 2 %0", "2 of 2 at column 33"},
    {"UnknownOperator", "%2: f32[] = aten::rleu(%0) {forward}",
     "LibTorch has no operator aten::rleu at column 23"},
    {"UnknownOverload", "%2: f32[] = aten::relu.x(%0) {forward}",
     "LibTorch has no operator aten::relu.x at column 25"},
    {"NoArguments", "%2: f32[] = aten::relu {forward}", "expected '(' at column 24"},
    {"TooFewArguments", "%2: f32[] = aten::mul.Tensor(%0) {forward}", "expected ',' at column 32"},
    {"TooManyArguments", "%2: f32[] = aten::relu(%0, %0) {forward}", "expected ')' at column 26"},
    {"UndefinedArgument", "%2: f32[] = aten::relu(%9) {forward}", "%9 is not defined at column 26"},
    {"ArgumentIsItsOwnResult", "%2: f32[] = aten::relu(%3) {forward}",
     "%3 is not defined at column 26"},
    {"ArgumentIsNothing", "%2: f32[] = aten::relu() {forward}", "expected a number at column 24"},
    {"UnknownDevice", "%2: f32[] = aten::full([], 0, 6, 0, device(\"gpu\"), false) {forward}",
     "unknown device 'gpu' at column 50"},
    {"NoPhase", "%2: f32[] = aten::relu(%0)", "expected '{' at column 27"},
    {"UnknownPhase", "%2: f32[] = aten::relu(%0) {update}", "expected 'forward' at column 29"},
    {"TaskGraphIsNoNumber", "%2: f32[] = aten::relu(%0) {forward x}",
     "expected a number at column 37"},
    {"ResultsWithoutComma", "%2: f32[] %3: i64[] = aten::max.dim(%0, 0, false) {forward}",
     "expected '=' at column 11"},
    {"TaskGraphWithoutAKind", "taskgraph 0 copies(1, \"\")", "expected 'split' at column 13"},
    {"TaskGraphOutOfOrder", "taskgraph 1 split(1, \"\")", "expected TaskGraph 0 at column 13"},
    {"LossIsMissing", "return", "expected 'gradient' at column 7"},
    {"LossIsUndefined", "return loss %5", "%5 is not defined at column 15"},
    {"MetricWithoutAName", "return loss %0, metric sum %0", "expected a string at column 28"},
    {"GradientOfNoParameter", "return loss %0, gradient \"v\" %0",
     "no parameter is named \"v\" at column 30"},
    {"ReturnOfSomethingElse", "return loss %0, state \"v\" %0", "expected 'gradient' at column 17"},
    {"TextAfterAReturn", "return loss %0 %0", "expected the end of the line at column 16"},
    {"TextAfterANode", "%2: f32[] = aten::relu(%0) {forward} x",
     "expected the end of the line at column 38"},
    {"TextAfterALeaf", "%2: f32[] = input 1 x", "expected the end of the line at column 21"},
};

class ParseGraph : public testing::TestWithParam<Fault> {};

TEST_P(ParseGraph, NamesWhatIsWrongAndWhere) {
  const std::string text =
      "graph\n%0: f32[] = input 0\n%1: f32[] = parameter \"w\"\n%8: f32[] @%0 = "
      "aten::view(%0, []) {forward}\n" +
      std::string(GetParam().line) + "\nreturn loss %0\n";
  try {
    parse_graph(text);
    FAIL() << "it parses";
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), concat("epl: cannot read the graph: ", GetParam().complaint,
                                   " of line 5: ", GetParam().line));
  }
}

INSTANTIATE_TEST_SUITE_P(Where, ParseGraph, testing::ValuesIn(kFaults),
                         [](const auto& fault) { return fault.param.name; });

TEST(ParsedNode, HasDefaultsWhereTheTextEndsBeforeTheArguments) {
  const std::string begin = "graph\n  %0: f32[] = input 0\n  %1: f32[] = aten::add.Tensor(%0, %0";
  const std::string end = ") {forward}\n  return loss %1\n";
  EXPECT_EQ(print_graph(parse_graph(begin + end)), begin + ", 1" + end);
}

}  // namespace
}  // namespace epl

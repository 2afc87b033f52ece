// No field of a Graph is lost in its text: each one that is changed changes the text, and comes
// back from it.
#include <gtest/gtest.h>

#include "ir/test_describe.h"
#include "ir/text.h"

namespace epl {
namespace {

Graph small_graph() {
  return parse_graph(R"(graph
  taskgraph 0 replicate(1, "a")
  taskgraph 1 replicate(1, "b")
  %0: f32[4,2] = input 0
  %1: f32[] = seed
  %2: f32[4,2] = parameter "w"
  %3: f32[4,2] = parameter "w"
  %4: f32[4,2] = state "s"
  %5: f32[] = constant "c" 0.5
  %6: f32[2,4]{1,2} @%2 = aten::t(%2) {forward 0}
  %7: f32[2], %8: i64[2] = aten::max.dim(%0, 0, false) {forward}
  [%9: f32[2,2], %10: f32[2,2]+4] = aten::split.Tensor(%0, 2, 0) {backward 1}
  %11: f32[8,2] = aten::cat([%0, %2], 0) {forward}
  () = aten::_local_scalar_dense(%5) {forward} expects 0.5
  return loss %5, metric global_mean_objects "accuracy" %5, gradient "w" %2
)");
}

struct Change {
  const char* name;
  void (*change)(Graph&);
};

const Change kChanges[] = {
    {"ElementType", [](Graph& g) { g.value(0).type.dtype = c10::ScalarType::Double; }},
    {"Layout",
     [](Graph& g) {
       g.value(0).type.layout = c10::kSparse;
       g.value(0).type.strides.clear();
     }},
    {"Sizes",
     [](Graph& g) {
       g.value(0).type.sizes = {4, 3};
     }},
    {"Strides",
     [](Graph& g) {
       g.value(0).type.strides = {1, 4};
     }},
    {"Offset", [](Graph& g) { g.value(0).type.offset = 1; }},
    {"Storage", [](Graph& g) { g.value(6).storage = 0; }},
    {"NoStorageOfAnother", [](Graph& g) { g.value(6).storage = 6; }},
    {"LeafKind", [](Graph& g) { g.leaves[4].kind = Leaf::Kind::kParameter; }},
    {"LeafValue", [](Graph& g) { std::swap(g.leaves[2].value, g.leaves[3].value); }},
    {"LeafIndex", [](Graph& g) { g.leaves[0].index = 1; }},
    {"LeafIndexOfAParameter", [](Graph& g) { g.leaves[2].index = 1; }},
    {"LeafName", [](Graph& g) { g.leaves[4].name = "t"; }},
    {"LeafNameOfAnInput", [](Graph& g) { g.leaves[0].name = "x"; }},
    {"LeafTensor", [](Graph& g) { g.leaves[5].tensor = at::full({}, 0.25); }},
    {"LeafShardDim", [](Graph& g) { g.leaves[2].shard.dim = 0; }},
    {"LeafShardBegin", [](Graph& g) { g.leaves[2].shard.piece.begin = 4; }},
    {"LeafShardLength", [](Graph& g) { g.leaves[2].shard.piece.length = 4; }},
    {"LeafShardWhole", [](Graph& g) { g.leaves[2].shard.whole = 8; }},
    {"LessLeaves", [](Graph& g) { g.leaves.erase(g.leaves.begin() + 4); }},
    {"Operator",
     [](Graph& g) {
       g.nodes[1].op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::min", "dim");
     }},
    {"ArgumentKind",
     [](Graph& g) {
       g.nodes[1].arguments[2] = {Argument::Kind::kValue, {5}, {}};
     }},
    {"ArgumentValue", [](Graph& g) { g.nodes[0].arguments[0].values = {3}; }},
    {"ArgumentUndefined",
     [](Graph& g) {
       g.nodes[3].arguments[0].values = {0, kNoValue};
     }},
    {"ArgumentConstant", [](Graph& g) { g.nodes[1].arguments[1].constant = 1; }},
    {"ResultIsList", [](Graph& g) { g.nodes[0].results[0].is_list = true; }},
    {"ResultValues",
     [](Graph& g) {
       g.nodes[2].results[0].values = {10, 9};
     }},
    {"ResultUndefined", [](Graph& g) { g.nodes[1].results[1].values = {kNoValue}; }},
    {"Phase", [](Graph& g) { g.nodes[0].phase = Phase::kBackward; }},
    {"TaskGraphOfANode", [](Graph& g) { g.nodes[0].taskgraph = 1; }},
    {"NoTaskGraphOfANode", [](Graph& g) { g.nodes[0].taskgraph = -1; }},
    {"Expects", [](Graph& g) { g.nodes[4].expects = c10::IValue(1); }},
    {"NothingExpected", [](Graph& g) { g.nodes[4].expects.reset(); }},
    {"Chunk", [](Graph& g) { g.nodes[1].chunk = 1; }},
    {"OrderOfNodes", [](Graph& g) { std::swap(g.nodes[0], g.nodes[1]); }},
    {"StrategyKind", [](Graph& g) { g.taskgraphs[0].kind = Strategy::Kind::kSplit; }},
    {"StrategyDevices", [](Graph& g) { g.taskgraphs[0].device_count = 2; }},
    {"StrategyName", [](Graph& g) { g.taskgraphs[0].name = "c"; }},
    {"Loss", [](Graph& g) { g.loss = 1; }},
    {"NoLoss", [](Graph& g) { g.loss = kNoValue; }},
    {"MetricCollection", [](Graph& g) { g.metrics[0].collection = "of some"; }},
    {"MetricName", [](Graph& g) { g.metrics[0].name = "b"; }},
    {"MetricValue", [](Graph& g) { g.metrics[0].value = 1; }},
    {"GradientParameter", [](Graph& g) { g.gradients[0].parameter = 3; }},
    {"GradientValue", [](Graph& g) { g.gradients[0].value = 0; }},
};

class GraphField : public testing::TestWithParam<Change> {};

TEST_P(GraphField, IsInTheText) {
  Graph graph = small_graph();
  GetParam().change(graph);
  const std::string text = print_graph(graph);
  EXPECT_NE(text, print_graph(small_graph()));
  const Graph parsed = parse_graph(text);
  EXPECT_EQ(print_graph(parsed), text);
  EXPECT_EQ(describe(parsed), describe(graph));
}

INSTANTIATE_TEST_SUITE_P(Of, GraphField, testing::ValuesIn(kChanges),
                         [](const auto& change) { return change.param.name; });

}  // namespace
}  // namespace epl

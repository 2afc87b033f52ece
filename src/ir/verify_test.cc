#include "ir/verify.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "ir/pass.h"
#include "ir/text.h"

namespace epl {
namespace {

const char* const kGood = R"(graph
  taskgraph 0 replicate(1, "")
  %0: f32[4] = input 0
  %1: f32[4] = parameter "w"
  %2: f32[4] = aten::mul.Tensor(%0, %1) {forward 0}
  %3: f32[] = aten::sum(%2, none) {forward}
  %4: f32[2]+1 @%2 = aten::slice.Tensor(%2, 0, 1, 3, 1) {forward}
  return loss %3, gradient "w" %2
)";

// What verify_graph says of kGood after one change.
std::string complaint(const std::function<void(Graph&)>& change) {
  Graph graph = parse_graph(kGood);
  change(graph);
  try {
    verify_graph(graph, "Fuse");
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

const std::string kMul = "%2: f32[4] = aten::mul.Tensor(%0, %1) {forward 0}";
const std::string kSum = "%3: f32[] = aten::sum(%2, none) {forward}";

TEST(VerifyGraph, FindsNothingWrongWithAGoodGraph) {
  EXPECT_EQ(complaint([](Graph&) {}), "");
}

TEST(VerifyGraph, FindsALeafWithoutAType) {
  EXPECT_EQ(complaint([](Graph& graph) { graph.leaves[1].value = 9; }),
            "epl internal error: after Fuse: %9 has no type in leaf w");
}

TEST(VerifyGraph, FindsALeafWithoutAValue) {
  EXPECT_EQ(complaint([](Graph& graph) { graph.leaves[1].value = kNoValue; }),
            "epl internal error: after Fuse: %-1 has no type in leaf w");
}

TEST(VerifyGraph, FindsAValueThatTwoNodesDefine) {
  EXPECT_EQ(complaint([](Graph& graph) { graph.nodes[1].results[0].values = {2}; }),
            "epl internal error: after Fuse: %2 is defined twice in "
            "%2: f32[4] = aten::sum(%2, none) {forward}");
}

TEST(VerifyGraph, FindsANodeThatDefinesALeaf) {
  EXPECT_EQ(complaint([](Graph& graph) { graph.leaves[1].value = 2; }),
            "epl internal error: after Fuse: %1 is read before it is defined in " + kMul);
}

TEST(VerifyGraph, FindsAStorageWithoutARoot) {
  EXPECT_EQ(complaint([](Graph& graph) { graph.value(3).storage = 4; }),
            "epl internal error: after Fuse: %3 lies in a storage that has no root in "
            "%3: f32[] @%4 = aten::sum(%2, none) {forward}");
}

TEST(VerifyGraph, FindsAStorageThatComesLaterThanItsView) {
  EXPECT_EQ(complaint([](Graph& graph) { graph.value(2).storage = 3; }),
            "epl internal error: after Fuse: %2 shares a storage that is not there in "
            "%2: f32[4] @%3 = aten::mul.Tensor(%0, %1) {forward 0}");
}

TEST(VerifyGraph, FindsAReadBeforeTheDefinition) {
  EXPECT_EQ(complaint([](Graph& graph) { std::swap(graph.nodes[0], graph.nodes[1]); }),
            "epl internal error: after Fuse: %2 is read before it is defined in " + kSum);
}

TEST(VerifyGraph, FindsAReturnOfWhatNobodyMakes) {
  EXPECT_EQ(complaint([](Graph& graph) { graph.nodes.erase(graph.nodes.begin() + 1); }),
            "epl internal error: after Fuse: %3 is read before it is defined in return");
}

TEST(VerifyGraph, FindsAGraphWithoutALoss) {
  EXPECT_EQ(complaint([](Graph& graph) { graph.loss = kNoValue; }),
            "epl internal error: after Fuse: %-1 is read before it is defined in return");
}

TEST(VerifyGraph, FindsAWrongNumberOfArguments) {
  EXPECT_EQ(complaint([](Graph& graph) { graph.nodes[1].arguments.pop_back(); }),
            "epl internal error: after Fuse: wrong number of arguments in "
            "%3: f32[] = aten::sum(%2) {forward}");
}

TEST(VerifyGraph, FindsAWrongNumberOfResults) {
  EXPECT_EQ(complaint([](Graph& graph) { graph.nodes[1].results.emplace_back(); }),
            "epl internal error: after Fuse: wrong number of results in "
            "%3: f32[], () = aten::sum(%2, none) {forward}");
}

TEST(VerifyGraph, FindsAnArgumentOfTwoValues) {
  EXPECT_EQ(complaint([](Graph& graph) { graph.nodes[1].arguments[0].values.push_back(0); }),
            "epl internal error: after Fuse: an argument that is not one value in " + kSum);
}

TEST(VerifyGraph, FindsATaskGraphThatIsNotThere) {
  EXPECT_EQ(complaint([](Graph& graph) { graph.taskgraphs.clear(); }),
            "epl internal error: after Fuse: unknown TaskGraph 0 in " + kMul);
}

TEST(VerifyGraph, FindsALossOfMoreThanOneElement) {
  EXPECT_EQ(complaint([](Graph& graph) { graph.loss = 2; }),
            "epl internal error: after Fuse: a loss of more than one element in return");
}

TEST(VerifyGraph, FindsTheSameGradientTwice) {
  EXPECT_EQ(complaint([](Graph& graph) { graph.gradients.push_back(graph.gradients[0]); }),
            "epl internal error: after Fuse: the same gradient of w twice in return");
}

TEST(VerifyGraph, FindsAGradientOfAnotherShape) {
  EXPECT_EQ(complaint([](Graph& graph) { graph.gradients[0].value = 4; }),
            "epl internal error: after Fuse: a gradient of another shape than w in return");
}

TEST(VerifyGraph, FindsAGradientOfWhatIsNoParameter) {
  EXPECT_EQ(complaint([](Graph& graph) { graph.gradients[0].parameter = 0; }),
            "epl internal error: after Fuse: a gradient of what is no parameter in return");
}

struct Breaks final : Pass {
  std::string name() const override { return "Breaks"; }
  bool run(Graph& graph) override { return graph.nodes.clear(), true; }
};

TEST(RunPasses, NamesThePassThatBrokeTheGraph) {
  PassList passes;
  passes.push_back(std::make_unique<Breaks>());
  Graph graph = parse_graph(kGood);
  try {
    run_passes(graph, passes);
    FAIL() << "no exception";
  } catch (const InternalError& error) {
    EXPECT_STREQ(error.what(),
                 "epl internal error: after Breaks: %3 is read before it is defined in return");
  }
}

TEST(RunPasses, LooksAtTheCapturedGraphFirst) {
  Graph graph = parse_graph(kGood);
  graph.nodes.clear();
  try {
    run_passes(graph, {});
    FAIL() << "no exception";
  } catch (const InternalError& error) {
    EXPECT_STREQ(error.what(),
                 "epl internal error: after capture: %3 is read before it is defined in return");
  }
}

}  // namespace
}  // namespace epl

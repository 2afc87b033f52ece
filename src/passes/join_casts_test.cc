#include "passes/join_casts.h"

#include <gtest/gtest.h>

#include "ir/text.h"
#include "ir/verify.h"

namespace epl {
namespace {

std::string joined(const std::string& text) {
  Graph graph = parse_graph(text);
  const size_t before = graph.nodes.size();
  const bool changed = JoinCasts().run(graph);
  EXPECT_EQ(changed, graph.nodes.size() != before);
  verify_graph(graph, "JoinCasts");
  return "\n" + print_graph(graph);
}

std::string same(const std::string& text) { return "\n" + print_graph(parse_graph(text)); }

const std::string kTo = ", 15, none, none, none, false, none) {forward}\n";  // bfloat16
const std::string kUp = ", 6, none, none, none, false, none) {forward}\n";   // float32

std::string step(const std::string& nodes, const std::string& returned) {
  return "graph\n  %9: f32[] = seed\n  %0: f32[4,8] = input 0\n" + nodes +
         "  return loss %9, metric all \"z\" " + returned;
}

TEST(JoinCasts, MakeOneOfAValueAndType) {
  EXPECT_EQ(joined(step("  %1: bf16[4,8] = aten::_to_copy(%0" + kTo +
                            "  %2: bf16[4,8] = aten::relu(%1) {forward}\n"
                            "  %3: bf16[4,8] = aten::_to_copy(%0" +
                            kTo + "  %4: bf16[4,8] = aten::add.Tensor(%2, %3, 1) {forward}\n",
                        "%4")),
            same(step("  %1: bf16[4,8] = aten::_to_copy(%0" + kTo +
                          "  %2: bf16[4,8] = aten::relu(%1) {forward}\n"
                          "  %4: bf16[4,8] = aten::add.Tensor(%2, %1, 1) {forward}\n",
                      "%4")));
}

TEST(JoinCasts, LeaveAnotherTypeAlone) {
  const std::string text = step("  %1: bf16[4,8] = aten::_to_copy(%0" + kTo +
                                    "  %2: f64[4,8] = aten::_to_copy(%0, 7, none, none, none, "
                                    "false, none) {forward}\n"
                                    "  %3: f64[4,8] = aten::add.Tensor(%2, %1, 1) {forward}\n",
                                "%3");
  EXPECT_EQ(joined(text), same(text));
}

// Widening loses nothing.
TEST(JoinCasts, TakeWhatWasWidenedAsItWas) {
  EXPECT_EQ(
      joined(step("  %1: bf16[4,8] = aten::_to_copy(%0" + kTo +
                      "  %2: f32[4,8] = aten::_to_copy(%1" + kUp +
                      "  %3: bf16[4,8] = aten::_to_copy(%2" + kTo +
                      "  %4: bf16[4,8] = aten::relu(%3) {forward}\n",
                  "%4, metric all \"y\" %2")),
      same(step("  %1: bf16[4,8] = aten::_to_copy(%0" + kTo + "  %2: f32[4,8] = aten::_to_copy(%1" +
                    kUp + "  %4: bf16[4,8] = aten::relu(%1) {forward}\n",
                "%4, metric all \"y\" %2")));
}

// A weight that is used twice, each time turned.
TEST(JoinCasts, LetViewsOfOneShowTheOther) {
  EXPECT_EQ(joined(step("  %1: bf16[4,8] = aten::_to_copy(%0" + kTo +
                            "  %2: bf16[4,8] = aten::_to_copy(%0" + kTo +
                            "  %3: bf16[8,4]{1,8} @%2 = aten::t(%2) {forward}\n"
                            "  %4: bf16[4,4] = aten::mm(%1, %3) {forward}\n",
                        "%4")),
            same(step("  %1: bf16[4,8] = aten::_to_copy(%0" + kTo +
                          "  %3: bf16[8,4]{1,8} @%1 = aten::t(%1) {forward}\n"
                          "  %4: bf16[4,4] = aten::mm(%1, %3) {forward}\n",
                      "%4")));
}

// Narrowing does.
TEST(JoinCasts, KeepWhatWasNarrowed) {
  const std::string text =
      step("  %1: bf16[4,8] = aten::_to_copy(%0" + kTo + "  %2: f32[4,8] = aten::_to_copy(%1" + kUp,
           "%2");
  EXPECT_EQ(joined(text), same(text));
}

TEST(JoinCasts, DoNotReachAcrossChunksOrIntoBackward) {
  const std::string text = step("  %1: bf16[4,8] = aten::_to_copy(%0" + kTo +
                                    "  %2: bf16[4,8] = aten::_to_copy(%0, 15, none, none, none, "
                                    "false, none) {backward}\n"
                                    "  %3: bf16[4,8] = aten::add.Tensor(%1, %2, 1) {backward}\n",
                                "%3");
  EXPECT_EQ(joined(text), same(text));
  Graph graph = parse_graph(step("  %1: bf16[4,8] = aten::_to_copy(%0" + kTo +
                                     "  %2: bf16[4,8] = aten::_to_copy(%0" + kTo +
                                     "  %3: bf16[4,8] = aten::add.Tensor(%1, %2, 1) {forward}\n",
                                 "%3"));
  graph.nodes[1].chunk = graph.nodes[2].chunk = 1;
  EXPECT_FALSE(JoinCasts().run(graph));
}

TEST(JoinCasts, LeaveStateThatTheStepWrites) {
  const std::string text = R"(graph
  %9: f32[] = seed
  %0: f32[4] = state "s"
  %1: bf16[4] = aten::_to_copy(%0, 15, none, none, none, false, none) {forward}
  %2: f32[4] @%0 = aten::add_.Scalar(%0, 1, 1) {forward}
  %3: bf16[4] = aten::_to_copy(%0, 15, none, none, none, false, none) {forward}
  %4: bf16[4] = aten::add.Tensor(%1, %3, 1) {forward}
  return loss %9, metric all "z" %4)";
  EXPECT_EQ(joined(text), same(text));
}

}  // namespace
}  // namespace epl

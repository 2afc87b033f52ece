#include "passes/batched_products.h"

#include <gtest/gtest.h>

#include "ir/text.h"
#include "passes/dead_code.h"

namespace epl {
namespace {

std::string rewritten(const std::string& text) {
  Graph graph = parse_graph(text);
  PassList passes;
  passes.push_back(std::make_unique<BatchedProducts>());
  passes.push_back(std::make_unique<DeadCode>());
  run_passes(graph, passes);
  std::string names;
  for (const auto& node : graph.nodes) {
    names += op_name(node) + " " + print_type(graph.value(node.results[0].values[0]).type) + "\n";
  }
  return names;
}

TEST(BatchedProducts, GiveMergedDimensionsBack) {
  EXPECT_EQ(rewritten(R"(graph
  %0: f32[2,3,4,5] = input 0
  %1: f32[2,3,5,6] = input 1
  %2: f32[6,4,5] @%0 = aten::view(%0, [6, 4, 5]) {forward}
  %3: f32[6,5,6] @%1 = aten::_unsafe_view(%1, [6, 5, 6]) {forward}
  %4: f32[6,4,6] = aten::bmm(%2, %3) {forward}
  %5: f32[2,3,4,6] @%4 = aten::_unsafe_view(%4, [2, 3, 4, 6]) {forward}
  %6: f32[] = aten::sum(%5, none) {forward}
  return loss %6)"),
            "aten::matmul f32[2,3,4,6]\naten::sum f32[]\n");
}

TEST(BatchedProducts, TurnWhatWasTurned) {
  EXPECT_EQ(rewritten(R"(graph
  %0: f32[2,3,4,5] = input 0
  %1: f32[2,3,4,6] = input 1
  %2: f32[6,4,5] @%0 = aten::view(%0, [6, 4, 5]) {forward}
  %3: f32[6,5,4]{20,1,5} @%0 = aten::transpose.int(%2, 1, 2) {forward}
  %4: f32[6,4,6] @%1 = aten::view(%1, [6, 4, 6]) {forward}
  %5: f32[6,5,6] = aten::bmm(%3, %4) {forward}
  %6: f32[] = aten::sum(%5, none) {forward}
  return loss %6)"),
            "aten::transpose.int f32[2,3,5,4]{60,20,1,5}\naten::matmul f32[2,3,5,6]\n"
            "aten::view f32[6,5,6]\naten::sum f32[]\n");
}

TEST(BatchedProducts, LeaveOtherProductsAlone) {
  const std::string text = R"(graph
  %0: f32[6,4,5] = input 0
  %1: f32[2,3,5,6] = input 1
  %2: f32[6,5,6] @%1 = aten::view(%1, [6, 5, 6]) {forward}
  %3: f32[6,4,6] = aten::bmm(%0, %2) {forward}
  %4: f32[] = aten::sum(%3, none) {forward}
  return loss %4)";
  EXPECT_EQ(rewritten(text), "aten::view f32[6,5,6]\naten::bmm f32[6,4,6]\naten::sum f32[]\n");
}

}  // namespace
}  // namespace epl

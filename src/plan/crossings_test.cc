#include "plan/crossings.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "ir/text.h"

namespace epl {
namespace {

// Chunks by digits, one for each node.
Graph chunked(const std::string& text, const std::string& chunks) {
  Graph graph = parse_graph(text);
  EXPECT_EQ(graph.nodes.size(), chunks.size());
  for (size_t i = 0; i < chunks.size(); ++i) graph.nodes[i].chunk = chunks[i] - '0';
  return graph;
}

std::string str(const ChunkTask& task) {
  return concat("FBW"[static_cast<size_t>(task.kind)], task.chunk);
}

// "F0>F1 3 4" for each: values 3 and 4 go from forward of chunk 0 to forward of chunk 1.
std::vector<std::string> crossings(const Graph& graph, bool splits = false) {
  std::vector<std::string> texts;
  for (const auto& each : find_crossings(graph, tasks_of_nodes(graph, splits))) {
    texts.push_back(str(each.from) + ">" + str(each.to) + " " + join(each.values, " "));
  }
  return texts;
}

using Texts = std::vector<std::string>;

// y = x * w in chunk 0, z = y * v in chunk 1.
const char* const kTwoChunks = R"(graph
  %0: f32[4] = input 0
  %1: f32[] = seed
  %2: f32[4] = parameter "w"
  %3: f32[4] = parameter "v"
  %4: f32[4] = aten::mul.Tensor(%0, %2) {forward}
  %5: f32[4] = aten::mul.Tensor(%4, %3) {forward}
  %6: f32[] = aten::sum(%5, none) {forward}
  %7: f32[4]{0} @%1 = aten::expand(%1, [4], false) {backward}
  %8: f32[4] = aten::mul.Tensor(%7, %4) {backward}
  %9: f32[4] = aten::mul.Tensor(%7, %3) {backward}
  %10: f32[4] = aten::mul.Tensor(%9, %0) {backward}
  return loss %6, gradient "w" %10, gradient "v" %8)";

TEST(Crossings, AreActivationsAndTheirGradients) {
  EXPECT_EQ(crossings(chunked(kTwoChunks, "0111110")), (Texts{"F0>F1 4", "B1>B0 9"}));
}

TEST(Crossings, TheGradientOfAParameterWaitsForWeights) {
  const Graph graph = chunked(kTwoChunks, "0111110");
  std::string text;
  for (const auto& task : tasks_of_nodes(graph, true)) text += str(task) + " ";
  EXPECT_EQ(text, "F0 F1 F1 B1 W1 B1 W0 ");
  EXPECT_EQ(crossings(graph, true), (Texts{"F0>F1 4", "B1>W0 9"}));
}

TEST(Crossings, TheBatchComesFromTheFirstChunkAndParametersFromNowhere) {
  EXPECT_EQ(crossings(chunked(R"(graph
  %0: f32[4] = input 0
  %1: f32[4] = input 1
  %2: f32[4] = parameter "w"
  %3: f32[4] @%2 = aten::view(%2, [4]) {forward}
  %4: f32[4] = aten::mul.Tensor(%0, %3) {forward}
  %5: f32[4] = aten::mul.Tensor(%4, %3) {forward}
  %6: f32[4] = aten::mul.Tensor(%5, %1) {forward}
  %7: f32[] = aten::sum(%6, none) {forward}
  return loss %7)",
                              "00112")),
            (Texts{"F0>F1 1 4", "F1>F2 6"}));
}

// A value that several chunks read goes to each of them; one that forward and backward of a chunk
// read goes once, to the first.
TEST(Crossings, GoOnceToEveryReadingChunk) {
  EXPECT_EQ(crossings(chunked(R"(graph
  %0: f32[4] = input 0
  %1: f32[] = seed
  %2: f32[4] = parameter "w"
  %3: f32[4] = aten::relu(%0) {forward}
  %4: f32[4] = aten::mul.Tensor(%3, %2) {forward}
  %5: f32[4] = aten::mul.Tensor(%3, %4) {forward}
  %6: f32[] = aten::sum(%5, none) {forward}
  %7: f32[4]{0} @%1 = aten::expand(%1, [4], false) {backward}
  %8: f32[4] = aten::mul.Tensor(%7, %3) {backward}
  %9: f32[4] = aten::mul.Tensor(%8, %3) {backward}
  return loss %6, gradient "w" %9)",
                              "0122221")),
            (Texts{"F0>F1 3", "F0>F2 3", "F1>F2 4", "B2>B1 8"}));
}

TEST(Crossings, GuardsAreNoWeights) {
  const Graph graph = chunked(R"(graph
  %0: f32[4] = input 0
  %1: f32[] = seed
  %2: f32[] = aten::sum(%0, none) {forward}
  %3: f32[] = aten::neg(%1) {backward}
  () = aten::_local_scalar_dense(%3) {backward} expects 1
  return loss %2)",
                              "000");
  const auto tasks = tasks_of_nodes(graph, true);
  EXPECT_EQ(str(tasks[1]), "B0");
  EXPECT_EQ(str(tasks[2]), "B0");
}

}  // namespace
}  // namespace epl

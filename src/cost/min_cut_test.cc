#include "cost/min_cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace epl {
namespace {

struct TestEdge {
  int from;
  int to;
  int64_t weight;
};

int64_t weight_of(const std::vector<TestEdge>& edges, const std::vector<bool>& sink_side) {
  const auto on_sink_side = [&](int vertex) {
    if (vertex < 0) return vertex == MinCut::kSink;
    return static_cast<bool>(sink_side[static_cast<size_t>(vertex)]);
  };
  int64_t weight = 0;
  for (const auto& edge : edges) {
    if (!on_sink_side(edge.from) && on_sink_side(edge.to)) weight += edge.weight;
  }
  return weight;
}

int64_t least_of_all(const std::vector<TestEdge>& edges, int vertices) {
  int64_t least = MinCut::kNever;
  for (uint32_t choice = 0; choice < (1U << static_cast<unsigned>(vertices)); ++choice) {
    std::vector<bool> side;
    for (int i = 0; i < vertices; ++i)
      side.push_back(((choice >> static_cast<unsigned>(i)) & 1U) != 0);
    least = std::min(least, weight_of(edges, side));
  }
  return least;
}

TEST(MinCut, IsTheCheapestOfAllCutsOfRandomGraphs) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    const int vertices = 2 + static_cast<int>(random() % 9);
    const auto any = [&](bool from) {
      const int chosen = static_cast<int>(random() % static_cast<unsigned>(vertices + 1));
      if (chosen < vertices) return chosen;
      return from ? MinCut::kSource : MinCut::kSink;
    };
    std::vector<TestEdge> edges;
    for (int i = 0; i < 3 * vertices; ++i) {
      edges.push_back({any(true), any(false), static_cast<int64_t>(random() % 20)});
    }
    MinCut cut(vertices);
    for (const auto& edge : edges) cut.add(edge.from, edge.to, edge.weight);
    const std::vector<bool> side = cut.solve();
    const int64_t least = least_of_all(edges, vertices);
    ASSERT_EQ(weight_of(edges, side), least) << "round " << round;
    ASSERT_EQ(cut.weight(), least) << "round " << round;
  }
}

TEST(MinCut, LeavesWithTheSinkOnlyWhatHasTo) {
  MinCut cut(2);
  cut.add(MinCut::kSource, 0, 3);
  cut.add(0, 1, 3);
  cut.add(1, MinCut::kSink, 5);
  EXPECT_EQ(cut.solve(), (std::vector<bool>{false, true}));
}

TEST(MinCut, WalksLongPaths) {
  const int length = 200000;
  MinCut cut(length);
  cut.add(MinCut::kSource, 0, 2);
  for (int i = 0; i + 1 < length; ++i) cut.add(i, i + 1, i == length / 2 ? 1 : 2);
  cut.add(length - 1, MinCut::kSink, 2);
  cut.solve();
  EXPECT_EQ(cut.weight(), 1);
}

}  // namespace
}  // namespace epl

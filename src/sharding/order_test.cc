#include "sharding/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "sharding/test_graphs.h"

namespace epl {
namespace {

TEST(OrderOfSearch, HasEveryNodeOnce) {
  for (const Graph& graph : {linear_layers(8, {4, 6, 5, 3}), linear_layers(8, {4, 2}), Graph()}) {
    std::vector<size_t> all(graph.nodes.size());
    std::iota(all.begin(), all.end(), size_t{0});
    std::vector<size_t> order = order_by_open_values(graph);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, all);
  }
}

// Values that decided and undecided nodes touch, at most.
size_t most_open(const Graph& graph) {
  std::map<ValueId, int> uses;
  const auto touched = [&](const Node& node) {
    std::set<ValueId> ids;
    for_each_input(node, [&](ValueId id) { ids.insert(id); });
    for_each_output(node, [&](ValueId id) { ids.insert(id); });
    return ids;
  };
  for (const auto& node : graph.nodes) {
    for (ValueId id : touched(node)) ++uses[id];
  }
  std::set<ValueId> open;
  size_t most = 0;
  for (size_t i : order_by_open_values(graph)) {
    for (ValueId id : touched(graph.nodes[i])) {
      if (--uses[id] > 0) {
        open.insert(id);
      } else {
        open.erase(id);
      }
    }
    most = std::max(most, open.size());
  }
  return most;
}

TEST(OrderOfSearch, LeavesFewValuesOpenHoweverDeepTheNetwork) {
  const size_t shallow = most_open(linear_layers(8, std::vector<int64_t>(4, 16)));
  EXPECT_LE(shallow, 8u);
  EXPECT_EQ(most_open(linear_layers(8, std::vector<int64_t>(40, 16))), shallow);
}

TEST(OrderOfSearch, IsTheSameForTheSameGraph) {
  const Graph graph = linear_layers(8, {4, 6, 5, 3});
  EXPECT_EQ(order_by_open_values(graph), order_by_open_values(linear_layers(8, {4, 6, 5, 3})));
}

}  // namespace
}  // namespace epl

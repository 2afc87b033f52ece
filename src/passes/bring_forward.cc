#include "passes/bring_forward.h"

#include <algorithm>
#include <map>
#include <set>

namespace epl {
namespace {

// By chunk: where its backward begins. Behind all of forward, wherever that was recorded.
std::map<int, size_t> begins_of_backward(const Graph& graph) {
  size_t forward_end = 0;
  std::map<int, size_t> begins;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.phase == Phase::kForward) {
      forward_end = i + 1;
    } else {
      begins.emplace(node.chunk, i);
    }
  }
  for (auto& [chunk, begin] : begins) begin = std::max(begin, forward_end);
  return begins;
}

}  // namespace

bool BringForward::run(Graph& graph) {
  const std::map<int, size_t> begins = begins_of_backward(graph);
  const std::set<size_t> moved(nodes_.begin(), nodes_.end());
  std::map<size_t, std::vector<size_t>> before;  // by node: those that come in front of it
  for (size_t index : moved) {
    const size_t begin = begins.at(graph.nodes[index].chunk);
    before[std::min(begin, index)].push_back(index);
  }
  std::vector<size_t> order;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto here = before.find(i);
    if (here != before.end()) order.insert(order.end(), here->second.begin(), here->second.end());
    if (moved.count(i) == 0) order.push_back(i);
  }
  if (std::is_sorted(order.begin(), order.end())) return false;
  std::vector<Node> nodes;
  nodes.reserve(order.size());
  for (size_t index : order) nodes.push_back(std::move(graph.nodes[index]));
  graph.nodes = std::move(nodes);
  return true;
}

}  // namespace epl

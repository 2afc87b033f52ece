#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "sharding/order.h"

namespace epl {
namespace {

class CallOrder {
 public:
  explicit CallOrder(const Graph& graph) : graph_(graph), placed_(graph.nodes.size(), false) {
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      if (reads_leaves_alone(graph.nodes[i])) {
        for_each_output(graph.nodes[i], [&](ValueId id) { of_leaves_[id] = i; });
      } else {
        for_each_output(graph.nodes[i], [&](ValueId id) { makers_[id] = i; });
      }
    }
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const std::set<size_t> from = makers_of(i);
      if (from.size() == 1) followers_[*from.begin()].push_back(i);
    }
  }

  std::vector<size_t> run() {
    std::vector<size_t> by_call(graph_.nodes.size());
    std::iota(by_call.begin(), by_call.end(), size_t{0});
    const std::vector<int> calls = calls_of_nodes();
    std::stable_sort(by_call.begin(), by_call.end(), [&](size_t a, size_t b) {
      return std::tie(calls[a], graph_.nodes[a].phase) < std::tie(calls[b], graph_.nodes[b].phase);
    });
    for (size_t i : by_call) {
      // Others bring it in.
      const bool waits = makers_of(i).size() == 1 || reads_leaves_alone(graph_.nodes[i]);
      if (!waits) place(i);
    }
    for (size_t i : by_call) place(i);
    return std::move(order_);
  }

 private:
  std::set<size_t> makers_of(size_t node) const {
    std::set<size_t> makers;
    for_each_input(graph_.nodes[node], [&](ValueId id) {
      const auto maker = makers_.find(id);
      if (maker != makers_.end() && maker->second != node) makers.insert(maker->second);
    });
    return makers;
  }

  // Views of parameters, mostly. What is made of them reads leaves alone as well.
  bool reads_leaves_alone(const Node& node) const {
    bool alone = true;
    for_each_input(node, [&](ValueId id) { alone &= makers_.count(id) == 0; });
    return alone;
  }

  // What reads leaves alone comes before its first reader, what follows one node behind it.
  void place(size_t node) {
    if (placed_[node]) return;
    placed_[node] = true;
    for_each_input(graph_.nodes[node], [&](ValueId id) {
      const auto maker = of_leaves_.find(id);
      if (maker != of_leaves_.end()) place(maker->second);
    });
    order_.push_back(node);
    const auto followers = followers_.find(node);
    if (followers == followers_.end()) return;
    for (size_t each : followers->second) place(each);
  }

  // A node in no forward call belongs to the last one that it reads from.
  std::vector<int> calls_of_nodes() {
    std::vector<int> calls;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      int call = graph_.nodes[i].origin.call;
      for (size_t maker : makers_of(i)) {
        if (graph_.nodes[i].origin.call < 0 && maker < i) call = std::max(call, calls[maker]);
      }
      calls.push_back(call);
    }
    return calls;
  }

  const Graph& graph_;
  std::vector<bool> placed_;
  std::map<ValueId, size_t> makers_;
  std::map<size_t, std::vector<size_t>> followers_;  // nodes that read nothing else that is made
  std::map<ValueId, size_t> of_leaves_;              // made by nodes that read leaves alone
  std::vector<size_t> order_;
};

}  // namespace

std::vector<size_t> order_by_calls(const Graph& graph) { return CallOrder(graph).run(); }

}  // namespace epl

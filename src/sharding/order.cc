#include "sharding/order.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

namespace epl {
namespace {

class Order {
 public:
  explicit Order(const Graph& graph) : graph_(graph), touched_(graph.nodes.size()) {
    std::map<ValueId, ValueId> parameters;  // by gradient
    for (const auto& gradient : graph.gradients) {
      parameters[gradient.value] = graph.leaves[static_cast<size_t>(gradient.parameter)].value;
    }
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      for_each_input(graph.nodes[i], [&](ValueId id) { touch(i, id); });
      for_each_output(graph.nodes[i], [&](ValueId id) {
        touch(i, id);
        const auto parameter = parameters.find(id);
        if (parameter != parameters.end()) touch(i, parameter->second);
      });
    }
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      for (ValueId storage : touched_[i]) undecided_[storage].insert(i);
    }
    rank_nodes();
  }

  std::vector<size_t> run() {
    std::set<std::pair<size_t, size_t>> by_rank;  // rank and node, undecided
    for (size_t i = 0; i < graph_.nodes.size(); ++i) by_rank.emplace(rank_[i], i);
    std::vector<size_t> order;
    while (!by_rank.empty()) {
      size_t next = by_rank.begin()->second;
      std::tuple<double, size_t> least{0, 0};
      bool found = false;
      for (size_t candidate : candidates()) {
        const std::tuple<double, size_t> cost{growth(candidate), rank_[candidate]};
        if (found && least <= cost) continue;
        found = true;
        least = cost;
        next = candidate;
      }
      decide(next);
      by_rank.erase({rank_[next], next});
      order.push_back(next);
    }
    return order;
  }

 private:
  void touch(size_t node, ValueId id) { touched_[node].insert(graph_.value(id).storage); }

  // As the step runs, backward nodes beside the forward that they belong to. A node in no forward
  // call belongs to the last one that it reads from.
  void rank_nodes() {
    std::map<ValueId, int> calls_of_values;
    std::vector<int> calls;
    for (const auto& node : graph_.nodes) {
      int call = node.origin.call;
      if (call < 0) {
        for_each_input(node, [&](ValueId id) {
          const auto known = calls_of_values.find(id);
          if (known != calls_of_values.end()) call = std::max(call, known->second);
        });
      }
      for_each_output(node, [&](ValueId id) { calls_of_values[id] = call; });
      calls.push_back(call);
    }
    std::vector<size_t> sorted(graph_.nodes.size());
    std::iota(sorted.begin(), sorted.end(), size_t{0});
    std::stable_sort(sorted.begin(), sorted.end(), [&](size_t a, size_t b) {
      return std::tie(calls[a], graph_.nodes[a].phase) < std::tie(calls[b], graph_.nodes[b].phase);
    });
    rank_.resize(sorted.size());
    for (size_t i = 0; i < sorted.size(); ++i) rank_[sorted[i]] = i;
  }

  // Undecided nodes that touch what a decided one touches.
  std::set<size_t> candidates() const {
    std::set<size_t> nodes;
    for (ValueId storage : open_) {
      const auto& touching = undecided_.at(storage);
      nodes.insert(touching.begin(), touching.end());
    }
    return nodes;
  }

  // In how many ways it may lie, about: a power of this.
  double weight(ValueId storage) const {
    return 0.5 + static_cast<double>(graph_.value(storage).type.sizes.size());
  }

  // By how much there is more to tell apart after the node.
  double growth(size_t node) const {
    double more = 0;
    for (ValueId storage : touched_[node]) {
      const bool was_open = open_.count(storage) != 0;
      const bool stays_open = undecided_.at(storage).size() > 1;
      more += (stays_open ? weight(storage) : 0) - (was_open ? weight(storage) : 0);
    }
    return more;
  }

  void decide(size_t node) {
    for (ValueId storage : touched_[node]) {
      auto& rest = undecided_.at(storage);
      rest.erase(node);
      if (rest.empty()) {
        open_.erase(storage);
      } else {
        open_.insert(storage);
      }
    }
  }

  const Graph& graph_;
  std::vector<std::set<ValueId>> touched_;         // by node: storages
  std::map<ValueId, std::set<size_t>> undecided_;  // by storage: nodes that touch it
  std::vector<size_t> rank_;                       // by node
  std::set<ValueId> open_;                         // storages
};

}  // namespace

std::vector<size_t> order_of_search(const Graph& graph) { return Order(graph).run(); }

}  // namespace epl

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "sharding/order.h"

namespace epl {
namespace {

class NarrowOrder {
 public:
  explicit NarrowOrder(const Graph& graph) : graph_(graph), touched_(graph.nodes.size()) {
    for (const auto& leaf : graph.leaves) {
      const ValueId storage = graph.value(leaf.value).storage;
      if (leaf.kind == Leaf::Kind::kParameter) parameters_.insert(storage);
      const bool whole = leaf.kind == Leaf::Kind::kConstant || leaf.kind == Leaf::Kind::kSeed;
      if (whole) whole_.insert(leaf.value);
    }
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
      for (ValueId id : touched_[i]) undecided_[id].insert(i);
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
  void touch(size_t node, ValueId id) {
    const ValueId storage = graph_.value(id).storage;
    if (whole_.count(id) != 0) return;
    touched_[node].insert(parameters_.count(storage) != 0 ? storage : id);
  }

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
    for (ValueId id : open_) {
      const auto& touching = undecided_.at(id);
      nodes.insert(touching.begin(), touching.end());
    }
    return nodes;
  }

  // In how many ways it may lie, about: a power of this.
  double weight(ValueId id) const {
    return 0.5 + static_cast<double>(graph_.value(id).type.sizes.size());
  }

  // By how much there is more to tell apart after the node.
  double growth(size_t node) const {
    double more = 0;
    for (ValueId id : touched_[node]) {
      const bool was_open = open_.count(id) != 0;
      const bool stays_open = undecided_.at(id).size() > 1;
      more += (stays_open ? weight(id) : 0) - (was_open ? weight(id) : 0);
    }
    return more;
  }

  void decide(size_t node) {
    for (ValueId id : touched_[node]) {
      auto& rest = undecided_.at(id);
      rest.erase(node);
      if (rest.empty()) {
        open_.erase(id);
      } else {
        open_.insert(id);
      }
    }
  }

  const Graph& graph_;
  std::set<ValueId> parameters_;                   // storages; all views of one lie as it does
  std::set<ValueId> whole_;                        // leaves that are never cut
  std::vector<std::set<ValueId>> touched_;         // by node: values, parameters by their storage
  std::map<ValueId, std::set<size_t>> undecided_;  // by value: nodes that touch it
  std::vector<size_t> rank_;                       // by node
  std::set<ValueId> open_;                         // touched by decided and undecided nodes
};

}  // namespace

std::vector<size_t> order_by_open_values(const Graph& graph) { return NarrowOrder(graph).run(); }

}  // namespace epl

#include <algorithm>
#include <cmath>
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
    rank_nodes();
  }

  struct Result {
    std::vector<size_t> order;
    double effort = 0;  // of the search, about
  };

  // A node comes at most so many places before its turn.
  Result run(size_t ahead) {
    undecided_.clear();
    open_.clear();
    std::set<std::pair<size_t, size_t>> by_rank;  // rank and node, undecided
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      by_rank.emplace(rank_[i], i);
      for (ValueId id : touched_[i]) undecided_[id].insert(i);
    }
    Result result;
    while (!by_rank.empty()) {
      size_t next = by_rank.begin()->second;
      std::pair<double, size_t> least{growth(next), rank_[next]};
      for (size_t candidate : candidates()) {
        if (rank_[candidate] > by_rank.begin()->first + ahead) continue;
        least = std::min(least, {growth(candidate), rank_[candidate]});
      }
      next = sorted_[least.second];
      decide(next);
      by_rank.erase({rank_[next], next});
      result.order.push_back(next);
      double bits = 0;
      for (ValueId id : open_) bits += weight(id);
      result.effort += std::exp2(bits);
    }
    return result;
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
    sorted_.resize(graph_.nodes.size());
    std::iota(sorted_.begin(), sorted_.end(), size_t{0});
    std::stable_sort(sorted_.begin(), sorted_.end(), [&](size_t a, size_t b) {
      return std::tie(calls[a], graph_.nodes[a].phase) < std::tie(calls[b], graph_.nodes[b].phase);
    });
    rank_.resize(sorted_.size());
    for (size_t i = 0; i < sorted_.size(); ++i) rank_[sorted_[i]] = i;
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

  // In how many ways it may lie, about: two to this power.
  double weight(ValueId id) const {
    const auto& sizes = graph_.value(id).type.sizes;
    const auto wide = std::count_if(sizes.begin(), sizes.end(), [](int64_t n) { return n > 1; });
    return 0.5 + static_cast<double>(wide);
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
  std::vector<size_t> sorted_;                     // nodes by rank
  std::vector<size_t> rank_;                       // by node
  std::set<ValueId> open_;                         // touched by decided and undecided nodes
};

}  // namespace

std::vector<size_t> order_by_open_values(const Graph& graph) {
  NarrowOrder order(graph);
  NarrowOrder::Result best = order.run(0);
  for (size_t ahead : {6, 12, 24, 48, 1 << 20}) {
    NarrowOrder::Result other = order.run(ahead);
    if (other.effort < best.effort) best = std::move(other);
  }
  return std::move(best.order);
}

}  // namespace epl

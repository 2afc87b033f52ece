#include "passes/join_casts.h"

#include <map>
#include <set>
#include <tuple>

#include "ops/facts.h"

namespace epl {
namespace {

// Storages that some node writes: two casts of them may differ.
std::set<ValueId> written_storages(const Graph& graph) {
  std::set<ValueId> written;
  for (const Node& node : graph.nodes) {
    for (size_t i : written_arguments(node)) {
      for (ValueId id : node.arguments[i].values) {
        if (id != kNoValue) written.insert(graph.value(id).storage);
      }
    }
  }
  return written;
}

class Joiner {
 public:
  explicit Joiner(Graph& graph) : graph_(graph), written_(written_storages(graph)) {}

  bool run() {
    std::vector<Node> kept;
    for (Node& node : graph_.nodes) {
      for_each_input(node, [&](ValueId& id) { id = now(id); });
      if (!is_cast(node) || !join(node)) kept.push_back(std::move(node));
    }
    const bool changed = kept.size() != graph_.nodes.size();
    graph_.nodes = std::move(kept);
    move_views();
    for_each_returned(graph_, [&](ValueId& id) { id = now(id); });
    return changed;
  }

 private:
  static ValueId source(const Node& cast) { return cast.arguments[0].values[0]; }
  static ValueId result(const Node& cast) { return cast.results[0].values[0]; }

  bool is_cast(const Node& node) const {
    if (op_name(node) != "aten::_to_copy") return false;
    return written_.count(graph_.value(source(node)).storage) == 0 &&
           written_.count(graph_.value(result(node)).storage) == 0;
  }

  // Whether another value takes the place of what the node makes.
  bool join(const Node& node) {
    const TensorType& type = graph_.value(result(node)).type;
    const Place place{node.chunk, node.phase};
    const auto wide = widened_.find({source(node), place});
    if (wide != widened_.end() && is_at_place(graph_.value(wide->second).type, type)) {
      return take(wide->second, result(node));
    }
    const auto [known, added] =
        casts_.emplace(std::make_tuple(source(node), type.dtype, place), result(node));
    if (!added && is_at_place(graph_.value(known->second).type, type)) {
      return take(known->second, result(node));
    }
    const TensorType& from = graph_.value(source(node)).type;
    const bool widens =
        type.dtype == c10::ScalarType::Float &&
        (from.dtype == c10::ScalarType::BFloat16 || from.dtype == c10::ScalarType::Half);
    if (widens) widened_.emplace(std::make_pair(result(node), place), source(node));
    return false;
  }

  static bool is_at_place(const TensorType& made, const TensorType& wanted) {
    return made.dtype == wanted.dtype && made.sizes == wanted.sizes &&
           made.strides == wanted.strides && made.offset == wanted.offset;
  }

  // Views of the one are views of the other from now on.
  bool take(ValueId other, ValueId made) {
    now_[made] = other;
    moved_[made] = graph_.value(other).storage;
    return true;
  }

  void move_views() {
    for (Node& node : graph_.nodes) {
      for_each_output(node, [&](ValueId id) {
        const auto found = moved_.find(graph_.value(id).storage);
        if (found != moved_.end()) graph_.value(id).storage = found->second;
      });
    }
  }

  ValueId now(ValueId id) const {
    const auto found = now_.find(id);
    return found == now_.end() ? id : found->second;
  }

  using Place = std::pair<int, Phase>;
  Graph& graph_;
  const std::set<ValueId> written_;
  std::map<std::tuple<ValueId, c10::ScalarType, Place>, ValueId> casts_;
  std::map<std::pair<ValueId, Place>, ValueId> widened_;  // what a wide value was made of
  std::map<ValueId, ValueId> now_;
  std::map<ValueId, ValueId> moved_;  // storages that are gone, and those in their place
};

}  // namespace

bool JoinCasts::run(Graph& graph) { return Joiner(graph).run(); }

}  // namespace epl

#include "passes/unpack_masks.h"

#include <map>
#include <set>

#include "ir/makers.h"
#include "ops/facts.h"

namespace epl {
namespace {

class Unpacker {
 public:
  explicit Unpacker(Graph& graph) : graph_(graph) {
    for (const Node& node : graph.nodes) {
      for (size_t i : written_arguments(node)) {
        for (ValueId id : node.arguments[i].values) {
          if (id != kNoValue) written_.insert(graph.value(id).storage);
        }
      }
    }
  }

  bool run() {
    find();
    if (drawn_.empty()) return false;
    for (Node& node : graph_.nodes) {
      for_each_input(node, [&](ValueId& id) { id = drawn(id); });
      for_each_output(node, [&](ValueId id) {
        if (drawn_.count(id) == 0) graph_.value(id).storage = drawn(graph_.value(id).storage);
      });
    }
    for_each_returned(graph_, [&](ValueId& id) { id = drawn(id); });
    remove();
    return true;
  }

 private:
  static ValueId source(const Node& cast) { return cast.arguments[0].values[0]; }
  static ValueId result(const Node& cast) { return cast.results[0].values[0]; }

  // Of something that stays as it is.
  bool is_cast(const Node& node) const {
    return node.phase == Phase::kForward && op_name(node) == "aten::_to_copy" &&
           written_.count(graph_.value(source(node)).storage) == 0 &&
           written_.count(graph_.value(result(node)).storage) == 0;
  }

  void find() {
    const Makers makers(graph_);
    for (const Node& node : graph_.nodes) {
      if (!is_cast(node)) continue;
      const Node* const maker = makers.of(source(node));
      if (maker == nullptr || maker->chunk != node.chunk) continue;
      const TensorType& made = graph_.value(result(node)).type;
      if (made.dtype == c10::ScalarType::Bool && gives_zero_or_one(maker->op)) {
        truths_[result(node)] = source(node);
      }
      const auto truth = truths_.find(source(node));
      if (truth == truths_.end()) continue;
      const TensorType& mask = graph_.value(truth->second).type;
      if (mask.same_place(made)) drawn_[result(node)] = truth->second;
    }
  }

  ValueId drawn(ValueId id) const {
    const auto found = drawn_.find(id);
    return found == drawn_.end() ? id : found->second;
  }

  // What unpacks, and truth values that nobody reads then.
  void remove() {
    std::set<ValueId> read;
    for_each_returned(graph_, [&](ValueId id) { read.insert(id); });
    for (const Node& node : graph_.nodes) {
      if (is_cast(node) && drawn_.count(result(node)) != 0) continue;
      for_each_input(node, [&](ValueId id) { read.insert(id); });
    }
    std::vector<Node> kept;
    for (Node& node : graph_.nodes) {
      const bool unpacks = is_cast(node) && drawn_.count(result(node)) != 0;
      const bool packs = is_cast(node) && truths_.count(result(node)) != 0;
      const bool goes = unpacks || (packs && read.count(result(node)) == 0);
      if (!goes) kept.push_back(std::move(node));
    }
    graph_.nodes = std::move(kept);
  }

  Graph& graph_;
  std::set<ValueId> written_;          // storages
  std::map<ValueId, ValueId> truths_;  // truth values of a mask -> the mask
  std::map<ValueId, ValueId> drawn_;   // a mask unpacked -> the mask
};

}  // namespace

bool UnpackMasks::run(Graph& graph) { return Unpacker(graph).run(); }

}  // namespace epl

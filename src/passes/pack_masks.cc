#include "passes/pack_masks.h"

#include <map>
#include <set>

#include "ops/facts.h"

namespace epl {
namespace {

std::set<ValueId> storages_that_are_written(const Graph& graph) {
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

class Packer {
 public:
  explicit Packer(Graph& graph) : graph_(graph), written_(storages_that_are_written(graph)) {}

  bool run() {
    find_masks();
    if (read_.empty()) return false;
    std::vector<Node> recorded = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : recorded) {
      read_unpacked(node);
      const ValueId mask = mask_of(node);
      graph_.nodes.push_back(std::move(node));
      if (read_.count(mask) != 0) pack(mask);
    }
    return true;
  }

 private:
  // What the node draws, if it can be packed; else none.
  ValueId mask_of(const Node& node) const {
    if (node.phase != Phase::kForward || !gives_zero_or_one(node.op)) return kNoValue;
    const ValueId id = node.results[0].values[0];
    const Value& mask = graph_.value(id);
    const bool packs = c10::isFloatingType(mask.type.dtype) && mask.type.item_bytes() > 1 &&
                       mask.type.layout == c10::kStrided && mask.type.dense() &&
                       mask.storage == id && written_.count(id) == 0;
    return packs ? id : kNoValue;
  }

  // Masks that backward reads, in whatever is made of one mask alone.
  void find_masks() {
    std::map<ValueId, ValueId> mask_in;  // value -> the mask that it is made of
    std::map<ValueId, int> chunk_of;     // of masks
    for (const Node& node : graph_.nodes) {
      if (const ValueId drawn = mask_of(node); drawn != kNoValue) {
        mask_in[drawn] = drawn;
        chunk_of[drawn] = node.chunk;
        continue;
      }
      std::set<ValueId> masks;  // kNoValue: something else as well
      for_each_input(node, [&](ValueId id) {
        const auto found = mask_in.find(id);
        const bool here = found != mask_in.end() && chunk_of[found->second] == node.chunk;
        masks.insert(here ? found->second : kNoValue);
      });
      if (node.phase == Phase::kBackward) {
        read_.insert(masks.begin(), masks.end());
      } else if (masks.size() == 1 && (is_view(graph_, node) || is_repeatable(graph_, node))) {
        for_each_output(node, [&](ValueId id) {
          if (*masks.begin() != kNoValue) mask_in[id] = *masks.begin();
        });
      }
    }
    read_.erase(kNoValue);
  }

  void read_unpacked(Node& node) {
    for_each_input(node, [&](ValueId& id) {
      const auto found = unpacked_.find(id);
      if (found != unpacked_.end() && chunk_of_mask_[id] == node.chunk) id = found->second;
    });
    // Views show what they are made of, whichever chunk makes them.
    for_each_output(node, [&](ValueId id) {
      const auto found = unpacked_.find(graph_.value(id).storage);
      if (found == unpacked_.end() || found->first == id) return;
      bool shows = false;
      for_each_input(node,
                     [&](ValueId read) { shows |= graph_.value(read).storage == found->second; });
      if (shows) graph_.value(id).storage = found->second;
    });
  }

  void pack(ValueId mask) {
    const c10::ScalarType type = graph_.value(mask).type.dtype;
    const ValueId truth = cast(mask, c10::ScalarType::Bool);
    chunk_of_mask_[mask] = graph_.nodes.back().chunk;
    unpacked_[mask] = cast(truth, type);
  }

  // Appends it, beside the node before.
  ValueId cast(ValueId from, c10::ScalarType to) {
    const Node& beside = graph_.nodes.back();
    Node node{c10::Dispatcher::singleton().findSchemaOrThrow("aten::_to_copy", ""),
              {},
              {},
              Phase::kForward,
              beside.taskgraph,
              {},
              beside.origin.beside(),
              beside.chunk};
    node.arguments.resize(node.op.schema().arguments().size());
    node.arguments[0].kind = Argument::Kind::kValue;
    node.arguments[0].values = {from};
    node.arguments[1].constant = static_cast<int64_t>(to);
    node.arguments[5].constant = false;  // non_blocking
    TensorType made = graph_.value(from).type;
    made.dtype = to;
    node.results.resize(1);
    node.results[0].values = {graph_.add_value(made)};
    graph_.nodes.push_back(std::move(node));
    return graph_.nodes.back().results[0].values[0];
  }

  Graph& graph_;
  const std::set<ValueId> written_;      // storages
  std::set<ValueId> read_;               // masks
  std::map<ValueId, ValueId> unpacked_;  // mask -> what its readers have in its place
  std::map<ValueId, int> chunk_of_mask_;
};

}  // namespace

bool PackMasks::run(Graph& graph) { return Packer(graph).run(); }

}  // namespace epl

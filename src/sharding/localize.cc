#include <map>

#include "base/check.h"
#include "ops/facts.h"
#include "sharding/reshard.h"
#include "sharding/sharding.h"

namespace epl {
namespace {

class Localizer {
 public:
  Localizer(const ShardingRequest& request, const Sharding& sharding, int part)
      : request_(request), graph_(request.graph), sharding_(sharding), part_(part), emitter_(local_) {}

  Graph run() {
    local_.taskgraphs = graph_.taskgraphs;
    for (const auto& leaf : graph_.leaves) add_leaf(leaf);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) add_node(i);
    add_results();
    return std::move(local_);
  }

 private:
  Layout made(ValueId id) const { return sharding_.values[static_cast<size_t>(id)]; }
  const TensorType& whole(ValueId id) const { return graph_.value(id).type; }

  // A piece of the user's tensor is a view of it; a piece of an input is what is loaded.
  void add_leaf(const Leaf& leaf) {
    Leaf own = leaf;
    TensorType type = whole(leaf.value);
    const Layout layout = made(leaf.value);
    if (layout.is_cut()) {
      const auto dim = static_cast<size_t>(layout.dim);
      own.piece = piece_of(type.sizes[dim], request_.parts, part_);
      own.cut_dim = layout.dim;
      own.whole = type.sizes[dim];
      type.sizes[dim] = own.piece.length;
      if (leaf.kind == Leaf::Kind::kInput) {
        type.strides = contiguous_strides(type.sizes);
      } else {
        type.offset += own.piece.begin * type.strides[dim];
      }
    }
    own.value = local_.add_value(type);
    have_[{leaf.value, layout}] = own.value;
    local_.leaves.push_back(std::move(own));
  }

  // The value in a layout: as it is made, or brought there, once.
  ValueId need(ValueId id, Layout layout) {
    const auto known = have_.find({id, layout});
    if (known != have_.end()) return known->second;
    const ValueId local = have_.at({id, made(id)});
    const ValueId there =
        emit_reshard(emitter_, local, whole(id), made(id), layout, request_.parts, part_);
    return have_[{id, layout}] = there;
  }

  void add_node(size_t index) {
    const Choice& choice = sharding_.nodes[index];
    const Node& node = graph_.nodes[index];
    emitter_.stand_for(node);
    std::vector<ValueId> inputs;
    for_each_input(node, [&](ValueId id) {
      inputs.push_back(need(id, choice.cut.inputs[inputs.size()]));
    });
    std::vector<ValueId> made_here = choice.slice
                                         ? add_as_recorded(index, inputs)
                                         : emit_local({graph_, node, choice.cut, request_.parts,
                                                       part_, std::move(inputs)},
                                                      emitter_);
    if (!choice.slice && choice.cut.letter == 0 && is_random(node.op)) agree(made_here);
    size_t at = 0;
    for_each_output(node, [&](ValueId id) {
      have_[{id, choice.cut.outputs[at]}] = made_here[at];
      ++at;
    });
  }

  // What is whole is the same on every device: device 0 draws for all.
  void agree(std::vector<ValueId>& values) {
    for (ValueId& id : values) {
      id = emitter_.call("epl::broadcast", {value_argument(id), constant_argument(int64_t{0})});
    }
  }

  std::vector<ValueId> add_as_recorded(size_t index, const std::vector<ValueId>& inputs) {
    const Node& recorded = request_.slice->nodes[index];
    Node node = recorded;
    size_t at = 0;
    for_each_input(node, [&](ValueId& id) { id = inputs[at++]; });
    std::vector<std::vector<int64_t>> sizes;
    for_each_output(recorded, [&](ValueId id) {
      sizes.push_back(request_.slice->value(id).type.sizes);
    });
    return emitter_.add(std::move(node), sizes, *request_.slice, recorded);
  }

  void add_results() {
    local_.loss = result(graph_.loss, sharding_.loss_of_slices);
    for (size_t i = 0; i < graph_.metrics.size(); ++i) {
      Metric metric = graph_.metrics[i];
      metric.value = result(metric.value, sharding_.metrics_of_slices[i]);
      local_.metrics.push_back(std::move(metric));
    }
    for (size_t i = 0; i < graph_.gradients.size(); ++i) {
      const Gradient& gradient = graph_.gradients[i];
      local_.gradients.push_back(
          {gradient.parameter, need(gradient.value, sharding_.gradients[i])});
    }
  }

  ValueId result(ValueId id, bool of_slices) {
    if (id == kNoValue) return kNoValue;
    return need(id, of_slices ? made(id) : Layout::whole());
  }

  const ShardingRequest& request_;
  const Graph& graph_;
  const Sharding& sharding_;
  const int part_;
  Graph local_;
  Emitter emitter_;
  std::map<std::pair<ValueId, Layout>, ValueId> have_;
};

}  // namespace

Graph local_graph(const ShardingRequest& request, const Sharding& sharding, int part) {
  return Localizer(request, sharding, part).run();
}

}  // namespace epl

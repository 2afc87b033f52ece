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
      : request_(request),
        graph_(request.graph),
        sharding_(sharding),
        part_(part),
        emitter_(local_),
        going_out_(values_going_out(request)) {}

  Graph run() {
    local_.taskgraphs = graph_.taskgraphs;
    if (keeps_ids()) {
      for (ValueId id = 0; id < graph_.value_count(); ++id) {
        local_.define_value(id, whole(id), graph_.value(id).storage);
      }
    }
    for (const auto& leaf : graph_.leaves) add_leaf(leaf);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (request_.is_inside(i)) {
        add_node(i);
      } else {
        keep_node(graph_.nodes[i]);
      }
    }
    add_results();
    rename();
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
      own.shard = shard_of(type.sizes, layout, request_.parts, part_);
      type.sizes[dim] = own.shard.piece.length;
      if (leaf.kind == Leaf::Kind::kInput) {
        type.strides = contiguous_strides(type.sizes);
      } else {
        type.offset += own.shard.piece.begin * type.strides[dim];
      }
    }
    if (keeps_ids()) {
      local_.value(leaf.value).type = type;
    } else {
      own.value = local_.add_value(type);
    }
    have_[{leaf.value, layout}] = own.value;
    local_.leaves.push_back(std::move(own));
  }

  bool keeps_ids() const { return !request_.inside.empty(); }

  void keep_node(const Node& node) {
    local_.nodes.push_back(node);
    for_each_output(node, [&](ValueId id) { have_[{id, Layout::whole()}] = id; });
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
    for_each_input(
        node, [&](ValueId id) { inputs.push_back(need(id, choice.cut.inputs[inputs.size()])); });
    std::vector<ValueId> made_here =
        choice.slice
            ? add_as_recorded(index, inputs)
            : emit_local({graph_, node, choice.cut, request_.parts, part_, std::move(inputs)},
                         emitter_);
    if (!choice.slice && choice.cut.letter == 0 && is_random(node.op)) agree(made_here);
    size_t at = 0;
    for_each_output(node, [&](ValueId id) {
      have_[{id, choice.cut.outputs[at]}] = made_here[at];
      ++at;
    });
    for_each_output(node, [&](ValueId id) {
      if (going_out_.count(id) != 0) new_names_[need(id, Layout::whole())] = id;
    });
  }

  // What goes out has the id that the rest of the step knows it by.
  void rename() {
    const auto rename_id = [&](ValueId& id) {
      const auto name = new_names_.find(id);
      if (name != new_names_.end()) id = name->second;
    };
    for (const auto& [local, name] : new_names_) {
      local_.value(name).type = local_.value(local).type;
      local_.value(name).storage = local_.value(local).storage;
    }
    if (new_names_.empty()) return;
    for (ValueId id = 0; id < local_.value_count(); ++id) rename_id(local_.value(id).storage);
    for (auto& node : local_.nodes) {
      for_each_input(node, rename_id);
      for_each_output(node, rename_id);
    }
    for_each_returned(local_, rename_id);
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
    for_each_output(recorded,
                    [&](ValueId id) { sizes.push_back(request_.slice->value(id).type.sizes); });
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
  const std::set<ValueId> going_out_;
  std::map<ValueId, ValueId> new_names_;
};

}  // namespace

Graph local_graph(const ShardingRequest& request, const Sharding& sharding, int part) {
  return Localizer(request, sharding, part).run();
}

}  // namespace epl

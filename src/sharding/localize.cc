#include <algorithm>
#include <map>
#include <tuple>

#include "base/check.h"
#include "ir/makers.h"
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
        makers_(request.graph),
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
    const bool gathered = is_gathered(leaf);
    const Layout layout = gathered ? Layout::cut(0) : made(leaf.value);
    const Axis parts = gathered ? Axis(request_.parts.size) : request_.parts;
    if (layout.is_cut()) {
      const auto dim = static_cast<size_t>(layout.dim);
      // Whoever shares a graph is given the rows that it loads.
      const Shard shard = shard_of(type.sizes, layout, parts, std::max(part_, 0));
      if (!shared()) own.shard = shard;
      type.sizes[dim] = shard.piece.length;
      if (leaf.kind == Leaf::Kind::kInput) {
        type.strides = contiguous_strides(type.sizes);
      } else {
        type.offset += shard.piece.begin * type.strides[dim];
      }
    }
    if (keeps_ids()) {
      local_.value(leaf.value).type = type;
    } else {
      own.value = local_.add_value(type);
    }
    made_[leaf.value] = own.value;
    if (gathered) made_[leaf.value] = gather_rows(own.value, whole(leaf.value), parts);
    local_.leaves.push_back(std::move(own));
  }

  bool is_gathered(const Leaf& leaf) const {
    return request_.gathers_inputs() && leaf.kind == Leaf::Kind::kInput &&
           !whole(leaf.value).sizes.empty();
  }

  ValueId gather_rows(ValueId rows, const TensorType& all, const Axis& parts) {
    return emit_reshard(emitter_, rows, all, Layout::cut(0), Layout::whole(), parts, part_);
  }

  bool shared() const { return part_ == kEachPart; }
  bool keeps_ids() const { return shared() || !request_.inside.empty(); }

  void keep_node(const Node& node) {
    local_.nodes.push_back(node);
    for_each_output(node, [&](ValueId id) { made_[id] = id; });
  }

  // The value in a layout: as it is made, or brought there, once in each chunk: what is brought in
  // one of them is not there in another.
  ValueId need(ValueId id, Layout layout) {
    if (layout == made(id)) return made_.at(id);
    const auto [known, fresh] = brought_.try_emplace({id, layout, chunk_}, kNoValue);
    if (fresh) known->second = bring(made_.at(id), id, made(id), layout);
    return known->second;
  }

  ValueId bring(ValueId local, ValueId id, Layout from, Layout to) {
    return emit_reshard(emitter_, local, whole(id), from, to, request_.parts, part_);
  }

  void stand_for(const Node& node) {
    emitter_.stand_for(node);
    chunk_ = node.chunk;
  }

  void add_node(size_t index) {
    const Cut& cut = sharding_.nodes[index];
    const Node& node = graph_.nodes[index];
    stand_for(node);
    std::vector<ValueId> inputs;
    for_each_input(node,
                   [&](ValueId id) { inputs.push_back(need(id, cut.inputs[inputs.size()])); });
    std::vector<ValueId> made_here = emit_local(
        {graph_, node, cut, request_.parts, std::max(part_, 0), std::move(inputs)}, emitter_);
    if (cut.letter == 0 && is_random(node.op)) agree(node, made_here);
    forget_written(node);
    size_t at = 0;
    for_each_output(node, [&](ValueId id) {
      made_[id] = bring(made_here[at], id, cut.outputs[at], made(id));
      ++at;
    });
    for_each_output(node, [&](ValueId id) {
      if (shared()) name(made_[id], id);
      if (!shared() && going_out_.count(id) != 0) new_names_[need(id, Layout::whole())] = id;
    });
  }

  // What was brought elsewhere before a node writes into it is out of date.
  void forget_written(const Node& node) {
    for (size_t argument : written_arguments(node)) {
      for (ValueId id : node.arguments[argument].values) {
        if (id != kNoValue) forget(graph_.value(id).storage);
      }
    }
  }

  void forget(ValueId storage) {
    for (auto entry = brought_.begin(); entry != brought_.end();) {
      const ValueId id = std::get<0>(entry->first);
      entry = graph_.value(id).storage == storage ? brought_.erase(entry) : std::next(entry);
    }
  }

  // What stands for several values has the name of one of them.
  void name(ValueId& local, ValueId id) {
    const bool taken = local < graph_.value_count() || new_names_.count(local) != 0;
    if (taken) local = emitter_.call("aten::alias", {value_argument(local)});
    new_names_[local] = id;
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
  void agree(const Node& node, std::vector<ValueId>& values) {
    // It draws into an argument, which its schema does not say: the others would not have it.
    EPL_CHECK(op_name(node).rfind("aten::rrelu_with_noise", 0) != 0,
              concat("rrelu of a value that is whole on each of ", request_.parts.size, " devices"),
              request_.asked_by.empty() ? "epl::Trainer::step" : request_.asked_by,
              "leaky_relu, or rrelu of what has rows");
    const bool writes = !written_arguments(node).empty();
    for (ValueId& id : values) {
      const ValueId drawn =
          emitter_.call("epl::broadcast", {value_argument(id), constant_argument(int64_t{0}),
                                           constant_argument(request_.parts.name)});
      // State that was drawn into has it as well: else what devices have of it would be averaged.
      id = writes ? emitter_.call("aten::copy_", {value_argument(id), value_argument(drawn)})
                  : drawn;
    }
  }

  void add_results() {
    local_.loss = result(graph_.loss, sharding_.loss);
    for (size_t i = 0; i < graph_.metrics.size(); ++i) {
      Metric metric = graph_.metrics[i];
      metric.value = result(metric.value, sharding_.metrics[i]);
      local_.metrics.push_back(std::move(metric));
    }
    for (size_t i = 0; i < graph_.gradients.size(); ++i) {
      const Gradient& gradient = graph_.gradients[i];
      stand_for_result(makers_.owner_of_gradient(gradient.value));
      emitter_.set_phase(Phase::kBackward);
      local_.gradients.push_back(
          {gradient.parameter, need(gradient.value, sharding_.gradients[i])});
    }
  }

  ValueId result(ValueId id, Layout layout) {
    if (id == kNoValue) return kNoValue;
    stand_for_result(makers_.of(id));
    return need(id, layout);
  }

  // In a pipeline a result is brought into its layout where it is made.
  void stand_for_result(const Node* maker) {
    if (shared() && maker != nullptr) stand_for(*maker);
  }

  const ShardingRequest& request_;
  const Graph& graph_;
  const Sharding& sharding_;
  const int part_;
  const Makers makers_;
  Graph local_;
  Emitter emitter_;
  int chunk_ = 0;  // of the node that is being added
  std::map<ValueId, ValueId> made_;
  std::map<std::tuple<ValueId, Layout, int>, ValueId> brought_;
  const std::set<ValueId> going_out_;
  std::map<ValueId, ValueId> new_names_;
};

}  // namespace

Graph local_graph(const ShardingRequest& request, const Sharding& sharding, int part) {
  return Localizer(request, sharding, part).run();
}

Graph shared_graph(const Graph& graph, const Sharding& sharding) {
  const ShardingRequest request{graph, sharding.parts};
  return Localizer(request, sharding, kEachPart).run();
}

}  // namespace epl

// Recorder, when the step has ended, by an error or not: who holds what it made and what it read,
// and what of that speaks against a replay.
#include "base/check.h"
#include "capture/recorder.h"
#include "ops/facts.h"

namespace epl {
namespace {

// By value: whether it comes from the batch, from trained parameters or from random numbers. What
// comes from buffers alone, a table that is made once and kept, does not.
std::vector<bool> values_of_the_step(const Graph& graph) {
  std::vector<bool> result(static_cast<size_t>(graph.value_count()), false);
  for (const Leaf& leaf : graph.leaves) {
    result[static_cast<size_t>(leaf.value)] =
        leaf.kind == Leaf::Kind::kInput || leaf.kind == Leaf::Kind::kParameter;
  }
  std::set<ValueId> written;  // storages, maybe through a view of another tensor
  for (const Node& node : graph.nodes) {
    bool any = is_random(node.op);
    for_each_input(node, [&](ValueId id) {
      any |= result[static_cast<size_t>(id)] || written.count(graph.value(id).storage) != 0;
    });
    for_each_output(node, [&](ValueId id) { result[static_cast<size_t>(id)] = any; });
    if (!any) continue;
    for (size_t i : written_arguments(node)) {
      for (ValueId id : node.arguments[i].values) {
        if (id != kNoValue) written.insert(graph.value(id).storage);
      }
    }
  }
  return result;
}

// By node: whether what it gives is read, in the end, for a result or by a node that always runs.
std::vector<bool> nodes_that_are_read(const Graph& graph, const std::vector<ValueId>& returned) {
  std::vector<bool> read(graph.nodes.size(), false);
  std::set<ValueId> needed(returned.begin(), returned.end());
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    bool gives = false;
    for_each_output(node, [&](ValueId id) { gives |= needed.count(id) != 0; });
    read[i] = gives;
    if (!gives && !node.expects && !is_random(node.op) && !only_checks(node.op)) continue;
    for_each_input(node, [&](ValueId id) { needed.insert(id); });
  }
  return read;
}

}  // namespace

std::vector<at::Tensor> Recorder::settle_trained(const NamedTensors& parameters) {
  std::unordered_map<c10::TensorImpl*, Leaf*> leaves;
  for (Leaf& leaf : graph_.leaves) leaves.emplace(leaf.tensor.unsafeGetTensorImpl(), &leaf);
  std::vector<at::Tensor> trained;
  for (const auto& [name, parameter] : parameters) {
    const bool updated = parameter.requires_grad();
    if (updated) trained.push_back(parameter);
    const auto leaf = leaves.find(parameter.unsafeGetTensorImpl());
    if (leaf != leaves.end()) {
      leaf->second->kind = updated ? Leaf::Kind::kParameter : Leaf::Kind::kState;
    } else if (updated) {
      // Each has a gradient of its own and is updated by it; a Graph knows memory by one name.
      cannot_be_replayed(concat("the parameters `", other_name_of(parameter), "` and `", name,
                                "` show the same memory, as set_data() leaves them"));
    }
  }
  return trained;
}

std::string Recorder::other_name_of(const at::Tensor& tensor) const {
  for (const Leaf& leaf : graph_.leaves) {
    const bool shows_memory = leaf.tensor.defined() && leaf.tensor.layout() == c10::kStrided;
    if (shows_memory && leaf.tensor.is_alias_of(tensor)) return leaf.name;
  }
  return "the batch";
}

// One that the step made is another one in every step: nobody else holds it.
bool Recorder::made_in_step(const at::Generator& generator) const {
  size_t ours = 1;  // generators_
  for (const Node& node : graph_.nodes) {
    for (const Argument& argument : node.arguments) {
      const bool same =
          argument.constant.isGenerator() && argument.constant.toGenerator() == generator;
      if (same) ++ours;
    }
  }
  return generator.getIntrusivePtr().use_count() == ours + 1;  // and the caller
}

void Recorder::end_of_step() {
  generators_.end();
  if (generators_.set_in_step()) {
    cannot_be_replayed("C++ seeds a random generator in it, or sets one back");
  }
  for (const at::Generator& generator : generators_.all()) {
    if (made_in_step(generator)) cannot_be_replayed("it makes a random generator of its own");
  }
}

// A constant that the step itself made has the same contents in every step, and what the step
// writes into it must not be there in the next one: it then starts from a copy.
std::vector<Node> Recorder::settle_temporaries() {
  std::vector<Node> copies;
  const auto clone = c10::Dispatcher::singleton().findSchemaOrThrow("aten::clone", "");
  for (auto& [root, temporary] : temporaries_) {
    Leaf& leaf = graph_.leaves[temporary.leaf];
    if (!temporary.contents.defined()) continue;
    // Held by the leaf and, where it was written, for restore_written(). Anybody else who holds it
    // had it before the step: it stays that tensor.
    const size_t ours = saved_.count(root) != 0 ? 2 : 1;
    if (temporary.borrowed && leaf.tensor.storage().use_count() > ours) continue;
    leaf.tensor = temporary.contents;
    if (!temporary.written || !graph_.value(root).type.dense()) continue;
    leaf.value = graph_.add_value(graph_.value(root).type);
    Argument from;
    from.kind = Argument::Kind::kValue;
    from.values = {leaf.value};
    const ForwardPlace owner = owner_of(root);
    copies.push_back(Node{clone,
                          {from, Argument()},
                          {Result{false, {root}}},
                          Phase::kForward,
                          owner.taskgraph,
                          {},
                          {owner.call, -1, 0}});
  }
  return copies;
}

// Variables are known by the memory they hold: the TensorImpl that detach() hands to the user is
// seen by no operator.
std::vector<std::string> Recorder::describe_kept() const {
  std::set<ValueId> held;  // roots
  for (const auto& storage : storages_) {
    if (!storage.expired()) held.insert(roots_.at(storage._unsafe_get_target()));
  }
  const std::vector<bool> of_the_step = values_of_the_step(graph_);
  std::map<ValueId, ValueId> kept;  // root -> what lay there last
  for (ValueId id = 0; id < graph_.value_count(); ++id) {
    const ValueId root = graph_.value(id).storage;
    const int made = producer_[static_cast<size_t>(id)];
    if (made < 0 || producer_[static_cast<size_t>(root)] < 0 || held.count(root) == 0) continue;
    if (uninitialized_.count(root) != 0 || !of_the_step[static_cast<size_t>(id)]) continue;
    const bool forward = graph_.nodes[static_cast<size_t>(made)].phase == Phase::kForward;
    if (forward || users_code_in_backward_) kept[root] = id;
  }
  std::vector<std::string> texts;
  for (const auto& [root, last] : kept) {
    const Node& node = graph_.nodes[static_cast<size_t>(producer_[static_cast<size_t>(last)])];
    texts.push_back(concat(print_type(graph_.value(last).type), " from ", op_name(node)));
    if (node.phase == Phase::kBackward) texts.back() += " of the backward pass";
    if (node.taskgraph >= 0) texts.back() += concat(" in TaskGraph ", node.taskgraph);
  }
  return texts;
}

std::set<ValueId> Recorder::roots_of_constants() const {
  std::set<ValueId> constants;
  for (const Leaf& leaf : graph_.leaves) {
    if (leaf.kind == Leaf::Kind::kConstant) constants.insert(graph_.value(leaf.value).storage);
  }
  // Memory that the step made and wrote is nobody's: a copy takes its place.
  for (const auto& [root, temporary] : temporaries_) {
    if (!temporary.borrowed && temporary.written) constants.erase(root);
  }
  return constants;
}

std::vector<ClosedOver> Recorder::closed_over() const {
  const std::set<ValueId> constants = roots_of_constants();
  std::set<c10::TensorImpl*> known;
  std::vector<ClosedOver> result;
  for (const WeakTensor& seen : impls_) {
    auto impl = seen.lock();
    if (!impl || !known.insert(impl.get()).second) continue;
    if (constants.count(graph_.value(by_impl_.at(impl.get())).storage) == 0) continue;
    result.emplace_back(at::Tensor(std::move(impl)));
  }
  return result;
}

std::vector<HeldUnseen> Recorder::held_unseen() const {
  std::set<ValueId> constants = roots_of_constants();
  for (const ClosedOver& seen : closed_over()) {
    const auto root = roots_.find(const_cast<c10::StorageImpl*>(seen.storage));
    if (root != roots_.end()) constants.erase(root->second);
  }
  std::vector<HeldUnseen> result;
  for (const WeakStorage& storage : storages_) {
    if (storage.expired() || storage.use_count() < 2) continue;  // one is the recorder
    if (constants.count(roots_.at(storage._unsafe_get_target())) != 0) result.emplace_back(storage);
  }
  return result;
}

std::string Recorder::near() const {
  std::map<ValueId, std::string> names;
  for (const Leaf& leaf : graph_.leaves) {
    if (leaf.kind == Leaf::Kind::kParameter) names[graph_.value(leaf.value).storage] = leaf.name;
  }
  for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) {
    std::string found;
    for_each_input(*node, [&](ValueId id) {
      const auto name = names.find(graph_.value(id).storage);
      if (name != names.end()) found = name->second;
    });
    if (!found.empty()) return concat("behind ", op_name(*node), " of `", found, "`");
  }
  return "before any parameter is read";
}

// How large the result of a selection is C++ sees without an operator.
std::vector<Node> Recorder::sizes_of(const Node& selection) const {
  std::vector<Node> sizes;
  const auto size = c10::Dispatcher::singleton().findSchemaOrThrow("aten::size", "int");
  for_each_output(selection, [&](ValueId id) {
    int64_t dim = 0;
    for (int64_t expected : graph_.value(id).type.sizes) {
      Argument of;
      of.kind = Argument::Kind::kValue;
      of.values = {id};
      Argument where;
      where.constant = dim++;
      sizes.push_back({size,
                       {of, where},
                       {Result()},
                       selection.phase,
                       selection.taskgraph,
                       expected,
                       selection.origin.beside()});
    }
  });
  return sizes;
}

// A selection that no operator reads will be removed, and with it what it says of its shape, which
// C++ may have read: its sizes then become nodes.
Graph Recorder::take_graph(const std::vector<ValueId>& returned) {
  std::vector<Node> kept = settle_temporaries();
  const std::vector<bool> read = nodes_that_are_read(graph_, returned);
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    if (dropped_.count(static_cast<int>(i)) != 0) continue;
    const Node& node = graph_.nodes[i];
    const bool selects = !values_that_decide_shape(graph_, node).empty() && varies(node);
    kept.push_back(node);
    if (!selects || read[i]) continue;
    for (Node& size : sizes_of(node)) kept.push_back(std::move(size));
  }
  graph_.nodes = std::move(kept);
  return std::move(graph_);
}

}  // namespace epl

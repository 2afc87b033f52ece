#include "cost/recompute_units.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "cost/node_cost.h"
#include "ir/makers.h"
#include "ops/facts.h"

namespace epl {
namespace {

constexpr int64_t kAlignment = 64;  // of buffers in an arena

class Units {
 public:
  explicit Units(const RecomputeRequest& request)
      : request_(request), graph_(request.graph), makers_(graph_) {
    model_.parts = request.parts;
    model_.in_flight = request.in_flight;
  }

  RecomputeModel run() {
    find_leaves();
    find_written();
    find_marked();
    find_extents();
    for (const auto& given : request_.given) {
      const int storage = storage_of(given.value, given.part);
      if (storage >= 0) model_.storages[static_cast<size_t>(storage)].given = given.part;
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (node.phase == Phase::kForward) taskgraph_ = std::max(taskgraph_, node.taskgraph);
      add_operation(i);
    }
    find_ends();
    return std::move(model_);
  }

 private:
  int part_of(size_t node) const {
    return request_.part_of_node.empty() ? 0 : request_.part_of_node[node];
  }
  int chunk_of(int part) const { return request_.parts[static_cast<size_t>(part)].chunk; }

  ValueId root(ValueId id) const { return graph_.value(id).storage; }

  // They lie elsewhere, but for what a stage is given.
  void find_leaves() {
    std::set<ValueId> given;
    for (const auto& entry : request_.given) given.insert(entry.value);
    for (const auto& leaf : graph_.leaves) {
      if (given.count(leaf.value) == 0) elsewhere_.insert(root(leaf.value));
    }
  }

  void find_written() {
    for (const auto& node : graph_.nodes) {
      for (size_t i : written_arguments(node)) {
        for (ValueId id : node.arguments[i].values) {
          if (id != kNoValue) written_.insert(root(id));
        }
      }
      // Its schema does not say that it draws its noise into an argument.
      constexpr size_t kNoise = 1;
      if (op_name(node).rfind("aten::rrelu_with_noise", 0) == 0) {
        for (ValueId id : node.arguments[kNoise].values) written_.insert(root(id));
      }
    }
  }

  // A mark on a view is one on what it shows.
  void find_marked() {
    if (!request_.keeps_marked) return;
    for (const auto& node : graph_.nodes) {
      if (!node.origin.marked) continue;
      for_each_output(node, [&](ValueId id) { marked_.insert(root(id)); });
    }
  }

  void find_extents() {
    const auto note = [&](ValueId id) {
      const TensorType& type = graph_.value(id).type;
      if (type.layout != c10::kStrided) {
        elsewhere_.insert(root(id));
        return;
      }
      int64_t& extent = extents_[root(id)];
      extent = std::max(extent, type.extent_bytes());
    };
    for (const auto& node : graph_.nodes) {
      for_each_input(node, note);
      for_each_output(node, note);
      find_made_by_operators(node);
    }
  }

  // Sparse tensors and what is made of them get memory as they come; what they are made of stays.
  void find_made_by_operators(const Node& node) {
    const auto leaf_or_dense = [&](ValueId id) {
      return dynamic_.count(id) == 0 && graph_.value(id).type.layout == c10::kStrided;
    };
    bool dense = true;
    for_each_input(node, [&](ValueId id) { dense &= leaf_or_dense(id); });
    for_each_output(node, [&](ValueId id) { dense &= leaf_or_dense(id); });
    if (dense) return;
    for_each_output(node, [&](ValueId id) {
      dynamic_.insert(id);
      elsewhere_.insert(root(id));
    });
    for_each_input(node, [&](ValueId id) {
      if (leaf_or_dense(id)) to_the_end_.insert(root(id));
    });
  }

  // A stage that is handed a value has a copy of its own; -1: it takes no memory here.
  int storage_of(ValueId id, int part) {
    const ValueId at = root(id);
    if (elsewhere_.count(at) != 0) return -1;
    const auto [entry, fresh] =
        storages_.emplace(std::make_pair(at, chunk_of(part)), model_.storages.size());
    if (fresh) {
      RecomputeModel::Storage storage;
      storage.bytes = (extents_[at] + kAlignment - 1) / kAlignment * kAlignment;
      storage.given = part;
      model_.storages.push_back(storage);
    }
    return static_cast<int>(entry->second);
  }

  std::vector<int> storages_of(const std::vector<ValueId>& values, int part) {
    std::vector<int> found;
    for (ValueId id : values) {
      const int storage = storage_of(id, part);
      const bool known = std::find(found.begin(), found.end(), storage) != found.end();
      if (storage >= 0 && !known) found.push_back(storage);
    }
    return found;
  }

  void add_operation(size_t index) {
    const Node& node = graph_.nodes[index];
    const int part = part_of(index);
    bool dynamic = false;
    for_each_output(node, [&](ValueId id) { dynamic |= dynamic_.count(id) != 0; });
    if (part < 0 || (!dynamic && is_view(graph_, node))) return;
    RecomputeModel::Operation operation;
    operation.node = index;
    operation.part = part;
    operation.backward = node.phase == Phase::kBackward;
    operation.seconds = estimated_seconds(graph_, node, request_.machine);
    operation.repeatable = !dynamic && may_run_again(node);
    std::vector<ValueId> read, made;
    for_each_input(node, [&](ValueId id) { read.push_back(id); });
    for_each_output(node, [&](ValueId id) { made.push_back(id); });
    operation.reads = storages_of(read, part);
    for (int storage : storages_of(made, part)) {
      auto& entry = model_.storages[static_cast<size_t>(storage)];
      const auto& reads = operation.reads;
      if (std::find(reads.begin(), reads.end(), storage) != reads.end()) continue;  // in place
      entry.maker = static_cast<int>(model_.operations.size());
      operation.makes.push_back(storage);
    }
    operation.may_take = places_of(node, part);
    operation.kind = kind_of(node, operation);
    model_.operations.push_back(std::move(operation));
  }

  bool may_run_again(const Node& node) const {
    if (node.phase != Phase::kForward || !is_repeatable(graph_, node)) return false;
    if (request_.end_taskgraph >= 0 && taskgraph_ > request_.end_taskgraph) return false;
    bool may = true;
    for_each_output(node, [&](ValueId id) {
      may &= marked_.count(root(id)) == 0 && written_.count(root(id)) == 0;
    });
    const Node form = repeated_form(node);
    for_each_input(
        form, [&](ValueId id) { may &= written_.count(root(id)) == 0 && dynamic_.count(id) == 0; });
    return may;
  }

  // As SegmentBuilder::share_place has it, up to who reads an argument last.
  std::vector<int> places_of(const Node& node, int part) {
    std::vector<int> places;
    if (node.results.size() != 1 || node.results[0].values.size() != 1) return places;
    const ValueId result = node.results[0].values[0];
    const bool some = changes_some(node.op);
    if (result == kNoValue || dynamic_.count(result) != 0 || root(result) != result) return places;
    if (!some && !is_pointwise(node.op)) return places;
    const bool in_place = in_place_variant(node.op).has_value();
    const bool out = !some && out_variant(node.op, request_.backend).has_value();
    for (const auto& argument : node.arguments) {
      if (argument.kind != Argument::Kind::kValue || argument.values[0] == kNoValue) continue;
      const bool first = &argument == &node.arguments.front();
      if (!(out || (in_place && first))) continue;
      if (can_lie_on(node, argument.values[0], result, some)) {
        const int storage = storage_of(argument.values[0], part);
        if (storage >= 0) places.push_back(storage);
      }
    }
    return places;
  }

  bool can_lie_on(const Node& node, ValueId input, ValueId result, bool alone) const {
    const TensorType& place = graph_.value(result).type;
    const auto extent = [&](ValueId id) {
      const auto found = extents_.find(root(id));
      return found == extents_.end() ? -1 : found->second;
    };
    bool same = graph_.value(input).type.same_place(place) && extent(input) == extent(result) &&
                to_the_end_.count(root(input)) == 0;
    int reads = 0;
    for_each_input(node, [&](ValueId other) {
      if (root(other) != root(input)) return;
      same &= graph_.value(other).type.same_place(place);
      ++reads;
    });
    return same && (!alone || reads == 1);
  }

  int kind_of(const Node& node, const RecomputeModel::Operation& operation) {
    std::string key = op_name(node) + (operation.repeatable ? " again" : "");
    const auto note = [&](int storage) {
      key += ' ' + std::to_string(model_.storages[static_cast<size_t>(storage)].bytes);
    };
    for (int storage : operation.reads) note(storage);
    key += " ->";
    for (int storage : operation.makes) note(storage);
    return kinds_.emplace(key, static_cast<int>(kinds_.size())).first->second;
  }

  void stays_until(ValueId id, int part) {
    const auto found = storages_.find({root(id), chunk_of(part)});
    if (found == storages_.end()) return;
    int& until = model_.storages[found->second].until;
    until = std::max(until, part);
  }

  void find_ends() {
    const auto made_in = [&](ValueId id) {
      const auto maker = makers_.index_of(id);
      return maker ? part_of(*maker) : -1;
    };
    const auto until_its_end = [&](ValueId id) {
      if (made_in(id) >= 0) stays_until(id, made_in(id));
    };
    until_its_end(graph_.loss);
    for (const auto& metric : graph_.metrics) until_its_end(metric.value);
    for (const auto& taken : request_.taken) stays_until(taken.value, taken.part);
    for (const auto& gradient : graph_.gradients) {
      const bool goes = request_.short_gradients.count(gradient.parameter) != 0;
      if (!request_.keeps_gradients && !goes) until_its_end(gradient.value);
    }
    for (const auto& [key, index] : storages_) {
      if (to_the_end_.count(key.first) == 0) continue;
      for (size_t part = 0; part < model_.parts.size(); ++part) {
        const bool here = model_.parts[part].chunk == key.second;
        if (here) model_.storages[index].until = static_cast<int>(part);
      }
    }
  }

  const RecomputeRequest& request_;
  const Graph& graph_;
  const Makers makers_;
  RecomputeModel model_;
  std::map<std::pair<ValueId, int>, size_t> storages_;  // by root and chunk
  std::map<ValueId, int64_t> extents_;                  // by root
  std::set<ValueId> elsewhere_;                         // roots that take no place in the arena
  std::set<ValueId> written_;                           // roots
  std::set<ValueId> marked_;                            // roots
  std::set<ValueId> to_the_end_;                        // roots
  std::set<ValueId> dynamic_;                           // values made by operators
  std::map<std::string, int> kinds_;
  int taskgraph_ = -1;  // the last so far: what stands in no scope goes with it
};

}  // namespace

RecomputeModel recompute_model(const RecomputeRequest& request) { return Units(request).run(); }

}  // namespace epl

#include "sharding/slices.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "cost/node_cost.h"
#include "ops/facts.h"
#include "ops/rule_parts.h"
#include "sharding/reshard.h"
#include "sharding/slice_cuts.h"

namespace epl {
namespace {

// By value: whether it becomes a gradient or the loss by sums alone, so that nobody but the update
// ever has to add up what the devices have of it.
std::vector<bool> values_summed_at_the_end(const Graph& graph) {
  std::vector<bool> read(static_cast<size_t>(graph.value_count()), false);
  std::vector<bool> summed(read.size(), false);
  std::vector<bool> returned(read.size(), false);
  const auto at = [](ValueId id) { return static_cast<size_t>(id); };
  for (const auto& gradient : graph.gradients) returned[at(gradient.value)] = true;
  if (graph.loss != kNoValue) returned[at(graph.loss)] = true;
  std::vector<bool> only(read.size(), true);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    bool outputs = true;
    for_each_output(node, [&](ValueId id) {
      summed[at(id)] = only[at(id)] && (read[at(id)] || returned[at(id)]);
      outputs &= summed[at(id)];
    });
    const auto pattern = outputs ? pattern_of(graph, node) : std::nullopt;
    const auto ids = inputs_of(node);
    for (size_t input = 0; input < ids.size(); ++input) {
      const bool linear = pattern && std::any_of(pattern->partial->begin(), pattern->partial->end(),
                                                 [&](const auto& set) {
                                                   return std::count(set.begin(), set.end(), input);
                                                 });
      read[at(ids[input])] = true;
      only[at(ids[input])] = only[at(ids[input])] && linear;
    }
  }
  return summed;
}

class Follower {
 public:
  explicit Follower(const SliceRequest& request)
      : request_(request),
        graph_(request.graph),
        cuts_(request.graph, request.parts, request.runs),
        summed_(values_summed_at_the_end(request.graph)) {
    sharding_.parts = request.parts;
    sharding_.values.resize(static_cast<size_t>(graph_.value_count()));
    sharding_.nodes.resize(graph_.nodes.size());
  }

  Sharding run() {
    place_leaves();
    find_written();
    for (size_t i = 0; i < graph_.nodes.size(); ++i) decide(i);
    find_readers();
    for (size_t i = graph_.nodes.size(); i-- > 0;) narrow(i);
    place_results();
    describe();
    return std::move(sharding_);
  }

 private:
  Layout& layout(ValueId id) { return sharding_.values[static_cast<size_t>(id)]; }
  const TensorType& type(ValueId id) const { return graph_.value(id).type; }

  void place_leaves() {
    for (const auto& leaf : graph_.leaves) {
      leaf_storages_.insert(graph_.value(leaf.value).storage);
      const bool rows = leaf.kind == Leaf::Kind::kInput && !type(leaf.value).sizes.empty();
      if (rows) layout(leaf.value) = Layout::cut(0);
    }
  }

  // --- forwards: each node follows what it reads ------------------------------------------------

  void decide(size_t index) {
    const Node& node = graph_.nodes[index];
    check_own(node);
    std::vector<Layout> read;
    for_each_input(node, [&](ValueId id) { read.push_back(rows_of(id)); });
    note_rounding(node, read);
    const bool all_whole =
        std::all_of(read.begin(), read.end(), [](Layout each) { return each.is_whole(); });
    if (all_whole) return take(index, whole_cut(node));
    const std::vector<Cut> cuts = options(node, read);
    Cut best = whole_cut(node);
    double least = may_write(node, best) ? cost_of(node, best) : kImpossible;
    for (const Cut& cut : cuts) {
      const double cost = may_write(node, cut) ? cost_of(node, cut) : kImpossible;
      if (cost > least || (cost == least && best.letter != 0)) continue;
      least = cost;
      best = cut;
    }
    check_writes(node, least);
    const bool whole = best.letter == 0 && !makes_sums(best);
    if (whole) note_rows(node, read, cuts);
    if (whole && cuts.empty()) ++mixing_[op_name(node)];
    take(index, std::move(best));
  }

  // Sums over devices, and kernels on fewer rows, may round otherwise than the recorded run.
  void note_rounding(const Node& node, const std::vector<Layout>& read) {
    size_t input = 0;
    bool rounds = false;
    for_each_input(
        node, [&](ValueId id) { rounds |= !read[input++].is_whole() || of_rows_.count(id) != 0; });
    if (!rounds) return;
    for_each_output(node, [&](ValueId id) { of_rows_.insert(id); });
    sharding_.reads_back_rows |= node.expects.has_value();
  }

  // How the rows lie in a value: as it is cut, or as it could be, since they came through.
  Layout rows_of(ValueId id) {
    const auto found = rows_.find(id);
    return found != rows_.end() ? found->second : layout(id);
  }

  // All devices do a node as a whole: rows that come out of it can be cut again.
  void note_rows(const Node& node, const std::vector<Layout>& read, const std::vector<Cut>& cuts) {
    const auto made = outputs_of(node);
    for (size_t i = 0; i < made.size(); ++i) {
      const Layout rows =
          cuts.empty() ? cuts_.like_inputs(node, read, made[i]) : cuts[0].outputs[i];
      if (rows.is_cut()) rows_[made[i]] = rows;
    }
  }

  std::vector<Cut> options(const Node& node, const std::vector<Layout>& read) const {
    // What C++ reads back, and what decides about shapes, is that of all rows.
    if (node.expects || !values_that_decide_shape(graph_, node).empty()) return {};
    if (!request_.whole_batch_norm) {
      if (auto own = cuts_.of_batch_norm(node, read, own_)) return {*own};
    }
    return cuts_.along(node, read);
  }

  static bool makes_sums(const Cut& cut) {
    return std::any_of(cut.outputs.begin(), cut.outputs.end(),
                       [](Layout each) { return each.is_partial(); });
  }

  double cost_of(const Node& node, const Cut& cut) {
    const double seconds = estimated_seconds(graph_, node, request_.machine);
    double cost = cut.letter != 0 ? seconds / request_.parts : seconds;
    const auto ids = inputs_of(node);
    for (size_t i = 0; i < ids.size(); ++i) {
      if (brought_.count({ids[i], cut.inputs[i]}) != 0) continue;
      cost += reshard_seconds(type(ids[i]), layout(ids[i]), cut.inputs[i], request_.parts,
                              request_.machine);
    }
    return cost + cost_of_sums(node, cut);
  }

  // A sum that stays one has to be added up in the end, and may have grown until then.
  double cost_of_sums(const Node& node, const Cut& cut) const {
    if (cut.letter != 0 || !makes_sums(cut)) return 0;
    double cost = 0;
    for (ValueId id : outputs_of(node)) {
      if (summed_[static_cast<size_t>(id)]) continue;
      cost += reshard_seconds(type(id), Layout::partial(), Layout::whole(), request_.parts,
                              request_.machine);
    }
    return cost;
  }

  // What is written in place is written where it lies: it cannot be brought elsewhere first, nor
  // can what shows it. State is written alike on all devices; batch norm on slices has its own of
  // each.
  bool may_write(const Node& node, const Cut& cut) {
    const auto written = written_inputs(node);
    const auto ids = inputs_of(node);
    for (size_t i = 0; i < ids.size(); ++i) {
      if (shows_what_is_written(node, ids[i]) && cut.inputs[i] != layout(ids[i])) return false;
    }
    for (size_t i : written) {
      const bool state = leaf_storages_.count(graph_.value(ids[i]).storage) != 0;
      if (cut.inputs[i] != layout(ids[i])) return false;
      if (state && cut.letter != 0 && !cuts_.trains_batch_norm(node)) return false;
    }
    return true;
  }

  // Whether an output lies in the memory of this input, which some node writes.
  bool shows_what_is_written(const Node& node, ValueId input) const {
    const ValueId storage = graph_.value(input).storage;
    if (written_storages_.count(storage) == 0) return false;
    const auto made = outputs_of(node);
    return std::any_of(made.begin(), made.end(),
                       [&](ValueId id) { return graph_.value(id).storage == storage; });
  }

  void find_written() {
    for (const Node& node : graph_.nodes) {
      const auto ids = inputs_of(node);
      for (size_t i : written_inputs(node)) written_storages_.insert(graph_.value(ids[i]).storage);
    }
  }

  // As for_each_input counts.
  static std::vector<size_t> written_inputs(const Node& node) {
    std::vector<size_t> inputs;
    const auto written = written_arguments(node);
    size_t input = 0;
    for (size_t i = 0; i < node.arguments.size(); ++i) {
      const bool writes = std::count(written.begin(), written.end(), i) != 0;
      for (ValueId id : node.arguments[i].values) {
        if (id == kNoValue) continue;
        if (writes) inputs.push_back(input);
        ++input;
      }
    }
    return inputs;
  }

  void check_writes(const Node& node, double least) const {
    EPL_CHECK(least < kImpossible,
              concat(op_name(node),
                     written_arguments(node).empty() ? " shows a value that is written in place and"
                                                     : " writes in place into a value that",
                     " is cut over ", request_.parts, " devices otherwise than it needs it"),
              request_.asked_by, "the operator that makes a new tensor instead");
  }

  Cut whole_cut(const Node& node) const {
    return {0, std::vector<Layout>(inputs_of(node).size()),
            std::vector<Layout>(outputs_of(node).size())};
  }

  void take(size_t index, Cut cut) {
    const Node& node = graph_.nodes[index];
    const auto ids = inputs_of(node);
    for (size_t i = 0; i < ids.size(); ++i) brought_.insert({ids[i], cut.inputs[i]});
    const auto made = outputs_of(node);
    for (size_t i = 0; i < made.size(); ++i) {
      const bool moves = cut.outputs[i].is_partial() || cut.outputs[i].runs > 1;
      const bool settled = moves && request_.settled.count(made[i]) != 0;
      layout(made[i]) = settled ? Layout::whole() : cut.outputs[i];
      if (!layout(made[i]).is_whole()) rows_.erase(made[i]);
    }
    if (cut.letter == SliceCuts::kRows && SliceCuts::trains_batch_norm(node)) note_own(node, made);
    sharding_.nodes[index] = std::move(cut);
  }

  // The statistics of a batch norm are no sums: each device has its own, also of the running ones
  // until the step's end.
  void note_own(const Node& node, const std::vector<ValueId>& made) {
    if (op_name(node) != "aten::native_batch_norm") return;
    check_several_rows(node);
    own_.insert(made.begin() + 1, made.end());
    const auto ids = inputs_of(node);
    for (size_t i : written_inputs(node)) own_storages_.insert(graph_.value(ids[i]).storage);
  }

  // Of one value a variance says nothing: LibTorch refuses to train on it before it calls this.
  void check_several_rows(const Node& node) const {
    const ValueId input = inputs_of(node)[0];
    const auto& sizes = graph_.value(input).type.sizes;
    const int64_t values = graph_.value(input).type.numel() / std::max<int64_t>(sizes[1], 1);
    EPL_CHECK(values != request_.parts,
              concat("batch norm would have one value for each channel on each of ", request_.parts,
                     " devices"),
              request_.asked_by,
              "more rows a micro batch, or replicate.batch_norm = \"micro_batch\"");
  }

  void check_own(const Node& node) const {
    if (own_.empty() || SliceCuts::trains_batch_norm(node)) return;
    for_each_input(node, [&](ValueId id) { check_own(id, op_name(node) + " reads"); });
  }

  void check_own(ValueId id, const std::string& who) const {
    const bool own = own_.count(id) != 0 || own_storages_.count(graph_.value(id).storage) != 0;
    EPL_CHECK(!own,
              concat(who, " the statistics of a batch norm, of which each of ", request_.parts,
                     " devices has its own"),
              request_.asked_by, "replicate.batch_norm = \"micro_batch\"");
  }

  // --- backwards: what all readers take in pieces is made in pieces -----------------------------

  void find_readers() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      size_t input = 0;
      for_each_input(graph_.nodes[i], [&](ValueId id) { readers_[id].emplace_back(i, input++); });
    }
    for_each_returned(graph_, [&](ValueId id) { returned_.insert(id); });
  }

  // How all readers want a value that is made whole; none where they do not agree, or nobody reads
  // it.
  std::optional<Layout> wanted(ValueId id) const {
    const auto found = readers_.find(id);
    if (found == readers_.end() || returned_.count(id) != 0) return std::nullopt;
    std::optional<Layout> all;
    for (const auto& [node, input] : found->second) {
      const Layout one = sharding_.nodes[node].inputs[input];
      if (all && *all != one) return std::nullopt;
      all = one;
    }
    return all;
  }

  void narrow(size_t index) {
    const Node& node = graph_.nodes[index];
    const Cut& now = sharding_.nodes[index];
    const bool whole = now.letter == 0 && !makes_sums(now);
    if (!whole || node.expects || !written_arguments(node).empty()) return;
    if (!values_that_decide_shape(graph_, node).empty()) return;
    for (ValueId id : inputs_of(node)) {
      if (!layout(id).is_whole() || shows_what_is_written(node, id)) return;
    }
    std::vector<std::optional<Layout>> demands;
    bool any = false;
    for (ValueId id : outputs_of(node)) {
      const bool read = readers_.count(id) != 0 || returned_.count(id) != 0;
      demands.push_back(read ? wanted(id) : Layout::partial());  // partial: whatever it is
      if (!demands.back()) return;
      any |= demands.back()->is_cut();
    }
    if (!any) return;
    if (auto cut = cuts_.that_makes(node, demands)) take(index, std::move(*cut));
  }

  // --- results -----------------------------------------------------------------------------------

  void place_results() {
    if (!own_.empty()) {
      for (const auto& metric : graph_.metrics) check_own(metric.value, "a metric is");
    }
    sharding_.gradients.assign(graph_.gradients.size(), Layout::partial());
    sharding_.loss = layout_of_result(graph_.loss);
    for (const auto& metric : graph_.metrics) {
      sharding_.metrics.push_back(layout_of_result(metric.value));
    }
  }

  Layout layout_of_result(ValueId id) {
    if (id == kNoValue || layout(id).runs > 1) return Layout::whole();
    return layout(id);
  }

  void describe() {
    for (const auto& [name, count] : mixing_) {
      sharding_.remarks.push_back(concat(name, count > 1 ? concat(" (", count, " times)") : "",
                                         " looks at the rows of all ", request_.parts,
                                         " devices of a replica: each of them has them all"));
    }
  }

  const SliceRequest& request_;
  const Graph& graph_;
  const SliceCuts cuts_;
  const std::vector<bool> summed_;
  Sharding sharding_;
  std::set<ValueId> leaf_storages_;
  std::set<ValueId> written_storages_;
  std::set<std::pair<ValueId, Layout>> brought_;
  std::map<ValueId, Layout> rows_;     // of values that are whole
  std::set<ValueId> of_rows_;          // values that come from what is cut
  std::map<std::string, int> mixing_;  // operators that have all rows, with how many nodes
  std::map<ValueId, std::vector<std::pair<size_t, size_t>>> readers_;  // node, input
  std::set<ValueId> returned_;
  std::set<ValueId> own_;           // what each device has for itself
  std::set<ValueId> own_storages_;  // state that it has written so
};

}  // namespace

Sharding follow_slices(const SliceRequest& request) { return Follower(request).run(); }

}  // namespace epl

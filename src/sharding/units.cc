#include "sharding/units.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "cost/node_cost.h"
#include "ops/facts.h"
#include "sharding/follow.h"

namespace epl {
namespace {

// A parameter, its gradient and two moments, kept whole, count as so many bytes that move.
constexpr double kCopiesOfAParameter = 4;

class UnitMaker {
 public:
  explicit UnitMaker(const ShardingRequest& request)
      : request_(request),
        graph_(request.graph),
        follows_(nodes_that_follow(request)),
        values_(static_cast<size_t>(request.graph.value_count())),
        going_out_(values_going_out(request)) {}

  Units make(const std::vector<size_t>& order) {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (request_.is_inside(i)) {
        add_node(i);
      } else {
        keep_node(graph_.nodes[i]);
      }
    }
    find_leaf_layouts();
    Units result;
    for (size_t i : order) {
      if (!request_.is_inside(i)) continue;
      result.units.push_back(std::move(nodes_[i]));
      add_demands(i, result.units);
    }
    add_demands(graph_.nodes.size(), result.units);
    result.values = std::move(values_);
    return result;
  }

 private:
  const TensorType& type(ValueId id) const { return graph_.value(id).type; }

  void add_node(size_t index) {
    const Node& node = graph_.nodes[index];
    Unit unit;
    unit.index = index;
    for_each_input(node, [&](ValueId id) { unit.inputs.push_back(id); });
    for_each_output(node, [&](ValueId id) { unit.outputs.push_back(id); });
    const double seconds = estimated_seconds(graph_, node, request_.machine);
    if (request_.is_sliced(index)) {
      add_option(*request_.sliced[index], seconds / request_.parts.speedup(), unit);
      for (size_t i = 0; i < unit.outputs.size(); ++i) {
        on_slices_[unit.outputs[i]] = unit.options[0].outputs[i];
      }
    } else {
      add_option(
          {0, std::vector<Layout>(unit.inputs.size()), std::vector<Layout>(unit.outputs.size())},
          seconds, unit);
    }
    if (!request_.is_sliced(index) || follows_[index]) {
      for (Cut& cut : cuts_of(graph_, node, request_.parts)) {
        if (!can_be_searched(cut)) continue;
        const bool divides = cut.letter != 0;
        const double helped = divides ? communication_inside(node, cut) : 0;
        add_option(std::move(cut),
                   helped + (divides ? seconds / request_.parts.speedup() : seconds), unit);
      }
    }
    for (const auto& option : unit.options) note_made(unit, option);
    nodes_.push_back(std::move(unit));
  }

  // Tensors of more dimensions stay whole in those behind.
  static bool can_be_searched(const Cut& cut) {
    const auto near = [](const Layout& layout) { return layout.dim < kDimsThatAreCut; };
    return std::all_of(cut.inputs.begin(), cut.inputs.end(), near) &&
           std::all_of(cut.outputs.begin(), cut.outputs.end(), near);
  }

  // Outside of the stage everything is whole.
  void keep_node(const Node& node) {
    for_each_output(node, [&](ValueId id) {
      values_[static_cast<size_t>(id)].made = {Layout::whole()};
      values_[static_cast<size_t>(id)].price = {{}};
    });
    for_each_input(node, [&](ValueId id) { read_outside_.insert(id); });
    nodes_.emplace_back();
  }

  void add_option(Cut cut, double seconds, Unit& unit) {
    UnitOption option;
    option.inputs = cut.inputs;
    option.outputs = cut.outputs;
    option.seconds = seconds;
    option.cut = unit.cuts.size();
    unit.cuts.push_back(std::move(cut));
    unit.options.push_back(std::move(option));
  }

  // Of operators that talk while they run (softmax over cut classes): what stands for them tells.
  double communication_inside(const Node& node, const Cut& cut) const {
    const auto pattern = pattern_of(graph_, node);
    if (!pattern || pattern->expanded.find(cut.letter) == std::string::npos) return 0;
    Graph scratch;
    LocalNode at{graph_, node, cut, request_.parts, 0, {}};
    for_each_input(node, [&](ValueId id) {
      TensorType local = type(id);
      local.sizes = local_sizes(local.sizes, cut.inputs[at.inputs.size()], request_.parts, 0);
      local.strides = contiguous_strides(local.sizes);
      local.offset = 0;
      at.inputs.push_back(scratch.add_value(local));
    });
    Emitter emitter(scratch);
    emit_local(at, emitter);
    double seconds = 0;
    for (const auto& made : scratch.nodes) {
      if (!is_collective(made.op)) continue;
      const TensorType& moved = scratch.value(made.results[0].values[0]).type;
      seconds += reshard_seconds(moved, Layout::partial(), Layout::whole(), request_.parts,
                                 request_.machine);
    }
    return seconds;
  }

  void note_made(const Unit& unit, const UnitOption& option) {
    for (size_t i = 0; i < unit.outputs.size(); ++i) {
      ValueFacts& facts = values_[static_cast<size_t>(unit.outputs[i])];
      if (std::find(facts.made.begin(), facts.made.end(), option.outputs[i]) != facts.made.end()) {
        continue;
      }
      facts.made.push_back(option.outputs[i]);
      facts.price.emplace_back();
    }
  }

  std::vector<Layout> cuts_of_type(const TensorType& type) const {
    std::vector<Layout> layouts;
    const size_t dims = std::min<size_t>(type.sizes.size(), kDimsThatAreCut);
    for (size_t dim = 0; dim < dims; ++dim) {
      if (type.sizes[dim] >= request_.parts.size) {
        layouts.push_back(Layout::cut(static_cast<int>(dim)));
      }
    }
    return layouts;
  }

  std::set<ValueId> written_leaves() const {
    std::set<ValueId> storages;
    for (const auto& node : graph_.nodes) {
      for (size_t i : written_arguments(node)) {
        for (ValueId id : node.arguments[i].values) {
          if (id != kNoValue) storages.insert(graph_.value(id).storage);
        }
      }
    }
    return storages;
  }

  void find_leaf_layouts() {
    const std::set<ValueId> written = written_leaves();
    for (size_t i = 0; i < graph_.leaves.size(); ++i) {
      const Leaf& leaf = graph_.leaves[i];
      ValueFacts& facts = values_[static_cast<size_t>(leaf.value)];
      const bool is_written = written.count(graph_.value(leaf.value).storage) != 0;
      const bool made_cut = !request_.made_cut.empty() && request_.made_cut[i];
      const bool parameter = leaf.kind == Leaf::Kind::kParameter;
      const bool stays_whole = parameter && !made_cut && on_slices_alone(leaf.value);
      if (read_outside_.count(leaf.value) != 0 || stays_whole) {
        facts.made = {Layout::whole()};
        facts.stays = parameter || is_written;
      } else if (parameter || is_written) {
        facts.stays = true;
        if (!made_cut) facts.made = {Layout::whole()};
        for (Layout cut : cuts_of_type(type(leaf.value))) {
          if (!made_cut || cut.dim == 0) facts.made.push_back(cut);
        }
      } else if (leaf.kind == Leaf::Kind::kInput) {
        facts.made = input_layouts(leaf);
      } else {
        facts.made = {Layout::whole()};
      }
      const bool has_home = !request_.homes.empty() && request_.homes[i];
      if (parameter && has_home) {
        check_home(leaf);
        facts.made = {*request_.homes[i]};
      }
      facts.price.assign(facts.made.size(), {});
      if (facts.stays) keep_views(leaf.value);
      const bool priced = parameter && facts.made.size() > 1;
      if (priced) facts.price[0] = price_of_whole(type(leaf.value));
    }
  }

  // Other stages take a parameter whole, so that gradients of its pieces and theirs could not be
  // added.
  void check_home(const Leaf& leaf) const {
    const auto index = static_cast<size_t>(&leaf - graph_.leaves.data());
    EPL_CHECK(!request_.homes[index]->is_cut() || read_outside_.count(leaf.value) == 0,
              concat("`", leaf.name,
                     "` was cut over devices by an earlier step, and another stage of this one "
                     "uses it as well"),
              request_.asked_by,
              "steps that use it in the same stages, or all devices on one worker");
  }

  // Under replicate parameters are whole, whoever else would have them cut.
  bool on_slices_alone(ValueId leaf) const {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      bool reads = false;
      for_each_input(graph_.nodes[i], [&](ValueId id) { reads |= id == leaf; });
      if (reads && !request_.is_sliced(i)) return false;
    }
    return !request_.sliced.empty();
  }

  // A view of a parameter is the parameter.
  void keep_views(ValueId leaf) {
    for (ValueId id = 0; id < graph_.value_count(); ++id) {
      const bool view = graph_.value(id).storage == graph_.value(leaf).storage;
      if (view) values_[static_cast<size_t>(id)].stays = true;
    }
  }

  std::vector<Layout> input_layouts(const Leaf& leaf) const {
    const TensorType& input = type(leaf.value);
    if (input.sizes.empty()) return {Layout::whole()};
    if (request_.gathers_inputs()) return {Layout::whole()};
    if (request_.inputs_are_cut) return {Layout::cut(0)};
    if (input.sizes[0] < request_.parts.size) return {Layout::whole()};
    return {Layout::whole(), Layout::cut(0)};
  }

  LayoutPrice price_of_whole(const TensorType& type) const {
    const auto bytes = static_cast<double>(type.numel() * type.item_bytes());
    const double memory = kCopiesOfAParameter * bytes * (request_.parts.size - 1) /
                          request_.parts.size / request_.machine.link.bytes_per_second;
    return {memory, type.sizes.size() >= 2 ? 1 : 0};
  }

  // Those for what the node makes; after the last node, those for leaves.
  void add_demands(size_t node, std::vector<Unit>& units) const {
    std::set<ValueId> here;
    if (node < graph_.nodes.size()) {
      for_each_output(graph_.nodes[node], [&](ValueId id) { here.insert(id); });
    } else {
      for (const auto& leaf : graph_.leaves) here.insert(leaf.value);
    }
    for (size_t i = 0; i < graph_.gradients.size(); ++i) {
      if (here.count(graph_.gradients[i].value) != 0) units.push_back(gradient_demand(i));
    }
    if (here.count(graph_.loss) != 0)
      units.push_back(whole_demand(Unit::Kind::kLoss, 0, graph_.loss));
    for (size_t i = 0; i < graph_.metrics.size(); ++i) {
      const ValueId id = graph_.metrics[i].value;
      if (here.count(id) != 0) units.push_back(whole_demand(Unit::Kind::kMetric, i, id));
    }
    for (ValueId id : going_out_) {
      if (here.count(id) != 0) units.push_back(whole_demand(Unit::Kind::kGoesOut, 0, id));
    }
  }

  Unit gradient_demand(size_t index) const {
    const Gradient& gradient = graph_.gradients[index];
    const ValueId parameter = graph_.leaves[static_cast<size_t>(gradient.parameter)].value;
    Unit unit;
    unit.kind = Unit::Kind::kGradient;
    unit.index = index;
    unit.inputs = {gradient.value, parameter};
    for (Layout layout : values_[static_cast<size_t>(parameter)].made) {
      unit.options.push_back({{layout, layout}, {}, 0, 0});
    }
    // The update sums what devices have of it.
    const double summed = reshard_seconds(type(gradient.value), Layout::partial(), Layout::whole(),
                                          request_.parts, request_.machine) -
                          request_.machine.link.seconds_per_call;
    unit.options.push_back({{Layout::partial(), Layout::whole()}, {}, summed, 0});
    return unit;
  }

  // What slices have of a result is put together by whoever reads it: addends, or rows.
  Unit whole_demand(Unit::Kind kind, size_t index, ValueId id) const {
    Unit unit;
    unit.kind = kind;
    unit.index = index;
    unit.inputs = {id};
    unit.options.push_back({{Layout::whole()}, {}, 0, 0});
    const auto on_slices = on_slices_.find(id);
    if (kind != Unit::Kind::kGoesOut && on_slices != on_slices_.end()) {
      unit.options = {{{on_slices->second}, {}, 0, 0}};
    }
    return unit;
  }

  const ShardingRequest& request_;
  const Graph& graph_;
  const std::vector<bool> follows_;
  std::vector<ValueFacts> values_;
  std::vector<Unit> nodes_;              // empty ones for nodes outside
  std::map<ValueId, Layout> on_slices_;  // of what nodes on slices make
  std::set<ValueId> read_outside_;
  const std::set<ValueId> going_out_;
};

}  // namespace

Units make_units(const ShardingRequest& request, const std::vector<size_t>& order) {
  return UnitMaker(request).make(order);
}

}  // namespace epl

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "base/check.h"
#include "base/text.h"
#include "sharding/order.h"
#include "sharding/search.h"
#include "sharding/sharding.h"

namespace epl {
namespace {

Sharding sharding_of(const ShardingRequest& request, const Units& units, const Decision& decision) {
  const Graph& graph = request.graph;
  Sharding result;
  result.parts = request.parts;
  result.values = decision.values;
  result.nodes.resize(graph.nodes.size());
  result.gradients.resize(graph.gradients.size());
  result.metrics.resize(graph.metrics.size());
  for (size_t i = 0; i < units.units.size(); ++i) {
    const Unit& unit = units.units[i];
    const UnitOption& option = unit.options[decision.options[i]];
    switch (unit.kind) {
      case Unit::Kind::kNode:
        result.nodes[unit.index] = unit.cuts[option.cut];
        break;
      case Unit::Kind::kGradient:
        result.gradients[unit.index] = option.inputs[0];
        break;
      case Unit::Kind::kLoss:
        result.loss = option.inputs[0];
        break;
      case Unit::Kind::kMetric:
        result.metrics[unit.index] = option.inputs[0];
        break;
      case Unit::Kind::kGoesOut:
        break;
    }
  }
  return result;
}

// A tensor of the batch that nobody reads is loaded all the same, with the rows that are there.
void place_unread_inputs(const ShardingRequest& request, const Units& units, Sharding& sharding) {
  std::set<ValueId> read;
  for (const auto& node : request.graph.nodes) {
    for_each_input(node, [&](ValueId id) { read.insert(id); });
  }
  for_each_returned(request.graph, [&](ValueId id) { read.insert(id); });
  for (const auto& leaf : request.graph.leaves) {
    if (leaf.kind != Leaf::Kind::kInput || read.count(leaf.value) != 0) continue;
    const auto at = static_cast<size_t>(leaf.value);
    sharding.values[at] = units.values[at].made.at(0);
  }
}

// How the parameters lie: the first thing that anybody wants to know.
void describe_parameters(const ShardingRequest& request, Sharding& sharding) {
  std::set<ValueId> used;
  for (size_t i = 0; i < request.graph.nodes.size(); ++i) {
    if (!request.is_inside(i)) continue;
    for_each_input(request.graph.nodes[i], [&](ValueId id) { used.insert(id); });
  }
  for (const auto& leaf : request.graph.leaves) {
    if (leaf.kind != Leaf::Kind::kParameter || used.count(leaf.value) == 0) continue;
    const TensorType& type = request.graph.value(leaf.value).type;
    const Layout layout = sharding.values[static_cast<size_t>(leaf.value)];
    std::string text = concat("`", leaf.name, "` ", print_type(type), " ");
    if (layout.is_cut()) {
      text +=
          concat("is cut in dim ", layout.dim, ": ",
                 join(pieces_of(type.sizes[static_cast<size_t>(layout.dim)], request.parts), ", "));
    } else {
      text += "is whole on every device";
      const int64_t largest =
          type.sizes.empty() ? 1 : *std::max_element(type.sizes.begin(), type.sizes.end());
      if (largest < request.parts.size) {
        text += concat(": no dimension has ", request.parts.size, " elements to be cut");
      }
    }
    sharding.remarks.push_back(std::move(text));
  }
}

// Operators that every device does as a whole, for want of a rule.
void describe_unknown(const ShardingRequest& request, Sharding& sharding) {
  std::map<std::string, int> unknown;
  for (size_t i = 0; i < request.graph.nodes.size(); ++i) {
    const Node& node = request.graph.nodes[i];
    if (request.is_inside(i) && !request.is_sliced(i) && find_rule(node.op) == nullptr)
      ++unknown[op_name(node)];
  }
  for (const auto& [name, count] : unknown) {
    sharding.remarks.push_back(concat(name, count > 1 ? concat(" (", count, " times)") : "",
                                      " has no rule: every device does all of it"));
  }
  for (size_t i = 0; i < request.graph.nodes.size(); ++i) {
    const Node& node = request.graph.nodes[i];
    if (!node.expects || !request.is_inside(i)) continue;
    sharding.remarks.push_back(
        concat(op_name(node), " reads a value back into C++: it is made whole on every device"));
  }
}

void describe_nothing_cut(const ShardingRequest& request, Sharding& sharding) {
  bool free = false;
  bool any = false;
  for (size_t i = 0; i < sharding.nodes.size(); ++i) {
    if (!request.is_inside(i)) continue;
    free |= !request.is_sliced(i);
    any |= !request.is_sliced(i) && sharding.nodes[i].letter != 0;
  }
  if (!free || any) return;
  sharding.remarks.push_back(concat("nothing can be cut over ", request.parts.size,
                                    " devices: every device does all of it (", request.asked_by,
                                    ")"));
}

std::string describe_demand(const ShardingRequest& request, const Unit& unit) {
  const Graph& graph = request.graph;
  switch (unit.kind) {
    case Unit::Kind::kGradient: {
      const Gradient& gradient = graph.gradients[unit.index];
      return concat("the gradient of `", graph.leaves[static_cast<size_t>(gradient.parameter)].name,
                    "`");
    }
    case Unit::Kind::kLoss:
      return "the loss";
    case Unit::Kind::kMetric:
      return concat("the metric `", graph.metrics[unit.index].name, "`");
    default:
      return "what goes to another stage";
  }
}

// The search ends at a unit that no view has a legal option for.
[[noreturn]] void throw_impossible(const ShardingRequest& request, const Units& units, size_t at) {
  const Unit& unit = units.units[std::min(at, units.units.size() - 1)];
  const std::string what = unit.kind == Unit::Kind::kNode ? op_name(request.graph.nodes[unit.index])
                                                          : describe_demand(request, unit);
  const bool has_homes = std::any_of(request.homes.begin(), request.homes.end(),
                                     [](const auto& home) { return home.has_value(); });
  if (has_homes) {
    throw Error(concat("batches of this shape cannot be trained on with the parameters as the step "
                       "before has cut them: ",
                       what, " needs them otherwise"),
                request.asked_by,
                "batches of this shape from the first step on, or all devices on one worker");
  }
  throw Error(concat("the step cannot be cut over ", request.parts.size, " devices: ", what,
                     " reads or writes something that no device has as it needs it"),
              request.asked_by,
              "that operator outside of the split scope, or state that the step writes made and "
              "used in one scope");
}

}  // namespace

std::set<ValueId> values_going_out(const ShardingRequest& request) {
  std::set<ValueId> made;
  std::set<ValueId> read;
  for (size_t i = 0; i < request.graph.nodes.size(); ++i) {
    const Node& node = request.graph.nodes[i];
    if (request.is_inside(i)) {
      for_each_output(node, [&](ValueId id) { made.insert(id); });
    } else {
      for_each_input(node, [&](ValueId id) { read.insert(id); });
    }
  }
  std::set<ValueId> out;
  std::set_intersection(made.begin(), made.end(), read.begin(), read.end(),
                        std::inserter(out, out.end()));
  return out;
}

Sharding choose_layouts(const ShardingRequest& request) {
  const Units units = make_units(request, order_by_open_values(request.graph));
  const Decision decision = search_layouts(request, units);
  if (decision.seconds >= kImpossible) throw_impossible(request, units, decision.options.size());
  Sharding sharding = sharding_of(request, units, decision);
  place_unread_inputs(request, units, sharding);
  describe_parameters(request, sharding);
  describe_unknown(request, sharding);
  describe_nothing_cut(request, sharding);
  if (!decision.complete) {
    sharding.remarks.push_back(
        concat("the search followed the cheapest ", kMostViews,
               " ways at a time: this one is right, a cheaper one may exist"));
  }
  return sharding;
}

}  // namespace epl

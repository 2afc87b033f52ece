#include "search/block_text.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "layout/constant_text.h"

namespace epl {

Positions positions_of(const Graph& graph) {
  std::map<int, std::vector<int>> by_call;
  int call = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].origin.call >= 0) call = graph.nodes[i].origin.call;
    by_call[call].push_back(static_cast<int>(i));
  }
  Positions positions;
  for (auto& [number, nodes] : by_call) positions.push_back(std::move(nodes));
  return positions;
}

GraphUses::GraphUses(const Graph& graph, const Positions& positions)
    : positions_(graph.nodes.size(), 0),
      makers_(static_cast<size_t>(graph.value_count()), -1),
      readers_(makers_.size()),
      returned_(makers_.size()),
      leaves_(makers_.size(), nullptr) {
  for (size_t position = 0; position < positions.size(); ++position) {
    for (const int node : positions[position]) {
      positions_[static_cast<size_t>(node)] = static_cast<int>(position);
    }
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int node = static_cast<int>(i);
    for_each_input(graph.nodes[i],
                   [&](ValueId id) { readers_[static_cast<size_t>(id)].push_back(node); });
    for_each_output(graph.nodes[i], [&](ValueId id) { makers_[static_cast<size_t>(id)] = node; });
  }
  for (const Leaf& leaf : graph.leaves) leaves_[static_cast<size_t>(leaf.value)] = &leaf;
  const auto add = [&](ValueId id, const char* what) {
    if (id != kNoValue) returned_[static_cast<size_t>(id)] += what;
  };
  add(graph.loss, " loss");
  for (const Metric& metric : graph.metrics) add(metric.value, " metric");
  for (const Gradient& gradient : graph.gradients) add(gradient.value, " gradient");
}

namespace {

// Names the values of a part as they are met.
class BlockPrinter {
 public:
  BlockPrinter(const Graph& graph, const GraphUses& uses, int begin, int end)
      : graph_(graph), uses_(uses), begin_(begin), end_(end) {}

  BlockText print(std::vector<int> nodes) {
    std::sort(nodes.begin(), nodes.end());  // as they run
    for (const int node : nodes) {
      for_each_output(at(node), [&](ValueId id) {
        made_.emplace(id, static_cast<int>(made_.size()));
        outputs_.push_back(id);
      });
    }
    for (const int node : nodes) print_node(node);
    print_outputs();
    print_gradients(nodes);
    return std::move(block_);
  }

 private:
  const Node& at(int node) const { return graph_.nodes[static_cast<size_t>(node)]; }

  bool is_inside(int node) const {
    return uses_.position_of(node) >= begin_ && uses_.position_of(node) < end_;
  }

  // "%3": made inside; "#2": from outside, with its type where it is met first.
  std::string name_of(ValueId id) {
    if (id == kNoValue) return "_";
    const auto made = made_.find(id);
    if (made != made_.end()) return concat("%", made->second);
    const auto [place, is_new] = outside_.emplace(id, static_cast<int>(outside_.size()));
    std::string name = concat("#", place->second);
    if (!is_new) return name;
    name += concat(":", print_type(graph_.value(id).type), " ", kind_of(id));
    const ValueId storage = graph_.value(id).storage;
    if (storage != id) name += concat(" @", name_of(storage));
    return name;
  }

  std::string kind_of(ValueId id) {
    const Leaf* leaf = uses_.leaf(id);
    if (leaf == nullptr) {
      ++block_.open_values;
      return at(uses_.maker(id)).phase == Phase::kForward ? "made forward" : "made backward";
    }
    if (leaf->kind == Leaf::Kind::kParameter) ++block_.parameters;
    return concat("leaf ", static_cast<int>(leaf->kind));
  }

  void print_argument(const Argument& argument) {
    std::string& text = block_.text;
    if (argument.kind == Argument::Kind::kConstant) {
      text += " " + print_constant(argument.constant);
      return;
    }
    text += argument.kind == Argument::Kind::kList ? " [" : " ";
    for (const ValueId id : argument.values) text += name_of(id) + ",";
    if (argument.kind == Argument::Kind::kList) text += "]";
  }

  void print_node(int number) {
    const Node& node = at(number);
    std::string& text = block_.text;
    text += concat(uses_.position_of(number) - begin_, " ", static_cast<int>(node.phase), " ",
                   node.taskgraph, " ", op_name(node));
    for (const Argument& argument : node.arguments) print_argument(argument);
    if (node.expects) text += " expects " + print_constant(*node.expects);
    text += " ->";
    for (const Result& result : node.results) {
      for (const ValueId id : result.values) {
        text += " " + name_of(id);
        if (id == kNoValue) continue;
        text += ":" + print_type(graph_.value(id).type);
        const ValueId storage = graph_.value(id).storage;
        if (storage != id) text += "@" + name_of(storage);
      }
      text += ";";
    }
    text += "\n";
  }

  void print_outputs() {
    for (const ValueId id : outputs_) {
      bool forward = false;
      bool backward = false;
      for (const int reader : uses_.readers(id)) {
        if (is_inside(reader)) continue;
        (at(reader).phase == Phase::kForward ? forward : backward) = true;
      }
      const std::string& returned = uses_.returned_as(id);
      if (!forward && !backward && returned.empty()) continue;
      block_.text += concat("out ", name_of(id), forward ? " forward" : "",
                            backward ? " backward" : "", returned, "\n");
    }
  }

  // Which parameter a gradient is of; gradients of a parameter that is read here may be made
  // elsewhere, and the other way round.
  void print_gradients(const std::vector<int>& nodes) {
    std::map<ValueId, ValueId> here;  // by value, so that the order is that of the step
    for (const Gradient& gradient : graph_.gradients) {
      const ValueId parameter = graph_.leaves[static_cast<size_t>(gradient.parameter)].value;
      if (made_.count(gradient.value) > 0 || outside_.count(parameter) > 0) {
        here.emplace(gradient.value, parameter);
      }
    }
    for (const auto& [gradient, parameter] : here) {
      block_.text += concat("gradient ", name_of(gradient), " of ", name_of(parameter), "\n");
    }
    block_.text += concat(nodes.size(), " nodes\n");
  }

  const Graph& graph_;
  const GraphUses& uses_;
  const int begin_;
  const int end_;
  std::map<ValueId, int> made_;
  std::vector<ValueId> outputs_;
  std::map<ValueId, int> outside_;
  BlockText block_;
};

}  // namespace

BlockText block_text(const Graph& graph, const GraphUses& uses, const Positions& positions,
                     int begin, int end) {
  std::vector<int> nodes;
  for (int position = begin; position < end; ++position) {
    const std::vector<int>& of_position = positions[static_cast<size_t>(position)];
    nodes.insert(nodes.end(), of_position.begin(), of_position.end());
  }
  return BlockPrinter(graph, uses, begin, end).print(std::move(nodes));
}

}  // namespace epl

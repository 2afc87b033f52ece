#include "cost/node_cost.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "cost/node_work.h"
#include "ops/facts.h"

namespace epl {

double NodeCosts::total() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

double estimated_flops(const Graph& graph, const Node& node) { return work_of(graph, node).flops; }

double estimated_seconds(const Graph& graph, const Node& node, const Machine& machine) {
  const NodeWork work = work_of(graph, node);
  if (work.kind == OperatorCost::Kind::kFree) return 0;
  const DeviceSpeed& device = machine.device;
  // Rows have the seconds of a device as it is by default.
  const double slower = DeviceSpeed().flops_per_second / device.flops_per_second;
  const double each = work.seconds_per_element * slower;
  const double wide = c10::elementSize(work.dtype) == 8 ? 2 : 1;  // half fit into a vector
  const double arithmetic = work.flops * (wide * work.slower_by);
  return device.seconds_per_call +
         std::max({arithmetic / device.flops_per_second, work.bytes / device.bytes_per_second,
                   each * work.elements});
}

namespace {

// The same for operators that do the same work.
std::string signature_of(const Graph& graph, const Node& node) {
  std::string text = op_name(node);
  for_each_input(node, [&](ValueId id) { text += " " + print_type(graph.value(id).type); });
  text += " ->";
  for_each_output(node, [&](ValueId id) { text += " " + print_type(graph.value(id).type); });
  return text;
}

double median(std::vector<double>& times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>((times.size() - 1) / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

// The recorded times of nodes that are alike, made one.
std::map<std::string, double> typical_times(const Graph& graph) {
  std::map<std::string, std::vector<double>> times;
  for (const Node& node : graph.nodes) {
    if (node.origin.seconds > 0) times[signature_of(graph, node)].push_back(node.origin.seconds);
  }
  std::map<std::string, double> typical;
  for (auto& [signature, recorded] : times) typical[signature] = median(recorded);
  return typical;
}

}  // namespace

NodeCosts node_costs(const Graph& graph, const Machine& machine) {
  const std::map<std::string, double> typical = typical_times(graph);
  NodeCosts costs;
  for (const Node& node : graph.nodes) {
    if (is_view(graph, node)) {
      costs.seconds.push_back(0);
      continue;
    }
    const auto time = typical.find(signature_of(graph, node));
    costs.seconds.push_back(time == typical.end() ? estimated_seconds(graph, node, machine)
                                                  : time->second);
  }
  costs.measured = !typical.empty();
  return costs;
}

bool take_shorter_times(Graph& graph, const Graph& again) {
  const auto same = [](const Node& a, const Node& b) {
    return a.op.operator_name() == b.op.operator_name() && a.origin.call == b.origin.call &&
           a.phase == b.phase;
  };
  if (!std::equal(graph.nodes.begin(), graph.nodes.end(), again.nodes.begin(), again.nodes.end(),
                  same)) {
    return false;
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    double& seconds = graph.nodes[i].origin.seconds;
    seconds = std::min(seconds, again.nodes[i].origin.seconds);
  }
  return true;
}

}  // namespace epl

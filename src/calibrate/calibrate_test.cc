#include "calibrate/calibrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "calibrate/measure_links.h"
#include "calibrate/node_timer.h"
#include "config/cluster_file.h"
#include "cost/cost_model.h"
#include "ir/text.h"

namespace epl {
namespace {

const char* const kStep =
    "graph\n  %0: f32[64,128] = input 0\n  %1: f32[128,32] = input 1\n"
    "  %2: i64[64] = input 2\n"
    "  %3: f32[64,32] = aten::mm(%0, %1) {forward}\n"
    "  %4: f32[64,32] = aten::relu(%3) {forward}\n"
    "  %5: f32[64,32] = aten::relu(%4) {forward}\n"
    "  %6: f32[64,32] = aten::index_select(%5, 0, %2) {forward}\n"
    "  %7: f32[64,64] = aten::cat([%6, %5], 1) {forward}\n"
    "  %8: f32[64,64] = aten::bernoulli.p(%7, 0.5, none) {forward}\n"
    "  %9: f32[] = aten::sum(%8, none) {forward}\n"
    "  return loss %9\n";

void expect_positive(double value, const std::string& what) {
  EXPECT_TRUE(std::isfinite(value) && value > 0) << what << ": " << value;
}

TEST(Calibrate, GivesAClusterAndCostsThatCanBeUsed) {
  const Graph graph = parse_graph(kStep);
  CalibrateOptions options;
  options.quick = true;
  options.graph = &graph;
  std::vector<std::string> said;
  options.progress = [&](const std::string& line) { said.push_back(line); };
  const Calibration found = calibrate(options);
  EXPECT_GT(said.size(), 5u);

  const std::string printed = print_cluster(found.cluster);
  const ClusterMap map = parse_cluster(printed, "this machine", "a test");
  EXPECT_EQ(print_cluster(map.description()), printed);
  const DeviceKind& core = map.description().kinds.at(0);
  expect_positive(core.flops_of("f32"), "flops");
  expect_positive(core.memory_gbps, "memory");
  expect_positive(core.call_us, "call");
  EXPECT_GT(core.flops_of("f32"), 1e8);
  EXPECT_LT(core.flops_of("f32"), 1e13);
  for (const LinkKind& link : map.description().links) {
    expect_positive(link.gbps, link.name);
    expect_positive(link.us, link.name);
  }
  expect_positive(map.description().hosts.at(0).memory_gbps, "memory of the host");

  const std::string costs = print_cost_table(found.costs);
  const CostTable table = parse_cost_table(costs, "costs", "a test");
  EXPECT_EQ(print_cost_table(table), costs);
  EXPECT_EQ(table.machine.at("threads"), "1");
  for (const auto& [family, line] : table.families) {
    expect_positive(line.seconds_of(1e6), family);
  }
  const CostModel model(map, {{"core", table}});
  for (const Node& node : graph.nodes) {
    const Cost cost = model.of_op(op_signature(graph, node), core);
    expect_positive(cost.seconds, op_name(node));
    const bool drawn = op_name(node) == "aten::bernoulli.p";
    EXPECT_EQ(cost.source == CostSource::kMeasured, !drawn) << op_name(node);
  }
  const Cost reduced =
      model.of_collective({Collective::kAllReduce, 100'000}, model.group(0, map.devices(), 1));
  expect_positive(reduced.seconds, "all_reduce");
  EXPECT_EQ(reduced.source == CostSource::kMeasured, map.devices() == 2);
  expect_positive(model.of_update({"adam", 2}, 1000, 2, core).seconds, "update");
}

TEST(NodeTimer, TimesEachSignatureOnce) {
  const Graph graph = parse_graph(kStep);
  CostTable table;
  // mm, relu, index_select, cat and sum; the second relu is the first one again.
  EXPECT_EQ(time_operators(graph, quick_timing(), table), 5);
  EXPECT_EQ(time_operators(graph, quick_timing(), table), 0);
  EXPECT_EQ(table.operators.count("aten::relu f32[64,32] -> f32[64,32]"), 1u);
}

TEST(NodeTimer, TakesOperandsAsTheyLie) {
  const Graph graph = parse_graph(
      "graph\n  %0: f32[8,16]{1,8} = input 0\n  %1: f32[8,16]{0,1} = input 1\n"
      "  %2: f32[8,16] = aten::add.Tensor(%0, %1, 1) {forward}\n  return loss %2\n");
  EXPECT_GT(seconds_of_node(graph, graph.nodes.back(), quick_timing()).value(), 0);
}

TEST(MeasuredLinks, HaveATimeForEachCallAndSize) {
  const std::vector<CoreShare> cores = share_cores(allowed_cores(), 1);
  for (const LinkAlgorithm algorithm :
       {LinkAlgorithm::kThreads, LinkAlgorithm::kSharedMemory, LinkAlgorithm::kDirect}) {
    const std::vector<CollectiveTime> times =
        measure_collectives(algorithm, 3, {1 << 10, 1 << 16}, cores, quick_timing());
    EXPECT_EQ(times.size(), 12u);
    for (const CollectiveTime& time : times) {
      expect_positive(time.seconds, collective_names()[static_cast<size_t>(time.collective)]);
      EXPECT_EQ(time.members, 3);
    }
  }
}

}  // namespace
}  // namespace epl

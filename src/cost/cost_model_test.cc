#include "cost/cost_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "config/cluster_file.h"
#include "config/test_environment.h"
#include "cost/node_cost.h"
#include "cost/pools.h"
#include "ir/text.h"
#include "layout/dtype_names.h"

namespace epl {
namespace {

using ::testing::HasSubstr;

OpSignature last_signature(const std::string& lines, const std::string& returned) {
  const Graph graph = parse_graph("graph\n" + lines + "  return loss " + returned + "\n");
  return op_signature(graph, graph.nodes.back());
}

OpSignature product(int64_t m, int64_t n, int64_t k, const std::string& type = "f32") {
  return last_signature(
      concat("  %0: ", type, "[", m, ",", k, "] = input 0\n  %1: ", type, "[", k, ",", n,
             "] = input 1\n  %2: ", type, "[", m, ",", n, "] = aten::mm(%0, %1) {forward}\n"),
      "%2");
}

OpSignature relu(int64_t elements) {
  return last_signature(concat("  %0: f32[", elements, "] = input 0\n  %1: f32[", elements,
                               "] = aten::relu(%0) {forward}\n"),
                        "%1");
}

const char* const kTwoLevels = R"({
 "kinds": {"core": {"flops": {"f32": 100e9}, "memory_gib": 8, "memory_gbps": 20, "call_us": 2}},
 "links": {"threads": {"gbps": 10, "us": 5, "algorithm": "threads"},
           "tcp": {"gbps": 1, "us": 50, "message_us": 1}},
 "hosts": [{"count": 8, "devices": [{"kind": "core", "count": 4}], "inside": "threads",
            "cores": 4, "memory_gbps": 25}],
 "levels": [{"hosts": 8, "link": "tcp"}], "workers": "host"})";

CostModel two_levels() { return CostModel(parse_cluster(kTwoLevels, "two", "a test"), {}); }

const DeviceKind& first_kind(const CostModel& model) {
  return model.map().description().kinds.front();
}

TEST(OpSignature, IsEqualWhereTheWorkIs) {
  EXPECT_EQ(product(2, 3, 5).text, "aten::mm f32[2,5] f32[5,3] -> f32[2,3]");
  const std::string leaf = "  %0: f32[4,8] = input 0\n";
  const auto text = [&](const std::string& line) { return last_signature(leaf + line, "%1").text; };
  // A number that is calculated with is any number.
  EXPECT_EQ(text("  %1: f32[4,8] = aten::add.Scalar(%0, 2, 1) {forward}\n"),
            text("  %1: f32[4,8] = aten::add.Scalar(%0, 3, 1) {forward}\n"));
  // Which dimension is summed is another work.
  EXPECT_NE(text("  %1: f32[4] = aten::sum.dim_IntList(%0, [1], false, _) {forward}\n"),
            text("  %1: f32[8] = aten::sum.dim_IntList(%0, [0], false, _) {forward}\n"));
  EXPECT_NE(text("  %1: f32[4,8] = aten::softmax.int(%0, 0, _) {forward}\n"),
            text("  %1: f32[4,8] = aten::softmax.int(%0, 1, _) {forward}\n"));
  EXPECT_NE(relu(8).text, relu(9).text);
}

TEST(OpSignature, KnowsTheSizesOfProducts) {
  const ProductSizes mm = product(2, 3, 5).work.product;
  EXPECT_EQ(mm.batch, 1);
  EXPECT_EQ(mm.m, 2);
  EXPECT_EQ(mm.n, 3);
  EXPECT_EQ(mm.k, 5);
  const ProductSizes bmm = last_signature(
                               "  %0: f32[4,2,3] = input 0\n"
                               "  %1: f32[4,3,5] = input 1\n"
                               "  %2: f32[4,2,5] = aten::bmm(%0, %1) {forward}\n",
                               "%2")
                               .work.product;
  EXPECT_EQ(bmm.batch, 4);
  EXPECT_EQ(bmm.m, 2);
  EXPECT_EQ(bmm.n, 5);
  EXPECT_EQ(bmm.k, 3);
  EXPECT_EQ(relu(8).work.product.batch, 0);
}

TEST(CostModel, GoesByPeaksWhereNothingWasMeasured) {
  const CostModel model = two_levels();
  const Cost large = model.of_op(product(1000, 1000, 1000), first_kind(model));
  EXPECT_EQ(large.source, CostSource::kRoofline);
  EXPECT_DOUBLE_EQ(large.flops, 2e9);
  EXPECT_DOUBLE_EQ(large.seconds, 2e-6 + 0.02);
  EXPECT_DOUBLE_EQ(model.of_op(relu(1'000'000), first_kind(model)).seconds, 2e-6 + 8e6 / 20e9);
  EXPECT_DOUBLE_EQ(model.of_op(product(1000, 1000, 1000, "f64"), first_kind(model)).seconds,
                   2e-6 + 0.04);
}

TEST(CostModel, AgreesWithTheEstimateOfThatMachine) {
  const Graph graph = parse_graph(
      "graph\n  %0: f32[4,200,30] = input 0\n  %1: f32[4,30,500] = input 1\n"
      "  %2: f32[4,200,500] = aten::bmm(%0, %1) {forward}\n"
      "  %3: f32[4,200,500] = aten::relu(%2) {forward}\n"
      "  %4: f32[4,100000] = aten::view(%3, [4, 100000]) {forward}\n  return loss %4\n");
  const CostModel model = two_levels();
  Machine machine;
  machine.device = {100e9, 20e9, 2e-6};
  for (const Node& node : graph.nodes) {
    EXPECT_DOUBLE_EQ(model.of_op(op_signature(graph, node), first_kind(model)).seconds,
                     estimated_seconds(graph, node, machine));
  }
}

TEST(CostModel, TakesTheCurvesOfAKind) {
  const CostModel model = load_cost_model("a100_8", "a test");
  const double seconds = model.of_op(product(8192, 8192, 8192, "bf16"), first_kind(model)).seconds;
  EXPECT_NEAR(seconds, 4e-6 + 2 * std::pow(8192.0, 3) / (312e12 * 0.75), 1e-9);
}

TEST(CostModel, PrefersWhatWasMeasuredThenWhatWasFitted) {
  CostTable table;
  table.operators[relu(100).text] = {7e-6, 3};
  table.families["bytes"] = {1e-6, 1e-10, 4, 0.1};
  ProductGrid grid;
  grid.m = grid.n = grid.k = {64};
  grid.seconds = {1e-5};
  table.products["f32"] = grid;
  const CostModel model(parse_cluster(kTwoLevels, "two", "a test"), {{"core", table}});
  const DeviceKind& kind = first_kind(model);
  const Cost measured = model.of_op(relu(100), kind);
  EXPECT_EQ(measured.source, CostSource::kMeasured);
  EXPECT_EQ(measured.seconds, 7e-6);
  EXPECT_EQ(measured.bytes, 800);
  const Cost fitted = model.of_op(relu(1000), kind);
  EXPECT_EQ(fitted.source, CostSource::kFitted);
  EXPECT_DOUBLE_EQ(fitted.seconds, 1e-6 + 8000 * 1e-10);
  EXPECT_DOUBLE_EQ(model.of_op(product(64, 64, 64), kind).seconds, 1e-5);
  EXPECT_DOUBLE_EQ(model.of_op(product(128, 64, 64), kind).seconds, 2e-5);
  EXPECT_EQ(model.of_op(product(64, 64, 64, "f64"), kind).source, CostSource::kRoofline);
  SourceShares shares;
  shares.add(measured);
  shares.add(fitted);
  shares.add(model.of_op(product(1000, 1000, 1000, "f64"), kind));
  EXPECT_DOUBLE_EQ(shares.measured, 7e-6);
  EXPECT_EQ(shares.str(), "0 % measured, 0 % fitted, 100 % by peaks");
}

TEST(CostModel, NeverMakesMoreWorkCheaper) {
  const CostModel a100 = load_cost_model("a100_8", "a test");
  const CostModel cores = two_levels();
  for (const CostModel* model : {&a100, &cores}) {
    const DeviceKind& kind = first_kind(*model);
    double product_before = 0, relu_before = 0, update_before = 0, copy_before = 0;
    for (int64_t size = 8; size < 40'000; size += 1 + size / 5) {
      const double of_product = model->of_op(product(size, size, size), kind).seconds;
      const double of_relu = model->of_op(relu(size * size), kind).seconds;
      const double of_update = model->of_update({"adam", 2}, size * size, 1, kind).seconds;
      const double of_copy = model->of_copy(size * size, kind).seconds;
      EXPECT_GE(of_product, product_before);
      EXPECT_GE(of_relu, relu_before);
      EXPECT_GE(of_update, update_before);
      EXPECT_GE(of_copy, copy_before);
      EXPECT_GT(model->of_update({"adam", 2}, size * size, 2, kind).seconds, of_update);
      product_before = of_product, relu_before = of_relu, update_before = of_update;
      copy_before = of_copy;
    }
  }
}

TEST(CostModel, FindsWhereAGroupIs) {
  const CostModel model = two_levels();
  const auto shape = [&](int64_t first, int64_t count, int64_t stride) {
    const GroupShape group = model.group(first, count, stride);
    return concat(group.near, " x ", group.hosts);
  };
  EXPECT_EQ(shape(0, 1, 1), "1 x 1");
  EXPECT_EQ(shape(0, 4, 1), "4 x 1");
  EXPECT_EQ(shape(0, 32, 1), "4 x 8");
  EXPECT_EQ(shape(1, 8, 4), "1 x 8");
  EXPECT_EQ(shape(2, 4, 1), "2 x 2");
  EXPECT_EQ(shape(3, 6, 1), "4 x 3");  // 1, 4 and 1: the largest counts
  EXPECT_EQ(shape(0, 4, 2), "2 x 2");
}

TEST(CostModel, ReducesInTwoLevelsBetweenHosts) {
  const CostModel model = two_levels();
  const GroupShape all = model.group(0, 32, 1);
  const double bytes = 1 << 24;
  const LinkKind& threads = model.map().description().links[0];
  const LinkKind& tcp = model.map().description().links[1];
  const CollectiveCall call{Collective::kAllReduce, 1 << 24};
  EXPECT_DOUBLE_EQ(model.of_collective(call, all).seconds,
                   link_seconds(threads, Collective::kReduce, bytes, 4) +
                       link_seconds(tcp, Collective::kAllReduce, bytes, 8) +
                       link_seconds(threads, Collective::kBroadcast, bytes, 4));
  const CollectiveCall half{Collective::kAllReduce, 1 << 24, /*half=*/true};
  EXPECT_GT(model.of_collective(half, all).seconds, 1.9 * model.of_collective(call, all).seconds);
  // One of each host: without detours, and half stays half.
  const GroupShape firsts = model.group(0, 8, 4);
  EXPECT_DOUBLE_EQ(model.of_collective(half, firsts).seconds,
                   link_seconds(tcp, Collective::kAllReduce, bytes, 8));
  EXPECT_DOUBLE_EQ(model.of_collective(call, model.group(0, 4, 1)).seconds,
                   link_seconds(threads, Collective::kAllReduce, bytes, 4));
}

TEST(CostModel, NeverMakesALargerGroupOrTensorCheaper) {
  const CostModel rings = load_cost_model("meta_16k", "a test");
  const CostModel levels = two_levels();
  for (const CostModel* model : {&rings, &levels}) {
    const int64_t devices = model->map().devices();
    const int64_t in_host = model->map().description().hosts[0].devices_of_host();
    for (size_t i = 0; i < collective_names().size(); ++i) {
      const auto collective = static_cast<Collective>(i);
      for (int64_t bytes : {0, 100, 10'000, 1 << 20, 1 << 30}) {
        double before = 0;
        for (int64_t hosts = 2; hosts * in_host <= devices; hosts *= 2) {  // whole hosts
          const GroupShape group = model->group(0, hosts * in_host, 1);
          const double seconds = model->of_collective({collective, bytes}, group).seconds;
          EXPECT_GE(seconds * (1 + 1e-12), before) << collective_names()[i] << " " << bytes;
          EXPECT_GE(model->of_collective({collective, 2 * bytes}, group).seconds, seconds);
          before = seconds;
        }
      }
    }
  }
}

TEST(CostModel, TakesMeasuredTimesOfCollectives) {
  CostTable table;
  table.collectives["threads"]["all_reduce"][2] = {{1024, 1e-5}, {1 << 20, 1e-3}};
  const CostModel model(parse_cluster(kTwoLevels, "two", "a test"), {{"core", table}});
  const auto cost = [&](int64_t bytes, int64_t members) {
    return model.of_collective({Collective::kAllReduce, bytes}, model.group(0, members, 1));
  };
  EXPECT_DOUBLE_EQ(cost(1 << 20, 2).seconds, 1e-3);
  EXPECT_EQ(cost(1 << 15, 2).source, CostSource::kMeasured);
  EXPECT_NEAR(cost(1 << 15, 2).seconds, 1e-4, 1e-9);
  EXPECT_DOUBLE_EQ(cost(1 << 21, 2).seconds, 2e-3);
  EXPECT_EQ(cost(1 << 21, 2).source, CostSource::kFitted);
  EXPECT_EQ(cost(1 << 20, 3).source, CostSource::kRoofline);
}

TEST(CostModel, FindsTablesBesideTheDescription) {
  const std::string folder = ::testing::TempDir() + "/cost_model_test";
  std::filesystem::create_directories(folder);
  std::string text = kTwoLevels;
  text.insert(text.find("\"memory_gib\""), "\"costs\": \"core.costs.json\", ");
  std::ofstream(folder + "/cluster.json") << text;
  std::filesystem::remove(folder + "/core.costs.json");
  EXPECT_THAT(error_of([&] { load_cost_model(folder + "/cluster.json", "a test"); }),
              HasSubstr("core.costs.json: No such file"));
  CostTable table;
  table.operators[relu(100).text] = {7e-6, 3};
  std::ofstream(folder + "/core.costs.json") << print_cost_table(table);
  const CostModel model = load_cost_model(folder + "/cluster.json", "a test");
  EXPECT_EQ(model.of_op(relu(100), first_kind(model)).source, CostSource::kMeasured);
}

TEST(CostModel, KnowsTheElementTypesOfClusterFiles) {
  for (const std::string& name : known_clusters()) {
    const ClusterMap map = load_cluster(name, "a test");
    for (const DeviceKind& kind : map.description().kinds) {
      for (const auto& [type, flops] : kind.flops) {
        EXPECT_TRUE(dtype_from_name(type).has_value()) << type;
      }
    }
  }
}

TEST(Pools, AreWhatDevicesShare) {
  const std::vector<Pool> pools = pools_of(two_levels().map());
  ASSERT_EQ(pools.size(), 3u);
  EXPECT_EQ(pools[0].str(), "cores of each of the hosts 0 to 7, 4 devices: 4");
  EXPECT_EQ(pools[1].str(), "memory of each of the hosts 0 to 7, 4 devices: 25 GB/s");
  EXPECT_EQ(pools[2].str(), "ports of each of the hosts 0 to 7, 4 devices: 1 GB/s");
  EXPECT_DOUBLE_EQ(rate_in(pools[1], 20e9, 1), 20e9);
  EXPECT_DOUBLE_EQ(rate_in(pools[1], 20e9, 2), 12.5e9);
  // Eight ports for eight devices are nothing that is shared.
  EXPECT_TRUE(pools_of(load_cluster("selene_3072", "a test")).empty());
  EXPECT_EQ(pools_of(load_cluster("v100_512", "a test")).size(), 1u);
}

}  // namespace
}  // namespace epl

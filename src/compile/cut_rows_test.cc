#include "compile/cut_rows.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "capture/capture.h"
#include "compile/compile.h"
#include "config/test_environment.h"
#include "ops/facts.h"

namespace epl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using torch::Tensor;
namespace F = torch::nn::functional;

// A step of rows [8, 6] and classes [8], as replicate(2) runs it.
class CutRowsTest : public testing::Test {
 protected:
  CutRowsTest() : net(6, 4) {
    placement.role_devices = {2};
    placement.asked_by = "epl::replicate(2)";
    for (const auto& entry : net->named_parameters()) {
      parameters.emplace_back(entry.key(), entry.value());
    }
    cluster.worker_devices = {2};
    cluster.total_gpu_num = 2;
  }

  SlicedStep sliced(const StepFunction& step, const Config& config = {}) {
    const Batch rows{torch::randn({8, 6}), torch::randint(4, {8}, torch::kLong)};
    Graph whole = capture_step({step, rows, parameters, state}).graph;
    run_passes(whole, step_passes(config, placement).whole);
    SlicedStep cut = std::move(cut_rows(whole, placement, cluster, config).at(2));
    run_passes(cut.graph, step_passes(config, placement).role);
    return cut;
  }

  // What devices say to each other in the step, in order.
  std::vector<std::string> said(const std::function<Tensor(const Tensor&)>& loss,
                                const Config& config = {}) {
    std::vector<std::string> calls;
    const SlicedStep cut = sliced([&](const Batch& batch) { return loss(net(batch[0])); }, config);
    for (const Node& node : cut.graph.nodes) {
      if (is_collective(node.op)) calls.push_back(op_name(node).substr(5));
    }
    return calls;
  }

  torch::nn::Linear net;
  NamedTensors parameters;
  NamedTensors state;
  Placement placement;
  ClusterShape cluster;
};

TEST_F(CutRowsTest, RowsThatStandForThemselvesNeedNoWord) {
  EXPECT_THAT(said([](const Tensor& y) { return y.pow(2).mean(); }), IsEmpty());
  EXPECT_THAT(said([](const Tensor& y) { return y.exp().sum(0).div(7).sum(); }), IsEmpty());
  EXPECT_THAT(said([&](const Tensor& y) { return y.sum() + net->weight.pow(2).sum(); }), IsEmpty());
  EXPECT_THAT(said([](const Tensor& y) { return torch::dropout(y, 0.5, true).pow(2).mean(); }),
              IsEmpty());
  EXPECT_THAT(said([](const Tensor& y) {
                Tensor state = torch::zeros({y.size(0), 4});
                for (int i = 0; i < 3; ++i) state = torch::tanh(state + y);
                return state.mean();
              }),
              IsEmpty());
  EXPECT_THAT(said([](const Tensor& y) {
                return (y * torch::rand({y.size(0), 1})).pow(2).mean();
              }),
              IsEmpty());
}

// [rows, time, features] to [time, rows, features] and flattened: rows lie in several runs.
TEST_F(CutRowsTest, RowsBehindAnotherDimensionStayCut) {
  EXPECT_THAT(said([](const Tensor& y) {
                const Tensor turned = y.view({-1, 2, 2}).transpose(0, 1).contiguous();
                return turned.view({-1, 2}).softmax(1).view({2, -1, 2}).pow(2).mean();
              }),
              IsEmpty());
}

TEST_F(CutRowsTest, RowsThatLookAtEachOtherAreBroughtTogether) {
  EXPECT_THAT(said([](const Tensor& y) { return (y - y.mean(0)).pow(4).mean(); }),
              ElementsAre("all_reduce", "reduce_scatter"));
  EXPECT_THAT(said([](const Tensor& y) { return y.pow(2).mean().sqrt(); }),
              ElementsAre("all_reduce"));
  EXPECT_THAT(said([](const Tensor& y) { return (y - y.flip(0)).pow(2).mean(); }),
              ElementsAre("all_gather", "all_gather"));
}

TEST_F(CutRowsTest, TellsWhatLooksAtAllRows) {
  const SlicedStep cut = sliced([&](const Batch& batch) {
    const Tensor y = net(batch[0]);
    return (y - y.flip(0)).pow(2).mean();
  });
  EXPECT_THAT(cut.sharding.remarks,
              ElementsAre("aten::flip (2 times) looks at the rows of all 2 devices of a replica: "
                          "each of them has them all"));
}

TEST_F(CutRowsTest, ResultsLieAsTheirGraphSays) {
  const SlicedStep cut = sliced([&](const Batch& b) {
    const auto y = net(b[0]);
    return StepOutput(y.mean(), {{"a", y.detach().mean()},
                                 {"b", y.detach().t()},
                                 {"c", (y.detach() > 1e9).sum()},
                                 {"d", y.detach().max()},
                                 {"e", net->weight.norm()}});
  });
  EXPECT_EQ(cut.sharding.loss.str(), "P");
  std::vector<std::string> metrics;
  for (const Layout& layout : cut.sharding.metrics) metrics.push_back(layout.str());
  EXPECT_THAT(metrics, ElementsAre("P", "S(1)", "P", "R", "R"));
}

TEST_F(CutRowsTest, BatchNormTakesTheRowsThatItIsToldTo) {
  torch::nn::BatchNorm1d norm(4);
  const auto loss = [&](const Tensor& y) { return norm(y).pow(4).mean(); };
  EXPECT_THAT(said(loss), IsEmpty());
  EXPECT_THAT(said(loss, Config{{"replicate.batch_norm", "micro_batch"}}),
              ElementsAre("all_gather", "all_gather"));
}

// A derivative of a derivative of a batch norm reads its statistics.
TEST_F(CutRowsTest, RefusesToAddUpStatisticsOfABatchNorm) {
  Graph graph = sliced([&](const Batch& b) { return net(b[0]).mean(); }).graph;
  torch::nn::BatchNorm1d norm(4);
  const std::string error = error_of([&] {
    sliced([&](const Batch& b) {
      const Tensor y = net(b[0]);
      const auto stats =
          torch::native_batch_norm(y, norm->weight, norm->bias, {}, {}, true, 0.1, 1e-5);
      return std::get<0>(stats).pow(2).mean() + std::get<1>(stats).sum();
    });
  });
  EXPECT_THAT(error, HasSubstr("reads the statistics of a batch norm"));
  EXPECT_THAT(error, HasSubstr("replicate.batch_norm"));
}

}  // namespace
}  // namespace epl

#include "compile/cut_rows.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "compile/compile.h"
#include "config/test_environment.h"

namespace epl {
namespace {

using testing::HasSubstr;
using torch::Tensor;
namespace F = torch::nn::functional;

// A step of rows [rows, 6] and classes [rows], as replicate(2) would run it.
class CutRowsTest : public testing::Test {
 protected:
  CutRowsTest() : net(6, 4) {
    placement.stage_devices = {2};
    placement.asked_by = "epl::replicate(2)";
    for (const auto& entry : net->named_parameters()) {
      parameters.emplace_back(entry.key(), entry.value());
    }
  }

  TwoSizes proven(const StepFunction& step) {
    const Batch rows{torch::randn({4, 6}), torch::randint(4, {4}, torch::kLong)};
    TwoSizes sizes;
    Capture whole = capture_step({step, repeat_rows(rows, 2), parameters, state});
    StepRecording recording(std::move(whole.graph));
    recording.users_backward = whole.users_backward;
    recording.graphs.emplace(2, capture_step({step, rows, parameters, state}).graph);
    for (auto& [devices, graph] : recording.graphs) {
      run_passes(graph, step_passes(Config(), placement).whole);
    }
    prove_rows(recording, placement, sizes);
    return sizes;
  }

  // What the loss of a step is: "mean", "sum", or the error.
  std::string loss(const StepFunction& step) {
    std::string result;
    const std::string error =
        error_of([&] { result = proven(step).loss == SliceMerge::kSum ? "sum" : "mean"; });
    return result.empty() ? error : result;
  }
  std::string of(const std::function<Tensor(const Tensor&)>& f) {
    return loss([&](const Batch& batch) { return f(net(batch[0])); });
  }

  torch::nn::Linear net;
  NamedTensors parameters;
  NamedTensors state;
  Placement placement;
};

// What arrives in the backward pass, changed by the user's own code.
template <Tensor (*change)(const Tensor&)>
struct Changed : torch::autograd::Function<Changed<change>> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) { return x.clone(); }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*,
                                               torch::autograd::tensor_list gradients) {
    return {change(gradients[0])};
  }
};

Tensor straight_through(const Tensor& g) { return g.clamp(-1, 1) * 0.5; }
Tensor normed(const Tensor& g) { return g / (g.norm() + 1e-6); }
Tensor centred(const Tensor& g) { return g - g.mean(0); }

TEST_F(CutRowsTest, FollowsTheUsersOwnBackwardPass) {
  EXPECT_EQ(of([](const Tensor& y) { return Changed<straight_through>::apply(y).pow(2).sum(); }),
            "sum");
  const auto refused = [](const std::string& error) {
    return error.find("the backward pass runs code of the user's own") != std::string::npos;
  };
  for (bool sums : {false, true}) {
    const auto over = [&](const Tensor& y) { return sums ? y.pow(2).sum() : y.pow(2).mean(); };
    EXPECT_TRUE(refused(of([&](const Tensor& y) { return over(Changed<normed>::apply(y)); })));
    EXPECT_TRUE(refused(of([&](const Tensor& y) { return over(Changed<centred>::apply(y)); })));
    EXPECT_TRUE(refused(of([&](const Tensor& y) {
      y.register_hook([](const Tensor& g) { return g / g.norm(); });
      return over(y);
    })));
  }
}

TEST_F(CutRowsTest, TellsMeansFromSums) {
  EXPECT_EQ(of([](const Tensor& y) { return y.mean(); }), "mean");
  EXPECT_EQ(of([](const Tensor& y) { return y.sum(); }), "sum");
  EXPECT_EQ(of([](const Tensor& y) { return y.sum() / y.size(0); }), "mean");
  EXPECT_EQ(of([](const Tensor& y) { return y.sum() * (1.0 / y.size(0)); }), "mean");
  EXPECT_EQ(of([](const Tensor& y) { return y.pow(2).sum(1).mean() * 3 + 1; }), "mean");
  EXPECT_EQ(of([](const Tensor& y) { return y.exp().sum(0).div(7).sum(); }), "sum");
  EXPECT_EQ(of([](const Tensor& y) { return -(y.mean(0) * 2).sum(); }), "mean");
  EXPECT_EQ(of([](const Tensor& y) { return y.sum() / torch::tensor(double(y.numel())); }), "mean");
  EXPECT_EQ(of([](const Tensor& y) { return torch::zeros({}) + y.sum() + y.pow(2).sum(); }), "sum");
}

TEST_F(CutRowsTest, TellsThemWhereRandomNumbersBlurTheLoss) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(of([](const Tensor& y) { return torch::dropout(y * 9, 0.5, true).pow(2).mean(); }),
              "mean");
    EXPECT_EQ(of([](const Tensor& y) { return torch::dropout(y * 9, 0.5, true).sum(); }), "sum");
  }
}

TEST_F(CutRowsTest, AcceptsAPenaltyBesidesAMeanButNotBesidesASum) {
  const auto penalty = [&] { return net->weight.pow(2).sum(); };
  EXPECT_EQ(of([&](const Tensor& y) { return y.mean() + 0.1 * penalty(); }), "mean");
  EXPECT_THAT(of([&](const Tensor& y) { return y.sum() + 0.1 * penalty(); }),
              HasSubstr("aten::add.Tensor (of f32[]) adds what is not of the rows to a sum over "
                        "the rows, which each device would do again"));
}

TEST_F(CutRowsTest, KnowsLosses) {
  const auto with = [&](auto options) {
    return loss(
        [&, options](const Batch& b) { return F::cross_entropy(net(b[0]), b[1], options); });
  };
  EXPECT_EQ(with(F::CrossEntropyFuncOptions()), "mean");
  EXPECT_EQ(with(F::CrossEntropyFuncOptions().label_smoothing(0.1)), "mean");
  EXPECT_EQ(loss([&](const Batch& b) {
              const auto each = F::CrossEntropyFuncOptions().reduction(torch::kNone);
              return F::cross_entropy(net(b[0]), b[1], each).mean();
            }),
            "mean");
  EXPECT_EQ(with(F::CrossEntropyFuncOptions().reduction(torch::kSum)), "sum");
  EXPECT_THAT(with(F::CrossEntropyFuncOptions().weight(torch::rand({4}))),
              HasSubstr("divides by the weights of its rows"));
  EXPECT_EQ(with(F::CrossEntropyFuncOptions().weight(torch::rand({4})).reduction(torch::kSum)),
            "sum");
  const Tensor half = torch::full({1}, 0.5);
  EXPECT_EQ(of([&](const Tensor& y) { return F::mse_loss(y, torch::zeros_like(y)); }), "mean");
  EXPECT_EQ(of([&](const Tensor& y) {
              return torch::binary_cross_entropy(y.sigmoid(), torch::ones_like(y), half);
            }),
            "mean");
  EXPECT_EQ(of([&](const Tensor& y) { return F::smooth_l1_loss(y, y.detach() + 1); }), "mean");
  EXPECT_EQ(of([&](const Tensor& y) {
              return F::kl_div(y.log_softmax(1), y.detach().softmax(1),
                               F::KLDivFuncOptions(torch::kBatchMean));
            }),
            "mean");
}

TEST_F(CutRowsTest, RefusesRowsThatLookAtEachOther) {
  const auto refused = [&](const std::string& op, const std::function<Tensor(const Tensor&)>& f) {
    const std::string error = of(f);
    EXPECT_THAT(error, HasSubstr("the loss is neither a mean nor a sum over the rows"));
    EXPECT_THAT(error, HasSubstr(op));
    EXPECT_THAT(error, HasSubstr("try:      epl::replicate(1)"));
  };
  refused("aten::flip", [](const Tensor& y) { return (0.7 * y + 0.3 * y.flip(0)).pow(2).mean(); });
  refused("aten::roll", [](const Tensor& y) { return (y - y.roll(1, 0)).pow(2).mean(); });
  refused("aten::randperm", [](const Tensor& y) {
    return (y - y.index_select(0, torch::randperm(y.size(0)))).pow(2).mean();
  });
  refused("aten::sub.Tensor", [](const Tensor& y) { return (y - y.mean(0)).pow(4).mean(); });
  refused("aten::var", [](const Tensor& y) { return y.var(0).mean(); });
  refused("a mean over the rows", [](const Tensor& y) { return y.mean(0).pow(2).sum(); });
  refused("aten::topk", [](const Tensor& y) { return std::get<0>(y.sum(1).topk(2, 0)).mean(); });
  refused("aten::max", [](const Tensor& y) { return y.max(); });
  refused("aten::amax", [](const Tensor& y) { return y.amax(0).sum(); });
  refused("aten::sqrt", [](const Tensor& y) { return y.pow(2).mean().sqrt(); });
  refused("aten::log", [](const Tensor& y) { return y.exp().sum().log(); });
  refused("aten::mul.Tensor", [](const Tensor& y) { return y.mean() * y.mean(); });
  refused("aten::select.int", [](const Tensor& y) { return y[0].sum() + y.mean(); });
  refused("aten::_softmax", [](const Tensor& y) { return y.softmax(0).pow(2).mean(); });
  refused("aten::cumsum", [](const Tensor& y) { return y.cumsum(0).mean(); });
  refused("aten::linalg_vector_norm", [](const Tensor& y) { return torch::linalg_vector_norm(y); });
  refused("aten::div.Tensor", [](const Tensor& y) {
    const Tensor mask = y.gt(0).to(torch::kFloat);
    return (y * mask).sum() / mask.sum();
  });
  refused("aten::tanh", [](const Tensor& y) { return y.mean().tanh(); });
}

TEST_F(CutRowsTest, FollowsRowsThroughViews) {
  EXPECT_EQ(of([](const Tensor& y) { return y.view({-1, 2}).pow(2).mean(); }), "mean");
  EXPECT_EQ(of([](const Tensor& y) { return y.t().pow(2).sum(); }), "sum");
  EXPECT_EQ(of([](const Tensor& y) {
              return y.view({-1, 2, 2}).transpose(0, 1).reshape({-1, 2}).softmax(1).pow(2).mean();
            }),
            "mean");
  EXPECT_EQ(of([](const Tensor& y) { return torch::cat({y, y.tanh()}).pow(2).mean(); }), "mean");
  EXPECT_EQ(of([](const Tensor& y) {
              const auto halves = torch::cat({y, y.tanh()}).exp().chunk(2);
              return (halves[0] - halves[1]).pow(2).mean();
            }),
            "mean");
  EXPECT_EQ(of([](const Tensor& y) {
              return torch::stack({y, y.exp()}, 1).flatten(1).unsqueeze(0).repeat({2, 1, 1}).sum();
            }),
            "sum");
  EXPECT_EQ(loss([&](const Batch& b) {
              const Tensor y = net(b[0]).log_softmax(1);
              return -y.index({torch::arange(y.size(0)), b[1]}).mean();
            }),
            "mean");
  EXPECT_EQ(of([](const Tensor& y) {
              Tensor state = torch::zeros({y.size(0), 4});
              for (int i = 0; i < 3; ++i) state = torch::tanh(state + y);
              return state.mean();
            }),
            "mean");
  EXPECT_EQ(of([](const Tensor& y) {
              Tensor x = y.clone();
              x.select(1, 0).mul_(2);
              x.slice(1, 2, 4).zero_();
              return x.pow(2).mean();
            }),
            "mean");
}

TEST_F(CutRowsTest, MergesMetricsByTheirGraph) {
  const TwoSizes sizes = proven([&](const Batch& b) {
    const auto y = net(b[0]);
    return StepOutput(y.mean(), {{"a", y.detach().mean()},
                                 {"b", y.detach().sum()},
                                 {"c", y.detach().t()},
                                 {"d", (y.detach() > 1e9).sum()},
                                 {"e", (y.detach() > 1e9).to(torch::kFloat).mean()},
                                 {"f", y.argmax(1).eq(b[1]).sum()},
                                 {"g", net->weight.norm()}});
  });
  EXPECT_EQ(sizes.metrics,
            (std::vector<SliceMerge>{SliceMerge::kMean, SliceMerge::kSum, SliceMerge::kConcat,
                                     SliceMerge::kSum, SliceMerge::kMean, SliceMerge::kSum,
                                     SliceMerge::kMean}));
  EXPECT_EQ(sizes.metric_batch_dims[2], 1);
  EXPECT_THAT(error_of([&] {
                proven([&](const Batch& b) {
                  const auto y = net(b[0]);
                  return StepOutput(y.mean(), {{"largest", y.detach().max()}});
                });
              }),
              HasSubstr("the metric `largest` cannot be put together from slices of the micro "
                        "batch: aten::max"));
}

TEST_F(CutRowsTest, RefusesStateThatIsNoMean) {
  Tensor center = torch::zeros({4});
  state.emplace_back("center", center);
  EXPECT_EQ(of([&](const Tensor& y) {
              center.copy_(0.9 * center + 0.1 * y.detach().mean(0));
              return y.mean();
            }),
            "mean");
  EXPECT_THAT(of([&](const Tensor& y) {
                center.add_(y.detach().sum(0));
                return y.mean();
              }),
              HasSubstr("writes into `center`"));
}

TEST_F(CutRowsTest, RefusesWhatIsReadBack) {
  EXPECT_THAT(of([](const Tensor& y) { return y.sum().item<double>() > 1e9 ? y.sum() : y.mean(); }),
              HasSubstr("reads back into C++"));
}

}  // namespace
}  // namespace epl

// Models as real programs have them and textbooks leave them out.
#include "tests/models/mlp.h"
#include "tests/models/unusual.h"
#include "tests/models/vision.h"
#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

namespace F = torch::nn::functional;
using torch::Tensor;

Batch batch(int) { return {torch::randn({8, 8}), classes(4, {8})}; }

std::shared_ptr<models::Mlp> mlp() { return std::make_shared<models::Mlp>(8, 16, 3, 4); }

// ------------------------------------------------------------------------------

TEST(OddModel, WithFrozenAndUnusedParameters) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::FineTuned>(8, 16, 4);
        return program(net, sgd(*net, 0.1, 0.9), classification(net));
      },
      batch, within(1e-6, "fused momentum")));
}

TEST(OddModel, WhoseOptimizerKnowsOnlyAPart) {
  EXPECT_TRUE(parity(
      [] {
        auto net = mlp();
        auto optimizer = std::make_shared<torch::optim::SGD>(net->layers[4]->parameters(), 0.1);
        return program(net, optimizer, classification(net));
      },
      batch, bit_equal()));
}

TEST(OddModel, ThatCallsALayerThreeTimes) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::Repeated>(8, 16, 4, 3);
        return program(net, sgd(*net, 0.1), classification(net));
      },
      batch, bit_equal()));
}

TEST(OddModel, ThatIsCalledTwiceInOneStep) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::ResNet18>(4, 4);
        return program(net, sgd(*net, 0.05), [net](const Batch& batch) {
          auto one = net->forward(batch[0]);
          auto other = net->forward(batch[0].flip({3}));
          return F::mse_loss(one, other) + cross_entropy(one, batch[1]);
        });
      },
      [](int) {
        return Batch{torch::randn({2, 3, 32, 32}), classes(4, {2})};
      },
      bit_equal(), Variant().steps(3)));
}

TEST(OddModel, WithAnAutogradFunctionOfItsOwn) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::Quantised>(8, 16, 4);
        return program(net, sgd(*net, 0.1), classification(net));
      },
      batch, bit_equal()));
}

TEST(OddModel, InDoublePrecision) {
  EXPECT_TRUE(parity(
      [] {
        auto net = mlp();
        net->to(torch::kDouble);
        return program(net, sgd(*net, 0.1), classification(net));
      },
      [](int) {
        return Batch{torch::randn({8, 8}, torch::kDouble), classes(4, {8})};
      },
      bit_equal()));
}

struct Tempered : models::Mlp {
  Tempered() : Mlp(8, 16, 2, 4) {
    temperature = register_parameter("temperature", torch::ones({}, torch::kDouble));
  }
  Tensor forward(Tensor x) { return Mlp::forward(x) / temperature; }

  Tensor temperature;
};

TEST(OddModel, WithOneParameterInDoublePrecisionAndOfNoDimension) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<Tempered>();
        return program(net, sgd(*net, 0.1), [net](const Batch& batch) {
          return cross_entropy(net->forward(batch[0]).to(torch::kDouble), batch[1]);
        });
      },
      batch, bit_equal()));
}

TEST(OddModel, WithATeacherInEvalModeInsideTheLoss) {
  EXPECT_TRUE(parity(
      [] {
        auto student = std::make_shared<models::ResNet18>(4, 4);
        auto teacher = std::make_shared<models::ResNet18>(4, 4);
        teacher->eval();
        return program(student, sgd(*student, 0.05), [=](const Batch& batch) {
          Tensor wanted;
          {
            torch::NoGradGuard no_grad;
            wanted = torch::softmax(teacher->forward(batch[0]) / 2, 1);
          }
          auto logits = student->forward(batch[0]);
          return F::kl_div(torch::log_softmax(logits / 2, 1), wanted,
                           F::KLDivFuncOptions().reduction(torch::kBatchMean)) +
                 cross_entropy(logits, batch[1]);
        });
      },
      [](int) {
        return Batch{torch::randn({4, 3, 32, 32}), classes(4, {4})};
      },
      bit_equal(), Variant().steps(3)));
}

// The target network of reinforcement learning and of BYOL: it follows the trained one in the step.
TEST(OddModel, WithAMovingAverageOfItselfInsideTheStep) {
  EXPECT_TRUE(parity(
      [] {
        auto net = mlp();
        auto target = mlp();
        return Program{
            {Turn{{{"net", net}, {"target", target}}, {sgd(*net, 0.1)}, [=](const Batch& batch) {
                    Tensor wanted;
                    {
                      torch::NoGradGuard no_grad;
                      auto from = net->parameters();
                      auto to = target->parameters();
                      for (size_t i = 0; i < to.size(); ++i) to[i].mul_(0.9).add_(from[i], 0.1);
                      wanted = target->forward(batch[0]);
                    }
                    return F::mse_loss(net->forward(batch[0]), wanted) +
                           cross_entropy(net->forward(batch[0]), batch[1]);
                  }}}};
      },
      batch, bit_equal()));
}

TEST(OddModel, WithExpertsChosenByTopk) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::Mixture>(8, 16, 4, 4);
        return program(net, sgd(*net, 0.1), classification(net));
      },
      batch, bit_equal()));
}

TEST(OddModel, OverAGraphWhoseEdgesComeWithTheBatch) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::GraphNet>(8, 12, 4);
        return program(net, sgd(*net, 0.02), [net](const Batch& batch) {
          return cross_entropy(net->forward(batch[0], batch[1]), batch[2]);
        });
      },
      [](int) {
        return Batch{torch::randn({10, 8}), classes(10, {2, 15}), classes(4, {10})};
      },
      bit_equal()));
}

TEST(OddModel, WithTheSumOfSeveralLosses) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::TwoHeads>(8, 16, 4);
        return program(net, sgd(*net, 0.1), [net](const Batch& batch) {
          auto [logits, values] = net->forward(batch[0]);
          auto weights = torch::zeros({});
          for (auto& parameter : net->parameters()) weights = weights + parameter.pow(2).sum();
          return cross_entropy(logits, batch[1]) + 0.5 * F::mse_loss(values, batch[2]) +
                 1e-3 * weights;
        });
      },
      [](int) {
        return Batch{torch::randn({8, 8}), classes(4, {8}), torch::randn({8})};
      },
      bit_equal()));
}

// The loss of WGAN-GP: a gradient inside the loss, with a graph of its own.
TEST(OddModel, WithAGradientPenalty) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::Repeated>(8, 16, 1, 1);
        return program(net, sgd(*net, 0.05), [net](const Batch& batch) {
          auto x = (batch[0] * 0.5).requires_grad_();
          auto score = net->forward(x);
          auto gradient = torch::autograd::grad({score.sum()}, {x}, {}, /*retain_graph=*/true,
                                                /*create_graph=*/true)[0];
          return score.mean() + (gradient.norm(2, 1) - 1).pow(2).mean();
        });
      },
      [](int) {
        return Batch{torch::randn({8, 8})};
      },
      bit_equal()));
}

TEST(OddModel, InAScopeOfOneDevice) {
  EXPECT_TRUE(parity(
      [] {
        auto net = mlp();
        return program(net, sgd(*net, 0.1), [net](const Batch& batch) {
          epl::With scope(epl::replicate(1, "all"));
          return cross_entropy(net->forward(batch[0]), batch[1]);
        });
      },
      batch, bit_equal()));
}

TEST(OddModel, UnderADefaultStrategyOfOneDevice) {
  EXPECT_TRUE(parity(
      [] {
        auto net = mlp();
        epl::set_default_strategy(epl::replicate(1));
        return program(net, sgd(*net, 0.1), classification(net));
      },
      batch, bit_equal()));
}

}  // namespace
}  // namespace epl::parity

// Random operators. On one device EPL draws from LibTorch's default generator in the order of the
// plain loop, so that the same seed gives the same masks, and whatever the user draws between the
// steps is the same as well.
#include <ATen/CPUGeneratorImpl.h>

#include <optional>

#include "tests/models/generative.h"
#include "tests/models/mlp.h"
#include "tests/models/recurrent.h"
#include "tests/models/transformer.h"
#include "tests/parity/on_devices.h"
#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

namespace F = torch::nn::functional;

TEST(Random, Vae) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::Vae>(20, 16, 4);
        return program(net, sgd(*net, 1e-3),
                       [net](const Batch& batch) { return net->loss(batch[0]); });
      },
      [](int) {
        return Batch{torch::rand({8, 20})};
      },
      bit_equal()));
}

TEST(Random, VaeWithMicroBatches) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::Vae>(20, 16, 4);
        return program(net, sgd(*net, 1e-3),
                       [net](const Batch& batch) { return net->loss(batch[0]); });
      },
      [](int) {
        return Batch{torch::rand({8, 20})};
      },
      bit_equal(), Variant().micro_batches(4)));
}

TEST(Random, TransformerEncoderWithDropout) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::EncoderClassifier>(20, 16, 2, 6, 3, /*dropout=*/0.2);
        return program(net, sgd(*net, 0.1), classification(net));
      },
      [](int) {
        return Batch{classes(20, {4, 6}), classes(3, {4})};
      },
      bit_equal()));
}

TEST(Random, GptWithDropoutAndMicroBatches) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::Gpt>(models::TransformerSize{20, 16, 2, 4, 6, 0.1});
        return program(net, sgd(*net, 0.1), [net](const Batch& batch) {
          return models::token_loss(net->forward(batch[0]), batch[1]);
        });
      },
      [](int) {
        return Batch{classes(20, {8, 6}), classes(20, {8, 6})};
      },
      bit_equal(), Variant().micro_batches(4)));
}

TEST(Random, StackedLstmWithDropoutBetweenItsLayers) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::LstmLanguageModel>(20, 16, 2, /*dropout=*/0.3);
        return program(net, sgd(*net, 0.5), [net](const Batch& batch) {
          return models::token_loss(net->forward(batch[0]), batch[1]);
        });
      },
      [](int) {
        return Batch{classes(20, {4, 6}), classes(20, {4, 6})};
      },
      bit_equal()));
}

TEST(Random, WhatTheUserDrawsBetweenTheStepsIsTheSame) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::EncoderClassifier>(20, 16, 1, 6, 3, /*dropout=*/0.2);
        return program(net, sgd(*net, 0.1), classification(net));
      },
      // The third batch has another shape, which is recorded anew.
      [](int step) {
        const int64_t rows = step == 2 ? 3 : 4;
        return Batch{classes(20, {rows, 6}), classes(3, {rows})};
      },
      bit_equal(), Variant().draw_in_loop()));
}

TEST(Random, ASeedSetBetweenTheStepsIsHeard) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::Vae>(20, 16, 4);
        Program result = program(net, sgd(*net, 1e-3),
                                 [net](const Batch& batch) { return net->loss(batch[0]); });
        result.before_step = [](int step) { torch::manual_seed(step % 2); };
        return result;
      },
      [](int) {
        return Batch{torch::rand({8, 20})};
      },
      bit_equal()));
}

struct Drawing {
  const char* name;
  std::function<torch::Tensor(torch::Tensor)> body;  // [8, 16] to [8, 16]
};
void PrintTo(const Drawing& drawing, std::ostream* out) { *out << drawing.name; }

class RandomOperator : public testing::TestWithParam<Drawing> {};

TEST_P(RandomOperator, DrawsAsInThePlainLoop) {
  EXPECT_TRUE(parity(
      [body = GetParam().body] {
        auto net = std::make_shared<models::Mlp>(8, 16, 2, 4);
        return program(net, sgd(*net, 0.1), [net, body](const Batch& batch) {
          auto x = body(net->layers[0]->as<torch::nn::Linear>()->forward(batch[0]));
          return cross_entropy(net->layers[2]->as<torch::nn::Linear>()->forward(x), batch[1]);
        });
      },
      [](int) {
        return Batch{torch::randn({8, 8}), classes(4, {8})};
      },
      bit_equal()));
}

INSTANTIATE_TEST_SUITE_P(
    Random, RandomOperator,
    testing::Values(
        Drawing{"dropout", [](auto x) { return torch::dropout(x, 0.5, true); }},
        Drawing{"dropout_in_place",
                [](auto x) { return F::dropout(x, F::DropoutFuncOptions().p(0.5).inplace(true)); }},
        Drawing{"dropout_of_channels",
                [](auto x) {
                  return F::dropout2d(x.view({8, 4, 2, 2}), F::Dropout2dFuncOptions().p(0.5))
                      .view({8, 16});
                }},
        Drawing{"alpha_dropout",
                [](auto x) {
                  return F::alpha_dropout(x, F::AlphaDropoutFuncOptions().p(0.3).training(true));
                }},
        Drawing{"rrelu", [](auto x) { return F::rrelu(x, F::RReLUFuncOptions().training(true)); }},
        Drawing{"rrelu_in_place",
                [](auto x) {
                  return F::rrelu(x * 1, F::RReLUFuncOptions().training(true).inplace(true));
                }},
        Drawing{"gumbel_softmax",
                [](auto x) { return F::gumbel_softmax(x, F::GumbelSoftmaxFuncOptions().dim(1)); }},
        Drawing{"normal_in_place",
                [](auto x) {
                  return x + torch::empty({8, 16}).normal_(0, 0.1);
                }},
        Drawing{"uniform_and_bernoulli",
                [](auto x) {
                  return x * torch::rand({8, 16}) * torch::bernoulli(torch::full({8, 16}, 0.5));
                }},
        Drawing{"bernoulli_of_what_the_net_says",
                [](auto x) { return x + torch::bernoulli(torch::sigmoid(x).detach()); }},
        Drawing{"randint_and_permutation",
                [](auto x) {
                  return x.index_select(0, torch::randperm(8)) + torch::randint(0, 3, {8, 16});
                }},
        Drawing{"multinomial",
                [](auto x) {
                  auto rows = torch::multinomial(torch::ones({8}), 8, /*replacement=*/true);
                  return x.index_select(0, rows);
                }},
        Drawing{"exponential",
                [](auto x) { return x * torch::empty_like(x).exponential_().detach(); }}),
    [](const auto& info) { return info.param.name; });

// --- generators that the step itself makes or sets
// -------------------------------------------------------------------------------

using Drawer = std::function<torch::Tensor(torch::Tensor x)>;  // [rows, 8] to [rows, 8]

MakeProgram drawing_by(const std::function<Drawer()>& make_drawer) {
  return [make_drawer] {
    auto net = std::make_shared<models::Mlp>(8, 16, 2, 4);
    const Drawer draw = make_drawer();
    return program(net, sgd(*net, 0.1), [net, draw](const Batch& batch) {
      return cross_entropy(net->forward(draw(batch[0])), batch[1]);
    });
  };
}

// A replay knows operators alone: it would go on where the generator stands.
testing::AssertionResult in_all_layouts(const MakeProgram& make) {
  const MakeBatch batch = [](int) { return Batch{torch::randn({8, 8}), classes(4, {8})}; };
  const Variant variant = Variant().steps(6).differs_by_rows("each call draws its own numbers");
  const Exactness rounding = within(1e-5, "sums over devices in another order");
  auto result = parity(make, batch, bit_equal(), variant);
  for (int devices : {1, 2}) {
    for (int micro_batches : {1, 2}) {
      if (!result) return result;
      result = parity(make, batch, rounding,
                      Variant(variant).devices(devices).micro_batches(micro_batches));
      if (!result) result << " on " << devices << " devices, " << micro_batches;
    }
  }
  return result;
}

torch::Tensor noisy(const torch::Tensor& x, const at::Generator& generator) {
  return x * (1 + torch::randn({8}, generator));
}

TEST(GeneratorInTheStep, IsMadeThere) {
  EXPECT_TRUE(in_all_layouts(drawing_by([] {
    return [](torch::Tensor x) { return noisy(x, at::make_generator<at::CPUGeneratorImpl>(1234)); };
  })));
}

TEST(GeneratorInTheStep, IsMadeThereAndKept) {
  EXPECT_TRUE(in_all_layouts(drawing_by([] {
    auto kept = std::make_shared<at::Generator>();
    return [kept](torch::Tensor x) {
      *kept = at::make_generator<at::CPUGeneratorImpl>(1234);
      return noisy(x, *kept);
    };
  })));
}

TEST(GeneratorInTheStep, IsSeededThere) {
  EXPECT_TRUE(in_all_layouts(drawing_by([] {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(1);
    return [generator](torch::Tensor x) mutable {
      generator.set_current_seed(77);
      return noisy(x, generator);
    };
  })));
}

TEST(GeneratorInTheStep, IsSeededThereAfterItWasDrawnFrom) {
  EXPECT_TRUE(in_all_layouts(drawing_by([] {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(1);
    return [generator](torch::Tensor x) mutable {
      x = noisy(x, generator);
      generator.set_current_seed(77);
      return x;
    };
  })));
}

// It used to be refused for numbers that data_ptr() or another thread had made.
TEST(GeneratorInTheStep, IsTheProgramsAndIsSeeded) {
  EXPECT_TRUE(in_all_layouts(drawing_by([] {
    return [](torch::Tensor x) {
      torch::manual_seed(3);
      return torch::dropout(x, 0.5, true);
    };
  })));
}

TEST(GeneratorInTheStep, IsTheProgramsAndIsSeededWhereNothingIsDrawn) {
  const MakeProgram make = drawing_by([] {
    return [](torch::Tensor x) {
      torch::manual_seed(3);
      return x;
    };
  });
  EXPECT_TRUE(parity(
      make,
      [](int) {
        return Batch{torch::randn({8, 8}), classes(4, {8})};
      },
      bit_equal(), Variant().draw_in_loop()));
}

TEST(GeneratorInTheStep, IsSetBackForAMetric) {
  EXPECT_TRUE(in_all_layouts(drawing_by([] {
    return [](torch::Tensor x) {
      x = torch::dropout(x, 0.5, true);
      at::Generator generator = at::detail::getDefaultCPUGenerator();
      const torch::Tensor state = generator.get_state();
      const torch::Tensor noise = torch::randn({8});
      generator.set_state(state);
      return x + noise;
    };
  })));
}

// Recomputes in backward, with the masks of the forward pass.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static torch::Tensor compute(const torch::Tensor& x, const torch::Tensor& weight) {
    return torch::dropout(x.matmul(weight.t()), 0.5, true).tanh();
  }
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& weight) {
    context->saved_data["numbers"] = at::detail::getDefaultCPUGenerator().get_state();
    context->save_for_backward({x, weight});
    return compute(x, weight);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const torch::Tensor x = saved[0].detach().requires_grad_();
    const torch::Tensor weight = saved[1].detach().requires_grad_();
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const torch::Tensor now = generator.get_state();
    generator.set_state(context->saved_data["numbers"].toTensor());
    const at::AutoGradMode grad_mode(true);
    const torch::Tensor again = compute(x, weight);
    generator.set_state(now);
    return torch::autograd::grad({again}, {x, weight}, {gradients[0]});
  }
};

TEST(GeneratorInTheStep, IsSetBackByACheckpoint) {
  EXPECT_TRUE(in_all_layouts([] {
    auto net = std::make_shared<models::Mlp>(8, 16, 2, 4);
    return program(net, sgd(*net, 0.1), [net](const Batch& batch) {
      const torch::Tensor x =
          Checkpoint::apply(batch[0], net->layers[0]->as<torch::nn::Linear>()->weight);
      return cross_entropy(net->layers[2]->as<torch::nn::Linear>()->forward(x), batch[1]);
    });
  }));
}

// One that lives on, and that the loop may seed, is drawn from as before: the step is replayed.
TEST(GeneratorOfTheLoop, IsDrawnFromByReplays) {
  auto calls = std::make_shared<int>(0);
  const MakeProgram make = [calls] {
    auto generator = std::make_shared<at::Generator>(at::make_generator<at::CPUGeneratorImpl>(1));
    Program result = drawing_by([calls, generator] {
      return [calls, generator](torch::Tensor x) {
        ++*calls;
        return torch::dropout(noisy(noisy(x, *generator), *generator), 0.5, true);
      };
    })();
    result.before_step = [generator](int step) {
      if (step % 3 == 0) generator->set_current_seed(5);
    };
    return result;
  };
  const int steps = 8;
  EXPECT_TRUE(parity(
      make,
      [](int) {
        return Batch{torch::randn({8, 8}), classes(4, {8})};
      },
      bit_equal(), Variant().steps(steps)));
  EXPECT_EQ(*calls, steps + 2) << "the plain loop's and two recordings";
}

// --- the program's own numbers, between the steps
// -------------------------------------------------------------------------------

struct Dropping : torch::nn::Module {
  Dropping() {
    first = register_module("first", torch::nn::Linear(8, 16));
    second = register_module("second", torch::nn::Linear(16, 4));
  }
  // Two stages, where the devices are there for them.
  torch::Tensor loss(const Batch& batch, bool staged) {
    std::optional<With> scope;
    if (staged) scope.emplace(replicate(1, "first"));
    torch::Tensor x = F::dropout(first->forward(batch[0]).relu(), F::DropoutFuncOptions().p(0.3));
    scope.reset();
    if (staged) scope.emplace(replicate(1, "second"));
    x = F::dropout(second->forward(x), F::DropoutFuncOptions().p(0.2));
    return cross_entropy(x, batch[1]);
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

// What a program draws after three steps: the order of its next epoch, for one.
torch::Tensor numbers_after(bool epl, int parts, bool staged) {
  torch::manual_seed(5);
  auto net = std::make_shared<Dropping>();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const StepFunction step = [&](const Batch& batch) { return net->loss(batch, staged && epl); };
  std::optional<Trainer> trainer;
  if (epl) trainer.emplace(net, optimizer, step);
  for (int i = 0; i < 3; ++i) {
    const Batch all{torch::randn({16, 8}), classes(4, {16})};
    if (epl) {
      trainer->step({all[0].narrow(0, 0, 16 / parts), all[1].narrow(0, 0, 16 / parts)});
    } else {
      optimizer.zero_grad();
      step(all).loss.backward();
      optimizer.step();
    }
  }
  return torch::randperm(16);
}

TEST(Random, NumbersOfTheProgramAreThePlainLoopsWhateverTheLayout) {
  const torch::Tensor plain = numbers_after(false, 1, false);
  for (int devices : {1, 2, 4}) {
    for (int64_t micro_batches : {1, 2}) {
      for (bool staged : {false, true}) {
        if (staged && devices == 1) continue;
        const OnDevices on(devices);
        init(Config{{"pipeline.num_micro_batch", micro_batches}});
        EXPECT_TRUE(numbers_after(true, 1, staged).equal(plain))
            << devices << " devices, " << micro_batches << " micro batches"
            << (staged ? ", two stages" : "");
      }
    }
  }
}

TEST(Random, NumbersOfTheProgramAreThePlainLoopsOnEveryWorker) {
  const torch::Tensor plain = numbers_after(false, 1, false);
  run_on_workers({1, 1}, [&](int) {
    init();
    EXPECT_TRUE(numbers_after(true, 2, false).equal(plain));
  });
}

}  // namespace
}  // namespace epl::parity

// The programs of docs/porting.md on two devices and on two micro batches: they must train as the
// plain loop trains on the whole batch.
#include "tests/parity/on_devices.h"
#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

namespace F = torch::nn::functional;
using torch::Tensor;
using Tensors = std::vector<Tensor>;

// One update, by a trainer or by the plain loop.
class Steps {
 public:
  Steps(bool by_epl, std::vector<NamedModule> modules, torch::optim::Optimizer& optimizer,
        StepFunction step)
      : step_(step), optimizer_(optimizer) {
    if (by_epl) trainer_.emplace(std::move(modules), OptimizerList{optimizer}, std::move(step));
  }

  std::map<std::string, Tensor> step(const Batch& batch) {
    if (trainer_) return trainer_->step(batch).metrics;
    optimizer_.zero_grad();
    const StepOutput output = step_(batch);
    output.loss.backward();
    optimizer_.step();
    return output.metrics;
  }

 private:
  StepFunction step_;
  torch::optim::Optimizer& optimizer_;
  std::optional<Trainer> trainer_;
};

// `train` gives all that it has trained or counted.
void expect_the_plain_loop(const std::function<Tensors(bool by_epl)>& train) {
  init();
  torch::manual_seed(5);
  const Tensors plain = train(false);
  for (const auto& [devices, micro_batches] : {std::pair(2, 1), std::pair(1, 2), std::pair(2, 2)}) {
    const OnDevices on(devices);
    init(Config{{"pipeline.num_micro_batch", micro_batches}});
    torch::manual_seed(5);
    const Tensors found = train(true);
    ASSERT_EQ(plain.size(), found.size());
    for (size_t i = 0; i < plain.size(); ++i) {
      EXPECT_TRUE(same_tensor("tensor " + std::to_string(i), plain[i].detach(), found[i].detach(),
                              within(1e-5, "sums over parts in another order")))
          << devices << " devices, " << micro_batches << " micro batches";
    }
  }
}

TEST(PortedProgram, CountsRightAnswers) {
  expect_the_plain_loop([](bool by_epl) {
    torch::nn::Linear net(6, 4);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    Steps steps(by_epl, {{"", net.ptr()}}, optimizer, [&](const Batch& batch) {
      auto scores = net->forward(batch[0]);
      return StepOutput(F::cross_entropy(scores, batch[1]),
                        {{"right", scores.argmax(1).eq(batch[1]).sum()}});
    });
    int64_t right = 0;
    for (int i = 0; i < 4; ++i) {
      right += steps.step({torch::randn({16, 6}), classes(4, {16})}).at("right").item<int64_t>();
    }
    Tensors all = net->parameters();
    all.push_back(torch::tensor({right}));
    return all;
  });
}

TEST(PortedProgram, GivesANumberThatChangesOnceARow) {
  expect_the_plain_loop([](bool by_epl) {
    torch::nn::Linear net(6, 4);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    Steps steps(by_epl, {{"", net.ptr()}}, optimizer, [&](const Batch& batch) {
      auto scores = net->forward(batch[0]);
      return F::cross_entropy(scores, batch[1]) + batch[2][0] * scores.square().mean();
    });
    for (int i = 0; i < 4; ++i) {
      steps.step({torch::randn({16, 6}), classes(4, {16}), torch::full({16}, 0.1 * i)});
    }
    return net->parameters();
  });
}

TEST(PortedProgram, HandsAHiddenStateOnFromStepToStep) {
  expect_the_plain_loop([](bool by_epl) {
    torch::nn::LSTM lstm(torch::nn::LSTMOptions(3, 5).batch_first(true));
    torch::nn::Linear head(5, 4);
    Tensors parameters = lstm->parameters();
    for (const Tensor& parameter : head->parameters()) parameters.push_back(parameter);
    torch::optim::SGD optimizer(parameters, 0.1);
    Tensor plain_h, plain_c;
    Steps steps(by_epl, {{"lstm", lstm.ptr()}, {"head", head.ptr()}}, optimizer,
                [&](const Batch& batch) {
                  auto state = std::make_tuple(batch[2].transpose(0, 1).contiguous(),
                                               batch[3].transpose(0, 1).contiguous());
                  auto [out, next] = lstm->forward(batch[0], state);
                  auto h = std::get<0>(next).transpose(0, 1);
                  auto c = std::get<1>(next).transpose(0, 1);
                  add_to_collection(collections::kGlobalConcat, h, "h");
                  add_to_collection(collections::kGlobalConcat, c, "c");
                  if (!by_epl) plain_h = h.detach(), plain_c = c.detach();
                  return F::cross_entropy(head->forward(out.select(1, -1)), batch[1]);
                });
    Tensor h = torch::zeros({16, 1, 5});
    Tensor c = torch::zeros({16, 1, 5});
    for (int i = 0; i < 4; ++i) {
      auto metrics = steps.step({torch::randn({16, 7, 3}), classes(4, {16}), h, c});
      h = by_epl ? metrics.at("h") : plain_h;
      c = by_epl ? metrics.at("c") : plain_c;
    }
    parameters.push_back(h);
    return parameters;
  });
}

TEST(PortedProgram, TrainsTwoNetsInTurnsOnTheSameNoise) {
  expect_the_plain_loop([](bool by_epl) {
    using namespace torch::nn;
    Sequential D(Linear(12, 16), LeakyReLU(), Linear(16, 1), Sigmoid());
    Sequential G(Linear(8, 16), ReLU(), Linear(16, 12), Tanh());
    torch::optim::SGD d_optimizer(D->parameters(), 0.1);
    torch::optim::SGD g_optimizer(G->parameters(), 0.1);
    const std::vector<NamedModule> nets{{"D", D.ptr()}, {"G", G.ptr()}};
    Steps d_steps(by_epl, nets, d_optimizer, [&](const Batch& batch) {
      const auto rows = batch[0].size(0);
      auto real = D->forward(batch[0]).flatten();
      auto fake = D->forward(G->forward(batch[1]).detach()).flatten();
      return F::binary_cross_entropy(real, torch::full({rows}, 0.9)) +
             F::binary_cross_entropy(fake, torch::zeros({rows}));
    });
    Steps g_steps(by_epl, nets, g_optimizer, [&](const Batch& batch) {
      auto verdict = D->forward(G->forward(batch[0])).flatten();
      return F::binary_cross_entropy(verdict, torch::ones_like(verdict));
    });
    for (int i = 0; i < 4; ++i) {
      const Tensor images = torch::randn({16, 12});
      const Tensor noise = torch::randn({16, 8});
      d_steps.step({images, noise});
      g_steps.step({noise});
    }
    Tensors all = D->parameters();
    for (const Tensor& parameter : G->parameters()) all.push_back(parameter);
    return all;
  });
}

}  // namespace
}  // namespace epl::parity

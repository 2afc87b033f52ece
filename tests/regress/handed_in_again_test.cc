// A step that writes a tensor of its batch in place works on a copy of it. A loop that handed the
// same tensor in again trained on the first contents for ever, where the plain program goes on with
// what the last step has left: now it is an error. And two parameters that set_data() put on one
// memory ended in "map::at": such a step runs as the plain program would.
#include <epl/epl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace epl {
namespace {

using torch::Tensor;

std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

struct Scaled {
  Scaled() {
    init();
    weight = torch::ones({3}).requires_grad_();
    optimizer = std::make_unique<torch::optim::SGD>(std::vector<Tensor>{weight}, 0.5);
    trainer = std::make_unique<Trainer>(
        std::vector<NamedModule>{}, OptimizerList{*optimizer},
        [this](const Batch& batch) { return (weight * batch[0].mul_(0.5)).sum(); });
  }
  Tensor weight;
  std::unique_ptr<torch::optim::SGD> optimizer;
  std::unique_ptr<Trainer> trainer;
};

TEST(BatchWrittenInPlace, IsRefusedWhenItIsHandedInAgain) {
  Scaled scaled;
  const Tensor rows = torch::ones({3});
  const std::string said = error_of([&] {
    for (int i = 0; i < 4; ++i) scaled.trainer->step({rows});
  });
  EXPECT_THAT(said, testing::HasSubstr("tensor 0 of the batch is handed in again, and the step "
                                       "writes it in place (aten::mul_.Scalar)"));
}

TEST(BatchWrittenInPlace, IsFineWhenItIsFilledAnew) {
  Scaled scaled;
  Tensor rows = torch::ones({3});
  for (int i = 0; i < 4; ++i) {
    rows.fill_(2);
    EXPECT_EQ(error_of([&] { scaled.trainer->step({rows}); }), "no error");
    EXPECT_EQ(error_of([&] { scaled.trainer->step({torch::full({3}, 2.0f)}); }), "no error");
  }
  EXPECT_TRUE(scaled.weight.equal(torch::full({3}, 1 - 8 * 0.5f)));
}

// Both parameters have a gradient, and both updates reach the one memory.
TEST(SharedMemory, OfTwoParametersIsUpdatedByBoth) {
  const auto train = [](bool by_epl) {
    torch::manual_seed(1);
    torch::nn::Linear first(4, 4), second(4, 4);
    second->weight.set_data(first->weight.data());
    torch::nn::Sequential net(first, torch::nn::Tanh(), second);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const auto loss = [&](const Batch& batch) {
      return (net->forward(batch[0]) - batch[1]).square().mean();
    };
    Trainer trainer(net, optimizer, loss);
    for (int i = 0; i < 4; ++i) {
      const Batch batch{torch::randn({8, 4}), torch::randn({8, 4})};
      if (by_epl) {
        trainer.step(batch);
      } else {
        optimizer.zero_grad();
        loss(batch).backward();
        optimizer.step();
      }
    }
    return second->weight.detach().clone();
  };
  init();
  EXPECT_TRUE(train(true).allclose(train(false), 1e-6, 1e-7));
}

}  // namespace
}  // namespace epl

// A step that writes a tensor of its batch in place works on a copy of it. A loop that handed the
// same tensor in again trained on the first contents for ever, where the plain program goes on with
// what the last step has left: now it is an error, and so is a batch whose tensors share memory
// that the step writes. A batch that is computed from a trained parameter lost its gradient. And
// two parameters that set_data() put on one memory ended in "map::at": such a step runs as the
// plain program would.
#include <epl/epl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/parity/on_devices.h"

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

const char* const kAgain = "tensor 0 of the batch is handed in again";

std::string error_of_steps(const std::vector<Tensor>& batches, int steps, int devices = 1,
                           const Config& config = {}, bool counts = false) {
  const parity::OnDevices on(devices);
  init(config);
  Tensor weight = torch::ones({3}).requires_grad_();
  torch::optim::SGD optimizer({weight}, 0.5);
  int calls = 0;
  Trainer trainer({}, {optimizer}, [&](const Batch& batch) {
    return (weight * batch[0].mul_(0.5)).sum() * (counts ? 1.0 + ++calls : 1.0);
  });
  const std::string said = error_of([&] {
    for (int i = 0; i < steps; ++i) {
      trainer.step({batches[std::min<size_t>(static_cast<size_t>(i), batches.size() - 1)]});
    }
  });
  init();
  return said;
}

std::vector<Tensor> some_batches() {
  return {torch::ones({4, 3}), torch::ones({4, 3}), torch::ones({4, 3})};
}

TEST(BatchWrittenInPlace, IsRefusedWhenOthersCameBetween) {
  const auto three = some_batches();
  EXPECT_THAT(error_of_steps({three[0], three[1], three[2], three[0]}, 4),
              testing::HasSubstr(kAgain));
}

TEST(BatchWrittenInPlace, IsRefusedOnDevicesAndInMicroBatches) {
  const Tensor one = torch::ones({4, 3});
  for (int parts : {2, 4}) {  // with four of them two are run without being looked at
    EXPECT_THAT(error_of_steps({one}, 2, parts), testing::HasSubstr(kAgain));
    EXPECT_THAT(error_of_steps({one}, 2, 1, Config{{"pipeline.num_micro_batch", parts}}),
                testing::HasSubstr(kAgain));
  }
}

// The second step finds the counter, and has written a copy: the third would read what it read.
TEST(BatchWrittenInPlace, IsRefusedAfterAStepThatWasLookedAt) {
  const auto three = some_batches();
  EXPECT_THAT(error_of_steps({three[0], three[1], three[1]}, 3, 1, {}, true),
              testing::HasSubstr(kAgain));
}

TEST(BatchWrittenInPlace, MayBeASliceOfALargerTensor) {
  const Tensor store = torch::ones({16, 3});
  std::vector<Tensor> slices;
  for (int i = 0; i < 4; ++i) slices.push_back(store.narrow(0, 4 * i, 4));
  EXPECT_EQ(error_of_steps(slices, 4), "no error");
  slices.push_back(store.narrow(0, 3, 4));
  EXPECT_THAT(error_of_steps(slices, 5), testing::HasSubstr(kAgain));
}

TEST(BatchWrittenInPlace, IsRefusedWhereAnotherTensorSharesItsMemory) {
  init();
  Tensor weight = torch::ones({3}).requires_grad_();
  torch::optim::SGD optimizer({weight}, 0.5);
  Trainer trainer({}, {optimizer}, [&](const Batch& batch) {
    return (weight * batch[0].mul_(2) - batch[1]).square().sum();
  });
  for (int i = 0; i < 3; ++i) {
    const Tensor store = torch::ones({8, 3});
    EXPECT_EQ(error_of([&] {
                trainer.step({store.narrow(0, 0, 4), store.narrow(0, 4, 4)});
              }),
              "no error");
  }
  const Tensor rows = torch::ones({4, 3});
  EXPECT_THAT(error_of([&] {
                trainer.step({rows, rows});
              }),
              testing::HasSubstr("tensors 0 and 1 of the batch share memory, and the step writes "
                                 "tensor 0 in place (aten::mul_.Scalar)"));
}

TEST(BatchWrittenInPlace, IsRefusedWhereTheStepClosesOverItsMemory) {
  init();
  Tensor weight = torch::ones({3}).requires_grad_(), rows = torch::ones({4, 3});
  torch::optim::SGD optimizer({weight}, 0.5);
  Trainer trainer({}, {optimizer}, [&](const Batch& batch) {
    rows.mul_(2);
    return (weight * batch[0]).square().sum();
  });
  EXPECT_THAT(error_of([&] { trainer.step({rows}); }),
              testing::HasSubstr("tensor 0 of the batch shares memory with"));
}

// --- batches that autograd knows
// ------------------------------------------------------------------

struct Encoded {
  Encoded() {
    init();
    optimizer = std::make_unique<torch::optim::SGD>(std::vector<Tensor>{weight, code}, 0.5);
    trainer = std::make_unique<Trainer>(
        std::vector<NamedModule>{}, OptimizerList{*optimizer},
        [this](const Batch& batch) { return (weight * batch[0]).square().sum(); });
  }
  Tensor weight = torch::ones({3}).requires_grad_(), code = torch::ones({4, 3}).requires_grad_();
  std::unique_ptr<torch::optim::SGD> optimizer;
  std::unique_ptr<Trainer> trainer;
};

TEST(BatchWithAutograd, OfATrainedParameterIsRefused) {
  Encoded encoded;
  EXPECT_THAT(error_of([&] { encoded.trainer->step({encoded.code.tanh() * 2}); }),
              testing::HasSubstr("tensor 0 of the batch was computed from the parameter "
                                 "`optimizer0.parameter1`, which the trainer trains"));
  EXPECT_THAT(error_of([&] { encoded.trainer->step({encoded.code}); }),
              testing::HasSubstr("tensor 0 of the batch is the parameter `optimizer0.parameter1`"));
}

// Their gradients are the loop's business, but its backward() would have found them.
TEST(BatchWithAutograd, OfOthersIsTakenAndTold) {
  Encoded encoded;
  const Tensor other = torch::ones({4, 3}).requires_grad_();
  testing::internal::CaptureStderr();
  encoded.trainer->step({encoded.code.detach()});
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::Not(testing::HasSubstr("requires a gradient")));
  testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) encoded.trainer->step({other.tanh() * 2});
  const std::string said = testing::internal::GetCapturedStderr();
  const size_t first = said.find("a tensor of the batch requires a gradient");
  EXPECT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find("requires a gradient", first + 30), std::string::npos) << "said once";
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(error_of([&] { encoded.trainer->step({other.tanh() * 2}); }), "no error");
    EXPECT_EQ(error_of([&] { encoded.trainer->step({encoded.code.detach()}); }), "no error");
    EXPECT_EQ(error_of([&] { encoded.trainer->step({other}); }), "no error");
  }
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

// A step that writes a parameter: weights clipped as in a Wasserstein GAN, normalised, or the rows
// of an embedding with max_norm. On N devices of a worker every update lost (N - 1) / N: the
// parameter was averaged after the update with the copies of other devices, which were not updated.
// Now what devices wrote is brought together before the update, element by element: who wrote
// counts. The reference is the plain loop on the undivided batch.
#include <gmock/gmock.h>

#include "tests/parity/on_devices.h"
#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

using torch::nn::EmbeddingOptions;

const Exactness kRounding = within(1e-5, "sums over rows in another order");

struct Net : torch::nn::Module {
  Net() : table(EmbeddingOptions(40, 6).max_norm(0.5)), first(6, 8), last(8, 3) {
    register_module("table", table);
    register_module("first", first);
    register_module("last", last);
  }
  torch::Tensor forward(const torch::Tensor& words) {
    return last(torch::tanh(first(table(words).mean(1))));
  }
  torch::nn::Embedding table;
  torch::nn::Linear first;
  torch::nn::Linear last;
};

// Most rows of the table are looked up by some devices only.
Batch words(int) { return {classes(40, {16, 3}), classes(3, {16})}; }

Program embedding() {
  auto net = std::make_shared<Net>();
  return program(net, sgd(*net, 0.5, 0.9), classification(net));
}

Program clipped_in_the_step() {
  auto net = std::make_shared<Net>();
  return program(net, sgd(*net, 0.2, 0.9), [net](const Batch& batch) {
    {
      const torch::NoGradGuard no_grad;
      for (auto& weight : {net->first->weight, net->last->weight}) weight.clamp_(-0.2, 0.2);
    }
    return cross_entropy(net->forward(batch[0]), batch[1]);
  });
}

Program normalised_in_the_step() {
  auto net = std::make_shared<Net>();
  return program(net, sgd(*net, 0.5), [net](const Batch& batch) {
    {
      const torch::NoGradGuard no_grad;
      net->first->weight.div_(net->first->weight.norm(2, {1}, true));
    }
    return cross_entropy(net->forward(batch[0]), batch[1]);
  });
}

class WrittenParameter : public testing::TestWithParam<std::vector<int>> {
 protected:
  static testing::AssertionResult as_undivided(const MakeProgram& make, int micro_batches = 1) {
    const Trace plain = train_plain(make, words);
    Variant variant = Variant().workers(GetParam()).micro_batches(micro_batches);
    if (GetParam().size() == 1) {
      return compare(plain, train_on_devices(make, words, variant), kRounding, variant);
    }
    for (const Trace& worker : train_on_workers(make, words, variant)) {
      if (auto same = compare(plain, worker, kRounding, variant); !same) return same;
    }
    return testing::AssertionSuccess();
  }
};

TEST_P(WrittenParameter, OfAnEmbeddingWithMaxNormIsWrittenWhereItWasLookedUp) {
  EXPECT_TRUE(as_undivided(embedding));
  EXPECT_TRUE(as_undivided(embedding, 2));
}

TEST_P(WrittenParameter, IsClippedBeforeItIsUpdated) {
  EXPECT_TRUE(as_undivided(clipped_in_the_step));
  EXPECT_TRUE(as_undivided(clipped_in_the_step, 2));
}

TEST_P(WrittenParameter, IsNormalisedBeforeItIsUpdated) {
  EXPECT_TRUE(as_undivided(normalised_in_the_step));
}

INSTANTIATE_TEST_SUITE_P(On, WrittenParameter,
                         testing::Values(std::vector<int>{1}, std::vector<int>{2},
                                         std::vector<int>{4}, std::vector<int>{1, 1},
                                         std::vector<int>{2, 2}),
                         [](const auto& info) {
                           return std::to_string(info.param.size()) + "_workers_of_" +
                                  std::to_string(info.param[0]);
                         });

TEST(WrittenParameter, ThatDependsOnTheRowsIsRefusedByNameAndStaysAsItWas) {
  const OnDevices devices(2);
  epl::init();
  auto net = std::make_shared<Net>();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  Trainer trainer(net, optimizer, [&](const Batch& batch) {
    {
      const torch::NoGradGuard no_grad;
      net->last->bias.add_(batch[2].mean());
    }
    return cross_entropy(net->forward(batch[0]), batch[1]);
  });
  Batch batch = words(0);
  batch.push_back(torch::arange(16, torch::kFloat));
  const torch::Tensor before = net->last->bias.detach().clone();
  try {
    trainer.step(batch);
    FAIL() << "it was trained";
  } catch (const epl::Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("different values into `last.bias`"));
  }
  EXPECT_TRUE(before.equal(net->last->bias));
}

// Integers and masks are not averaged: the first device's were taken, whatever the others had.
struct Seen : torch::nn::Module {
  explicit Seen(bool counts) : counts(counts) {
    register_module("last", last);
    mask = register_buffer("mask", torch::zeros({40}, torch::kBool));
    histogram = register_buffer("histogram", torch::zeros({40}, torch::kLong));
  }
  torch::Tensor forward(const torch::Tensor& words) {
    mask.index_fill_(0, words.reshape({-1}), true);
    if (counts) histogram.add_(torch::one_hot(words.reshape({-1}), 40).sum(0));
    return last(words.to(torch::kFloat));
  }
  bool counts;
  torch::nn::Linear last{3, 3};
  torch::Tensor mask;
  torch::Tensor histogram;
};

TEST(WrittenState, OfAMaskIsWhatAnyDeviceMarked) {
  const auto make = [] {
    auto net = std::make_shared<Seen>(false);
    return program(net, sgd(*net, 1e-4), classification(net));
  };
  const Trace plain = train_plain(make, words);
  for (const std::vector<int>& layout : {std::vector<int>{4}, std::vector<int>{1, 1}}) {
    const Variant variant = Variant().workers(layout);
    const Trace epl = layout.size() == 1 ? train_on_devices(make, words, variant)
                                         : train_on_workers(make, words, variant)[1];
    EXPECT_TRUE(compare(plain, epl, kRounding, variant));
  }
}

TEST(WrittenState, OfIntegersThatDifferBetweenDevicesIsRefusedByName) {
  const OnDevices devices(2);
  epl::init();
  auto net = std::make_shared<Seen>(true);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  Trainer trainer(net, optimizer, classification(net));
  try {
    torch::manual_seed(3);
    for (int i = 0; i < 3; ++i) trainer.step(words(i));
    FAIL() << "it was trained";
  } catch (const epl::Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("different values into `histogram`"));
  }
}

}  // namespace
}  // namespace epl::parity

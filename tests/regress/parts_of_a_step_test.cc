// What a user hears where a step of several parts does by their nature something else than the
// plain loop on all rows at once: each of these was silent, or said to be something else.
#include <epl/epl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/parity/heard.h"
#include "tests/parity/on_devices.h"

namespace epl {
namespace {

using testing::HasSubstr;
using testing::Not;
using torch::Tensor;
namespace nn = torch::nn;

struct Training {
  Config config = Config{{"pipeline.num_micro_batch", 2}};
  int steps = 4;
  int64_t rows = 8;
  std::function<Tensor(int step)> targets = [](int) { return torch::arange(8) % 4; };
};

using Step = std::function<StepOutput(nn::Linear& net, const Batch& batch)>;

// What is said, the error that ends it included.
std::string said_in(const Training& training, const Step& step) {
  init(training.config);
  const parity::Heard heard;
  std::string error;
  try {
    nn::Linear net(6, 4);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    Trainer trainer({{"", net.ptr()}}, {optimizer},
                    [&](const Batch& batch) { return step(net, batch); });
    for (int i = 0; i < training.steps; ++i) {
      trainer.step(
          {torch::randn({training.rows, 6}), training.targets(i).slice(0, 0, training.rows)});
    }
  } catch (const Error& failed) {
    error = failed.what();
  }
  init();
  return heard.str() + error;
}

StepOutput classify(nn::Linear& net, const Batch& batch) {
  return nn::functional::cross_entropy(net(batch[0]), batch[1]);
}

// --- ignored targets
// ------------------------------------------------------------------------------

// Each part divides by its own number of targets that count.
Tensor padded_later(int step) {
  Tensor targets = torch::arange(8) % 4;
  if (step == 3) targets[5] = -100;
  return targets;
}

TEST(PartsOfAStep, WithIgnoredTargetsAreToldOnceTheyCome) {
  Training training;
  training.targets = padded_later;
  training.steps = 3;
  EXPECT_EQ(said_in(training, classify), "");
  training.steps = 5;
  const std::string said = said_in(training, classify);
  EXPECT_THAT(said, HasSubstr("in step 3 a loss of reduction \"mean\" ignores targets"));
  EXPECT_THAT(said, HasSubstr("each of the 2 parts"));
  EXPECT_EQ(said.find("ignores targets"), said.rfind("ignores targets"));
  training.config = Config();
  EXPECT_EQ(said_in(training, classify), "") << "one part is the whole";
}

TEST(PartsOfAStep, WithIgnoredTargetsAreToldOnDevicesAndUnderSplit) {
  Training training;
  training.targets = padded_later;
  training.steps = 5;
  {
    const parity::OnDevices on(2);
    training.config = Config();
    EXPECT_THAT(said_in(training, classify), HasSubstr("each of the 2 parts"));
    training.config = Config{{"pipeline.num_micro_batch", 2}};
    const auto split_over = [](nn::Linear& net, const Batch& batch) {
      const With scope(split(2));
      return classify(net, batch);
    };
    EXPECT_THAT(said_in(training, split_over), HasSubstr("ignores targets"));
    const auto stages = [](nn::Linear& net, const Batch& batch) {
      Tensor x;
      {
        const With first(replicate(1, "first"));
        x = net(batch[0]);
      }
      const With second(replicate(1, "second"));
      return StepOutput(nn::functional::cross_entropy(x.tanh(), batch[1]));
    };
    EXPECT_THAT(said_in(training, stages), HasSubstr("ignores targets"));
  }
}

// Silent once: in steps that run plainly no operator of a plan looks at the targets.
TEST(PartsOfAStep, WithIgnoredTargetsAreToldWhereTheyRunPlainly) {
  const auto padded_in = [](int which) {
    return [which](int step) {
      Tensor targets = torch::arange(8) % 4;
      if (step == which) targets[5] = -100;
      return targets;
    };
  };
  int calls = 0;
  const auto counts = [&](nn::Linear& net, const Batch& batch) {
    return StepOutput(classify(net, batch).loss * ++calls);
  };
  Training training;
  training.targets = padded_in(0);  // the first step is recorded
  EXPECT_THAT(said_in(training, classify), HasSubstr("in step 0 a loss of reduction"));
  training.targets = padded_in(1);
  EXPECT_THAT(said_in(training, classify), HasSubstr("in step 1 a loss of reduction"));
  training.targets = padded_in(3);
  EXPECT_THAT(said_in(training, counts), HasSubstr("in step 3 a loss of reduction"));
  const parity::OnDevices on(2);
  training.config = Config();
  EXPECT_THAT(said_in(training, counts), HasSubstr("in step 3 a loss of reduction"));
  training.rows = 7;  // one device takes all of them
  EXPECT_THAT(said_in(training, classify), Not(HasSubstr("ignores targets")));
}

TEST(PartsOfAStep, OfWhichOneHasNoTargetsAreNamedInTheError) {
  Training training;
  training.steps = 3;
  training.targets = [](int step) {
    Tensor targets = torch::arange(8) % 4;
    if (step == 2) targets.slice(0, 4).fill_(-100);
    return targets;
  };
  const std::string said = said_in(training, classify);
  EXPECT_THAT(said, HasSubstr("(that of micro batch 1 on device 0; others are finite)"));
  EXPECT_THAT(said, HasSubstr("all targets of this one may be ignored or masked"));
}

// --- metrics
// --------------------------------------------------------------------------------------

TEST(PartsOfAStep, WhoseMetricHasRowsAreToldThatItIsAveraged) {
  const auto with = [](const char* collection) {
    return [collection](nn::Linear& net, const Batch& batch) {
      const Tensor logits = net(batch[0]);
      if (collection != nullptr) add_to_collection(collection, logits, "logits");
      StepOutput output = nn::functional::cross_entropy(logits, batch[1]);
      if (collection == nullptr) output.metrics["logits"] = logits;
      output.metrics["accuracy"] = (logits.argmax(1) == batch[1]).to(torch::kFloat).mean();
      return output;
    };
  };
  EXPECT_THAT(said_in({}, with(nullptr)), HasSubstr("the metric `logits` has a row for each"));
  EXPECT_EQ(said_in({}, with(collections::kGlobalConcat)), "");
}

// --- steps that run plainly, and batches that are not cut
// -----------------------------------------

TEST(PartsOfAStep, ThatRunPlainlySayWhoseNumbersTheyHave) {
  int calls = 0;
  const auto counts = [&](nn::Linear& net, const Batch& batch) {
    return StepOutput(classify(net, batch).loss * ++calls);
  };
  Training training;
  training.config = Config{{"pipeline.num_micro_batch", 2}, {"debug.verify_steps", 2}};
  const std::string said = said_in(training, counts);
  EXPECT_THAT(said, HasSubstr("Each of its 2 parts (micro batches x replicas) calls the function"));
  EXPECT_THAT(said, Not(HasSubstr("numbers are right")));
  EXPECT_THAT(said, HasSubstr("step 0 is not verified, nor are others that run as the plain"));
}

TEST(PartsOfAStep, ThatRunPlainlySayWhatTheirLossIs) {
  const auto with = [](bool sums) {
    return [sums](nn::Linear& net, const Batch& batch) {
      const double first = static_cast<double>(batch[1].accessor<int64_t, 1>()[0]);
      const Tensor squares = net(batch[0]).square() * (1 + first);
      return StepOutput(sums ? squares.sum() : squares.mean());
    };
  };
  EXPECT_THAT(said_in({}, with(true)), HasSubstr("the loss of the step is a sum over the rows"));
  EXPECT_THAT(said_in({}, with(false)), Not(HasSubstr("the loss of the step is")));
}

TEST(PartsOfAStep, ThatAreNoneSinceTheBatchDoesNotDivide) {
  const parity::OnDevices on(2);
  Training training;
  training.config = Config();
  training.rows = 7;
  const std::string said = said_in(training, [](nn::Linear& net, const Batch& batch) {
    return StepOutput(net(batch[0]).square().sum());
  });
  EXPECT_THAT(said, HasSubstr("[7, 6], long int[7] cannot be cut evenly over the 2 devices"));
  EXPECT_EQ(said.find("cannot be cut"), said.rfind("cannot be cut"));
  EXPECT_THAT(said, Not(HasSubstr("is a sum over the rows"))) << "nothing is averaged";
}

}  // namespace
}  // namespace epl

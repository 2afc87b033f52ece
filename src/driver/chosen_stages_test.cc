// Stages that EPL chooses: how often the step function runs for them, and what they are told of.
#include "base/text.h"
#include "driver/test_trainer.h"

namespace epl {
namespace {

using torch::Tensor;

// Four layers in two stages on two devices, and a function that counts its calls.
struct ChosenStages : TrainerFixture {
  using Forward = std::function<Tensor(ChosenStages&, const Tensor&)>;

  ChosenStages() {
    torch::manual_seed(1);
    set("EPL_DEVICES", "2");
    init(Config{{"auto.auto_parallel", true}, {"pipeline.num_stages", 2}});
    for (int i = 0; i < 4; ++i) net->push_back(torch::nn::Linear(3, 3));
  }

  // The calls in each of the steps with so many rows.
  std::vector<int> calls(const std::vector<int64_t>& rows, const Forward& forward) {
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    int count = 0;
    Trainer trainer(net, optimizer, [&](const Batch& batch) {
      ++count;
      return forward(*this, batch[0]).square().mean();
    });
    std::vector<int> result;
    for (int64_t each : rows) {
      const int before = count;
      trainer.step({torch::randn({each, 3})});
      result.push_back(count - before);
    }
    return result;
  }

  torch::nn::Sequential net;
};

// Three times to measure, the last of which is the recording that is cut. The second step looks at
// it again; a batch of another shape is cut at the same places.
TEST_F(ChosenStages, CallTheFunctionNoMoreThanItTakesToMeasure) {
  const auto forward = [](ChosenStages& test, const Tensor& x) { return test.net->forward(x); };
  EXPECT_EQ(calls({8, 8, 8, 16}, forward), (std::vector<int>{3, 1, 0, 1}));
}

// Cuts that were chosen by the first call, with operators that no other call does, would not fit.
TEST_F(ChosenStages, AreThoseOfAStepThatMadeATableInItsFirstCall) {
  Tensor table;
  const auto forward = [&](ChosenStages& test, const Tensor& x) {
    if (!table.defined()) table = (torch::ones({3}) + 1).sqrt();
    return test.net->forward(x * table);
  };
  EXPECT_EQ(calls({8, 8, 8, 16}, forward), (std::vector<int>{3, 1, 0, 1}));
}

// Also where a cut would lie behind its last operator.
TEST_F(ChosenStages, AreChosenAgainWhereAShapeTakesOtherOperators) {
  const auto forward = [](ChosenStages& test, const Tensor& x) {
    return x.size(0) > 8 ? test.net[0]->as<torch::nn::Linear>()->forward(x) + test.net->forward(x)
                         : test.net->forward(x);
  };
  EXPECT_EQ(calls({8, 8, 16, 8}, forward), (std::vector<int>{3, 1, 3, 0}));
  const auto shorter = [](ChosenStages& test, const Tensor& x) {
    return x.size(0) > 8 ? test.net[0]->as<torch::nn::Linear>()->forward(x) : test.net->forward(x);
  };
  EXPECT_EQ(calls({8, 8, 16, 8}, shorter), (std::vector<int>{3, 1, 3, 0}));
}

TEST_F(ChosenStages, RefuseScopesThatAreEnteredLater) {
  const auto forward = [](ChosenStages& test, const Tensor& x) {
    if (x.size(0) == 8) return test.net->forward(x);
    const With scope(replicate(1, "own"));
    return test.net->forward(x);
  };
  try {
    calls({8, 16}, forward);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(
        std::string(error.what())
            .find("epl: auto.auto_parallel chooses the strategies, and the program has its own\n"),
        0U)
        << error.what();
  }
}

}  // namespace
}  // namespace epl

// What a new user meets first: mistakes with the batch, LibTorch's own errors, a timeline, what a
// step took.
#include "driver/test_trainer.h"

namespace epl {
namespace {

using torch::Tensor;

using FirstContact = TrainerFixture;

std::string error_of_batch(const Batch& batch) {
  SmallTask task;
  Trainer trainer = task.trainer();
  const auto parameters = [&] {
    std::vector<Tensor> copies;
    for (const Tensor& each : task.net->parameters()) copies.push_back(each.detach().clone());
    return copies;
  };
  const auto before = parameters();
  const std::string message = error_of([&] { trainer.step(batch); });
  EXPECT_TRUE(same(parameters(), before));
  EXPECT_EQ(error_of([&] { trainer.step(rows(4)); }), "no error");
  return message;
}

// --- the batch -----------------------------------------------------------------------------------

// It was a read behind the end of a vector, and ended the process.
TEST_F(FirstContact, ReadingATensorThatStepWasNotGivenIsAnError) {
  EXPECT_EQ(
      error_of_batch({torch::ones({4, 3})}),
      "epl: there is no batch[1]: the batch has 1 tensor, float[4, 3]\n"
      "  asked by: the step function\n"
      "  try:      all that the function reads in step(): trainer.step({x, y}) for batch[0] and "
      "batch[1]");
  const std::string message = error_of_batch({});
  // Which one is read first is the compiler's choice.
  EXPECT_NE(message.find("]: the batch has 0 tensors\n"), std::string::npos) << message;
}

// It was the mean over nothing, and the advice was a smaller learning rate.
TEST_F(FirstContact, ABatchWithoutRowsIsAnError) {
  EXPECT_EQ(
      error_of_batch({torch::ones({0, 3}), torch::ones({0, 2})}),
      "epl: the batch has no rows: float[0, 3], float[0, 2]\n"
      "  asked by: epl::Trainer::step\n"
      "  try:      leave the step out; a loader drops an empty last batch by drop_last(true)");
}

// One empty tensor among others is data.
TEST_F(FirstContact, ATensorWithoutRowsBesideOthersIsNoError) {
  SmallTask task;
  Trainer trainer(task.net, *task.optimizer,
                  [&](const Batch& batch) { return task.step()(batch).loss + batch[2].sum(); });
  Batch batch = rows(4);
  batch.push_back(torch::empty({0, 5}));
  EXPECT_EQ(error_of([&] { trainer.step(batch); }), "no error");
}

TEST_F(FirstContact, ABatchIsAVectorOfTensors) {
  const Tensor x = torch::ones({2}), y = torch::zeros({3});
  const std::vector<Tensor> vector{x, y};
  Batch batch = vector;
  batch.push_back(x);
  const std::vector<Tensor> back = batch;
  EXPECT_EQ(back.size(), 3u);
  EXPECT_TRUE(back[2].is_same(x));
  EXPECT_TRUE(batch.at(1).is_same(y));
  const auto takes_vector = [](const std::vector<Tensor>& tensors) { return tensors.size(); };
  EXPECT_EQ(takes_vector(batch), 3u);
  Batch others(2);
  others[0] = y;
  EXPECT_TRUE(others.front().is_same(y));
  for (const Tensor& each : Batch{x, y}) EXPECT_TRUE(each.defined());

  SmallTask task;  // functions, sources and steps of plain vectors
  Trainer trainer(task.net, *task.optimizer, [&](const std::vector<Tensor>& tensors) {
    return (task.net->forward(tensors[0]) - tensors[1]).square().mean();
  });
  const std::vector<Tensor> plain = rows(4);
  trainer.step(plain);
  trainer.step([&] { return plain; });
  trainer.step({plain[0], plain[1]});
  EXPECT_EQ(error_of([&] { trainer.evaluate(task.step(), plain); }), "no error");
}

// --- what LibTorch says --------------------------------------------------------------------------

// It was a raw c10::Error with thirty frames, and no word of the rows that were cut.
TEST_F(FirstContact, AnErrorOfLibTorchTellsWhatTheBatchWasCutInto) {
  init(Config{{"pipeline.num_micro_batch", 4}});
  SmallTask task;
  const Tensor eight_rows = torch::ones({8, 2});
  Trainer trainer(task.net, *task.optimizer, [&](const Batch& batch) {
    return (task.net->forward(batch[0]) - eight_rows).square().mean();
  });
  const auto before = task.tensors();
  const std::string message = error_of([&] { trainer.step(rows(8)); });
  EXPECT_EQ(
      message,
      "epl: LibTorch says: The size of tensor a (2) must match the size of tensor b (8) at "
      "non-singleton dimension 0\n"
      "  asked by: epl::Trainer::step with a batch of float[8, 3], float[8, 2], cut into 4 parts "
      "(pipeline.num_micro_batch = 4, 1 device): the step function reads float[2, 3], float[2, 2]");
  EXPECT_TRUE(same(task.tensors(), before));
}

TEST_F(FirstContact, AnErrorOfLibTorchIsToldWithoutItsFrames) {
  SmallTask task;
  Trainer trainer(task.net, *task.optimizer,
                  [&](const Batch& batch) { return task.net->forward(batch[1]).mean(); });
  EXPECT_EQ(error_of([&] { trainer.step(rows(4)); }),
            "epl: LibTorch says: mat1 and mat2 shapes cannot be multiplied (4x2 and 3x4)\n"
            "  asked by: epl::Trainer::step with a batch of float[4, 3], float[4, 2]");
}

TEST_F(FirstContact, AnErrorOfLibTorchInALaterStepIsTold) {
  SmallTask task;
  torch::nn::Embedding table(10, 3);
  torch::optim::SGD optimizer(table->parameters(), 0.1);
  Trainer trainer(table, optimizer,
                  [&](const Batch& batch) { return table->forward(batch[0]).mean(); });
  trainer.step({torch::arange(4)});
  const std::string message = error_of([&] { trainer.step({torch::arange(4) + 8}); });
  EXPECT_EQ(message.find("epl: LibTorch says: index out of range"), 0) << message;
  EXPECT_NE(message.find("asked by: epl::Trainer::step with a batch of long"), std::string::npos)
      << message;
  EXPECT_EQ(message.find("frame #"), std::string::npos) << message;
}

// --- what a step tells ---------------------------------------------------------------------------

TEST_F(FirstContact, AStepTellsHowLongItTook) {
  SmallTask task;
  Trainer trainer = task.trainer();
  const auto begin = std::chrono::steady_clock::now();
  const double seconds = trainer.step(rows(4)).seconds;
  const std::chrono::duration<double> around = std::chrono::steady_clock::now() - begin;
  EXPECT_GT(seconds, 0.5 * around.count());
  EXPECT_LE(seconds, around.count());
  EXPECT_GE(seconds, trainer.timeline().seconds);
}

// They were one span, called forward.
TEST_F(FirstContact, TheTimelineOfOneDeviceTellsForwardFromBackward) {
  for (const int micro_batches : {1, 2}) {
    init(Config{{"pipeline.num_micro_batch", micro_batches}});
    SmallTask task;
    Trainer trainer = task.trainer();
    for (int i = 0; i < 3; ++i) trainer.step(rows(4));  // the first ones are looked at
    const Timeline timeline = trainer.timeline();
    ASSERT_EQ(timeline.devices.size(), 1u);
    std::vector<std::pair<Span::Kind, int>> expected, found;
    for (int i = 0; i < micro_batches; ++i) {
      expected.push_back({Span::Kind::kForward, i});
      expected.push_back({Span::Kind::kBackward, i});
    }
    expected.push_back({Span::Kind::kUpdate, -1});
    double end = 0;
    for (const Span& span : timeline.devices[0].spans) {
      EXPECT_GE(span.begin, end);
      EXPECT_GE(span.end, span.begin);
      end = span.end;
      found.push_back({span.kind, span.micro_batch});
    }
    EXPECT_EQ(found, expected);
    EXPECT_NE(timeline.str().find('B'), std::string::npos);
  }
}

// --- between steps -------------------------------------------------------------------------------

TEST_F(FirstContact, AllReduceInAStepIsRefused) {
  SmallTask task;
  Trainer trainer(task.net, *task.optimizer, [&](const Batch& batch) {
    const Tensor loss = task.step()(batch).loss;
    all_reduce(loss);
    return loss;
  });
  EXPECT_EQ(error_of([&] {
              trainer.step(rows(4));
            }).find("epl: all_reduce stands in a step function, which is not run in every step\n"),
            0);
}

}  // namespace
}  // namespace epl

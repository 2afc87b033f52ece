// What cannot be a pipeline, by its exact words.
#include "base/text.h"
#include "driver/test_trainer.h"

namespace epl {
namespace {

using torch::Tensor;

struct PipelineErrors : TrainerFixture {
  static void devices(int count, std::vector<Setting> settings = {}) {
    set("EPL_DEVICES", std::to_string(count));
    init(Config(std::move(settings)));
  }
};

// The message of one step of a net with this step function.
std::string error_of_step(const StepFunction& step, const Batch& batch = rows(4)) {
  auto net = std::make_shared<torch::nn::Linear>(3, 3);
  torch::optim::SGD optimizer((*net)->parameters(), 0.1);
  Trainer trainer(*net, optimizer, [&](const Batch& given) {
    StepOutput output = step(given);
    output.loss = output.loss + (*net)->forward(torch::ones({3})).sum();
    return output;
  });
  return error_of([&] { trainer.step(batch); });
}

// A scope around each strategy, in which the values are doubled.
Tensor through(Tensor x, const std::vector<Strategy>& strategies) {
  for (const Strategy& strategy : strategies) {
    const With scope(strategy);
    x = x * 2;
  }
  return x;
}

StepFunction scopes(const std::vector<Strategy>& strategies) {
  return [=](const Batch& batch) { return through(batch[0], strategies).sum(); };
}

std::string lines_of(const std::vector<Strategy>& strategies) {
  std::vector<std::string> lines;
  for (const Strategy& each : strategies) lines.push_back(each.asked_by());
  return join(lines, "\n            ");
}

std::vector<Strategy> stages(const std::vector<int>& device_counts) {
  std::vector<Strategy> all;
  for (size_t i = 0; i < device_counts.size(); ++i) {
    all.push_back(replicate(device_counts[i], concat("stage ", i)));
  }
  return all;
}

TEST_F(PipelineErrors, DevicesThatAreNoMultipleOfTheStages) {
  devices(4);
  const auto three = stages({1, 1, 1});
  EXPECT_EQ(error_of_step(scopes(three)),
            "epl: 4 devices cannot be shared out over model replicas of 3 devices (1 + 1 + 1)\n"
            "  asked by: " +
                lines_of(three) +
                "\n"
                "  try:      EPL_DEVICES=6, or cluster.colocate_split_and_replicate = true, so "
                "that all TaskGraphs share 1 device");
}

TEST_F(PipelineErrors, TwoStagesThatWriteTheSameStatistics) {
  devices(2);
  const auto two = stages({1, 1});
  auto net = std::make_shared<SmallNet>();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  Trainer trainer(net, optimizer, [&](const Batch& batch) {
    Tensor x;
    {
      const With scope(two[0]);
      x = net->norm(net->first(batch[0]));
    }
    const With scope(two[1]);
    return net->head(net->norm(x)).sum();
  });
  EXPECT_EQ(error_of([&] { trainer.step(rows(4)); }),
            "epl: stage 0 of the pipeline writes `norm.num_batches_tracked`, and stage 1 uses it "
            "as well\n"
            "  asked by: " +
                lines_of(two) + "\n  try:      the module that owns it in one scope only");
}

TEST_F(PipelineErrors, InterleavedWithoutANumberOfStages) {
  devices(2, {{"pipeline.strategy", "Interleaved"}});
  const auto four = stages({1, 1, 1, 1});
  const std::string message = error_of_step(scopes(four));
  EXPECT_EQ(message.substr(0, message.find('\n')),
            "epl: the Interleaved schedule deals 4 TaskGraphs out to stages, but not said to how "
            "many");
  EXPECT_NE(message.find("  try:      pipeline.num_stages = a number that divides 4"),
            std::string::npos)
      << message;
}

TEST_F(PipelineErrors, TaskGraphsThatCannotBeDealtOut) {
  devices(2, {{"pipeline.strategy", "Interleaved"}, {"pipeline.num_stages", 2}});
  const std::string odd = error_of_step(scopes(stages({1, 1, 1})));
  EXPECT_EQ(odd.substr(0, odd.find('\n')),
            "epl: 3 TaskGraphs cannot be dealt out evenly to 2 stages");
  devices(3, {{"pipeline.strategy", "Interleaved"}, {"pipeline.num_stages", 2}});
  const auto wide = stages({1, 2, 2, 2});
  EXPECT_EQ(error_of_step(scopes(wide)),
            "epl: TaskGraphs 0 and 2 share stage 0 but have different device counts, 1 and 2\n"
            "  asked by: " +
                lines_of(wide) + "\n  try:      the same device_count for both");
}

TEST_F(PipelineErrors, ABatchThatCannotBeCut) {
  devices(4, {{"pipeline.num_micro_batch", 4}});
  const auto two = stages({1, 1});
  const std::string message = error_of_step(scopes(two), rows(10));
  EXPECT_EQ(message.substr(0, message.find('\n')),
            "epl: cannot cut a batch of 10 rows evenly into 4 micro batches on each of 2 devices");
  EXPECT_NE(message.find("  try:      a batch size that 8 divides, such as 16"), std::string::npos)
      << message;
}

TEST_F(PipelineErrors, AMicroBatchThatStagesCannotShare) {
  devices(5);
  const auto uneven = stages({2, 3});
  EXPECT_EQ(error_of_step(scopes(uneven), rows(4)),
            "epl: a micro batch of 4 rows cannot be cut over stages of 2, 3 devices\n"
            "  asked by: " +
                lines_of(uneven) + "\n  try:      a multiple of 6 rows a micro batch");
}

TEST_F(PipelineErrors, AValueWithoutRowsBetweenStagesOfDifferentWidth) {
  devices(3);
  const auto widths = stages({1, 2});
  EXPECT_EQ(error_of_step([&](const Batch& batch) {
              Tensor mean;
              {
                const With scope(widths[0]);
                mean = batch[0].mean();
              }
              const With scope(widths[1]);
              return (batch[0] * mean).mean();
            }),
            "epl: the result of aten::mean, f32[], goes from a stage of 1 devices to one of 2, but "
            "has no rows to be cut\n"
            "  asked by: " +
                lines_of(widths) + "\n  try:      the same device_count for both stages");
}

TEST_F(PipelineErrors, ASparseValueBetweenStages) {
  devices(2);
  const auto two = stages({1, 1});
  const std::string message = error_of_step([&](const Batch& batch) {
    Tensor sparse;
    {
      const With scope(two[0]);
      sparse = batch[0].to_sparse();
    }
    const With scope(two[1]);
    return torch::_sparse_sum(sparse);
  });
  EXPECT_NE(message.find("goes from one stage to another, but is not dense\n  asked by: " +
                         two[0].asked_by()),
            std::string::npos)
      << message;
}

TEST_F(PipelineErrors, StagesThatChangeFromStepToStep) {
  devices(4);
  auto net = std::make_shared<torch::nn::Linear>(3, 3);
  torch::optim::SGD optimizer((*net)->parameters(), 0.1);
  int width = 1;
  Trainer trainer(*net, optimizer, [&](const Batch& batch) {
    return through((*net)->forward(batch[0]), stages({width, width})).sum();
  });
  trainer.step(rows(16));
  width = 2;
  const std::string message = error_of([&] { trainer.step(rows(32)); });
  EXPECT_EQ(message.substr(0, message.find('\n')),
            "epl: the strategies ask for replicas of 2 + 2 devices, in an earlier step of 1 + 1");
}

// --- memory of stages that EPL chooses
// ------------------------------------------------------------

// One step of layers of this width by stages that EPL chooses for two devices.
std::string error_of_chosen_stages(int64_t width, int64_t count) {
  torch::nn::Sequential net;
  for (int i = 0; i < 6; ++i) {
    net->push_back(torch::nn::Linear(width, width));
    net->push_back(torch::nn::Tanh());
  }
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  Trainer trainer(net, optimizer,
                  [&](const Batch& batch) { return net->forward(batch[0]).square().mean(); });
  return error_of([&] { trainer.step({torch::ones({count, width})}); });
}

TEST_F(PipelineErrors, StagesThatDoNotFitNameTheMemoryThatWasAsked) {
  devices(2, {{"auto.auto_parallel", true}, {"auto.device_memory", 1}});
  const std::string error = error_of_chosen_stages(512, 4);
  EXPECT_EQ(error.rfind("epl: no cut of the step into 2 stages fits into its devices: ", 0), 0U)
      << error;
  EXPECT_NE(error.find("and a device has 1.0 MiB\n"), std::string::npos) << error;
  EXPECT_NE(error.find("auto.device_memory = 1 (code"), std::string::npos) << error;
}

// Of 1024 rows each of two replicas takes 512, and a single pipeline all of them: with half of the
// layers a device it needs as much memory as before. It was judged by the 512 rows.
TEST_F(PipelineErrors, StagesAreJudgedByTheMicroBatchThatWillRun) {
  devices(2, {{"auto.auto_parallel", true}, {"auto.device_memory", 2}});
  const std::string error = error_of_chosen_stages(128, 1024);
  EXPECT_EQ(error.rfind("epl: no cut of the step into 2 stages fits into its devices: ", 0), 0U)
      << error;
  devices(2, {{"auto.auto_parallel", true}, {"auto.device_memory", 8}});
  EXPECT_EQ(error_of_chosen_stages(128, 1024), "no error");
}

}  // namespace
}  // namespace epl

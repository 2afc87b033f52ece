// Which rows a worker hands in. A program that trained data parallel and got stages over its
// workers went on reading a share of the rows on each of them, and those of workers without a first
// stage were dropped without a word: half of the data on two workers. Such rows are an error now,
// and the trainer tells every worker its share.
#include "tests/parity/on_devices.h"
#include "tests/parity/pipelines.h"

namespace epl::parity {
namespace {

using torch::Tensor;

constexpr int64_t kAll = 48;

// Row i holds i, so that a sum over rows tells which of them were read.
Batch numbered_rows(const std::vector<size_t>& rows) {
  Tensor x = torch::empty({static_cast<int64_t>(rows.size()), 6});
  for (size_t i = 0; i < rows.size(); ++i)
    x[static_cast<int64_t>(i)].fill_(static_cast<double>(rows[i]));
  return {x, torch::zeros({x.size(0)}, torch::kLong)};
}

// `net`: a Stack with scopes, or the same without.
template <typename Net>
StepFunction step_of(Net net) {
  return [net](const Batch& batch) mutable {
    add_to_collection(collections::kGlobalSum, batch[0].select(1, 0).sum(), "rows");
    return cross_entropy(net->forward(batch[0]), batch[1]);
  };
}

struct Asked {
  std::vector<int> workers;
  std::vector<int> stages;
  bool automatic = false;
};

// Every row of an epoch is read once, whatever the layout: the program does not know it.
void expect_that_every_row_is_read(const Asked& asked) {
  run_on_workers(asked.workers, [&](int) {
    std::vector<Setting> settings{{"pipeline.num_micro_batch", 2}};
    if (asked.automatic) {
      settings.emplace_back("auto.auto_parallel", true);
      settings.emplace_back("pipeline.num_stages", static_cast<int64_t>(asked.stages.size()));
    }
    init(Config(settings));
    torch::manual_seed(1);
    auto staged = std::make_shared<Stack>(asked.stages);
    torch::nn::Sequential plain(torch::nn::Linear(6, 6), torch::nn::Tanh(),
                                torch::nn::Linear(6, 6));
    std::shared_ptr<torch::nn::Module> net = staged;
    if (asked.automatic) net = plain.ptr();
    torch::optim::SGD optimizer(net->parameters(), 1e-4);
    Trainer trainer(net, optimizer, asked.automatic ? step_of(plain) : step_of(staged));
    const Tensor before = net->parameters()[0].detach().clone();
    const WorkerShares shares = trainer.shares(numbered_rows({0, 1, 2, 3}));
    EXPECT_TRUE(net->parameters()[0].equal(before)) << "a sample trains nothing";

    DistributedSampler sampler(kAll, SamplerOptions().seed(3), shares);
    const auto rows = static_cast<size_t>(worker_batch_size(4, shares));
    double sum = 0;
    while (const auto batch = sampler.next(rows)) {
      sum += trainer.step(numbered_rows(*batch)).metrics.at("rows").item<double>();
    }
    EXPECT_EQ(sum, kAll * (kAll - 1) / 2);
  });
}

TEST(RowsOfWorkers, AreAllReadUnderDataParallelism) {
  expect_that_every_row_is_read({{1, 1}, {1}});
  expect_that_every_row_is_read({{2, 1}, {1}});
}

TEST(RowsOfWorkers, AreAllReadByAPipeline) {
  expect_that_every_row_is_read({{1, 1}, {1, 1}});
  expect_that_every_row_is_read({{2, 2}, {1, 1}});
  expect_that_every_row_is_read({{2, 1, 1}, {1, 1}});
  expect_that_every_row_is_read({{2, 1}, {2, 1}});
}

TEST(RowsOfWorkers, AreAllReadByStagesThatEplChooses) {
  expect_that_every_row_is_read({{1, 1}, {1, 1}, true});
  expect_that_every_row_is_read({{2, 2}, {1, 1}, true});
}

// What each of two workers with a stage each hands in.
std::string error_with(const std::function<Batch(int worker, int step)>& batch, int steps = 1) {
  testing::internal::CaptureStderr();
  try {
    run_on_workers({1, 1}, [&](int worker) {
      init();
      torch::manual_seed(1);
      auto net = std::make_shared<Stack>(2);
      torch::optim::SGD optimizer(net->parameters(), 1e-4);
      Trainer trainer(net, optimizer, step_of(net));
      for (int i = 0; i < steps; ++i) trainer.step(batch(worker, i));
    });
  } catch (const std::exception&) {
  }
  return testing::internal::GetCapturedStderr();
}

const char* const kNobody =
    "nobody would train on the rows of worker 1: it has no first stage of the model, and it hands "
    "in "
    "other rows than worker 0, which reads for it";

TEST(RowsOfWorkers, ThatNobodyReadsAreAnError) {
  const std::string error = error_with([](int worker, int) {
    return worker == 0 ? numbered_rows({0, 1}) : numbered_rows({2, 3});
  });
  EXPECT_NE(error.find(kNobody), std::string::npos) << error;
  EXPECT_NE(error.find("trainer.shares(sample) or epl::pipeline_shares(...)"), std::string::npos)
      << error;
}

TEST(RowsOfWorkers, ThatNobodyReadsAreAnErrorInALaterStep) {
  const std::string error = error_with(
      [](int worker, int step) {
        return worker == 0 || step < 3 ? numbered_rows({0, 1}) : numbered_rows({2, 3});
      },
      5);
  EXPECT_NE(error.find(kNobody), std::string::npos) << error;
}

TEST(RowsOfWorkers, ThatAreTheReadersOrZerosPass) {
  const std::string error = error_with(
      [](int worker, int step) {
        const Batch rows = numbered_rows({0, 1});
        return worker == 0 || step == 0
                   ? rows
                   : Batch{torch::zeros_like(rows[0]), torch::zeros_like(rows[1])};
      },
      3);
  EXPECT_EQ(error, "");
}

// Workers of a data-parallel job; the error named line 37 of the plan.
TEST(RowsOfWorkers, ThatDifferInNumberAreNamedByTheirShapes) {
  testing::internal::CaptureStderr();
  EXPECT_THROW(run_on_workers({1, 1},
                              [&](int worker) {
                                init();
                                torch::manual_seed(1);
                                auto net = std::make_shared<Stack>(1);
                                torch::optim::SGD optimizer(net->parameters(), 1e-4);
                                Trainer trainer(net, optimizer, step_of(net));
                                trainer.step(parity::rows(worker == 0 ? 12 : 16)(0));
                              }),
               std::exception);
  const std::string error = testing::internal::GetCapturedStderr();
  EXPECT_NE(error.find("differs from worker 0 in the rows of a micro batch"), std::string::npos)
      << error;
  EXPECT_NE(error.find("Float[16, 6]"), std::string::npos) << error;
  EXPECT_NE(error.find("Float[12, 6]"), std::string::npos) << error;
}

// --- one device
// -----------------------------------------------------------------------------------

TEST(StagesOnOneDevice, TrainAsTheProgramWithoutScopes) {
  for (int micro_batches : {1, 4}) {
    const Variant variant = Variant().steps(3).micro_batches(micro_batches);
    testing::internal::CaptureStderr();
    EXPECT_TRUE(parity(stack(3), parity::rows(16), bit_equal(), variant));
    const std::string said = testing::internal::GetCapturedStderr();
    const std::string line = "epl: the job has one device, so the step runs on it as without ";
    EXPECT_EQ(said.find(line), 0U) << said;
    EXPECT_EQ(said.find(line, 1), std::string::npos) << "said twice: " << said;
  }
}

TEST(StagesOnOneDevice, MayHaveSeveralDevicesEach) {
  const auto make = [](const std::vector<int>& stages) -> MakeProgram {
    return [stages] {
      auto net = std::make_shared<Stack>(stages);
      return program(net, sgd(*net, 0.1), classification(net));
    };
  };
  EXPECT_TRUE(parity(make({2, 1}), parity::rows(16), bit_equal(), Variant().steps(2)));
}

TEST(StagesOnOneDevice, AreSplitIntoOnePart) {
  const MakeProgram make = [] {
    torch::nn::Linear net(6, 6);
    return program(net.ptr(), sgd(*net, 0.1), [net](const Batch& batch) mutable {
      const With scope(split(4, "classes"));
      return cross_entropy(net->forward(batch[0]), batch[1]);
    });
  };
  EXPECT_TRUE(parity(make, parity::rows(16), bit_equal(), Variant().steps(2)));
}

// --- the calls by themselves
// ----------------------------------------------------------------------

std::string error_of_shares(const std::vector<int>& stages) {
  try {
    pipeline_shares(stages, SourceLocation{"train.cc", 3});
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(PipelineShares, AreNamedInTheirErrors) {
  init();
  EXPECT_EQ(error_of_shares({1, 0}),
            "epl: stage 1 has 0 devices\n"
            "  asked by: epl::pipeline_shares({1, 0}) at train.cc:3\n"
            "  try:      at least one device a stage");
  EXPECT_EQ(error_of_shares({}),
            "epl: a model has at least one stage\n"
            "  asked by: epl::pipeline_shares({}) at train.cc:3\n"
            "  try:      the devices of each stage, such as {1, 1}");
  EXPECT_EQ(error_of_shares({2}), "none");  // one device runs what there is
}

TEST(PipelineShares, OfDevicesThatDoNotFitAreNamedAsTheCall) {
  const OnDevices three(3);
  init();
  EXPECT_EQ(error_of_shares({2}),
            "epl: 3 devices cannot be shared out over model replicas of 2 devices\n"
            "  asked by: epl::pipeline_shares({2}) at train.cc:3\n"
            "  try:      EPL_DEVICES=4");
}

}  // namespace
}  // namespace epl::parity

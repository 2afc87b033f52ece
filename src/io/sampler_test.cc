#include <epl/data.h>
#include <epl/env.h>

#include <algorithm>
#include <numeric>
#include <sstream>

#include "base/text.h"
#include "config/test_environment.h"
#include "io/epoch_order.h"

namespace epl {
namespace {

using Rows = std::vector<size_t>;

Rows take_epoch(DistributedSampler& sampler, size_t batch_size) {
  sampler.reset();
  Rows rows;
  while (auto batch = sampler.next(batch_size)) {
    EXPECT_EQ(batch->size(), batch_size);
    rows.insert(rows.end(), batch->begin(), batch->end());
  }
  return rows;
}

Rows sorted(Rows rows) {
  std::sort(rows.begin(), rows.end());
  return rows;
}

Rows first_numbers(size_t count) {
  Rows rows(count);
  std::iota(rows.begin(), rows.end(), size_t{0});
  return rows;
}

// What all workers read in one epoch; fails unless they make the same number of steps.
Rows read_by_all(size_t size, const SamplerOptions& options, const std::vector<int>& replicas,
                 size_t per_device) {
  Rows all;
  std::set<size_t> steps;
  for (int worker = 0; worker < static_cast<int>(replicas.size()); ++worker) {
    DistributedSampler sampler(size, options, WorkerShares{replicas, worker});
    const size_t batch_size = per_device * static_cast<size_t>(replicas[worker]);
    const Rows rows = take_epoch(sampler, batch_size);
    EXPECT_EQ(rows.size() / batch_size, sampler.steps(batch_size));
    steps.insert(sampler.steps(batch_size));
    all.insert(all.end(), rows.begin(), rows.end());
  }
  EXPECT_EQ(steps.size(), 1u) << "the workers do not make the same number of steps";
  return all;
}

TEST(EpochOrder, IsTheSameOnEveryMachine) {
  EXPECT_EQ(join(epoch_order(8, 0, 0), " "), "6 1 5 7 0 2 3 4");
  EXPECT_EQ(join(epoch_order(8, 0, 1), " "), "5 0 4 6 3 1 7 2");
  EXPECT_EQ(join(epoch_order(8, 1, 0), " "), "7 6 1 4 5 0 2 3");
}

TEST(EpochOrder, HasEveryRowOnce) {
  for (const size_t size : {0, 1, 2, 1000}) {
    EXPECT_EQ(sorted(epoch_order(size, 3, 5)), first_numbers(size));
  }
}

TEST(EpochOrder, PutsEveryRowInEveryPlaceEquallyOften) {
  constexpr int kEpochs = 6000;
  int count[3][3] = {};
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const Rows order = epoch_order(3, 0, epoch);
    for (size_t place = 0; place < 3; ++place) ++count[place][order[place]];
  }
  for (const auto& place : count) {
    for (const int times : place) EXPECT_NEAR(times, kEpochs / 3, 200);  // 5 standard deviations
  }
}

TEST(DistributedSampler, ReadsEveryRowOnceInAnEpoch) {
  EXPECT_EQ(sorted(read_by_all(24, {}, {2, 1}, 4)), first_numbers(24));
  EXPECT_EQ(sorted(read_by_all(64, {}, {1, 1, 1, 1}, 2)), first_numbers(64));
  EXPECT_EQ(sorted(read_by_all(12, {}, {1}, 3)), first_numbers(12));
}

TEST(DistributedSampler, DropsWhatDoesNotFillAStep) {
  const Rows rows = sorted(read_by_all(31, {}, {2, 1}, 4));
  EXPECT_EQ(rows.size(), 24u);
  EXPECT_EQ(std::set<size_t>(rows.begin(), rows.end()).size(), 24u) << "a row is read twice";
  EXPECT_LT(rows.back(), 31u);
}

TEST(DistributedSampler, DropsOtherRowsInOtherEpochs) {
  DistributedSampler sampler(5, {}, WorkerShares{});
  std::set<size_t> read;
  for (int epoch = 0; epoch < 20; ++epoch) {
    for (const size_t row : take_epoch(sampler, 4)) read.insert(row);
  }
  EXPECT_EQ(read.size(), 5u);
}

TEST(DistributedSampler, FillsUpTheLastStepWhereAsked) {
  const SamplerOptions pad = SamplerOptions().remainder(Remainder::kPad);
  const Rows rows = read_by_all(31, pad, {2, 1}, 4);
  EXPECT_EQ(rows.size(), 36u);
  EXPECT_EQ(std::set<size_t>(rows.begin(), rows.end()).size(), 31u) << "a row is left out";
  EXPECT_EQ(sorted(read_by_all(24, pad, {2, 1}, 4)), first_numbers(24));
  EXPECT_EQ(read_by_all(2, pad, {2, 1}, 4).size(), 12u);  // more than once around
}

TEST(DistributedSampler, GivesAStepTheSameRowsHoweverManyShareThem) {
  DistributedSampler alone(24, {}, WorkerShares{});
  DistributedSampler first(24, {}, WorkerShares{{2, 1}, 0});
  DistributedSampler second(24, {}, WorkerShares{{2, 1}, 1});
  for (int step = 0; step < 2; ++step) {
    Rows shared = *first.next(8);
    const Rows rest = *second.next(4);
    shared.insert(shared.end(), rest.begin(), rest.end());
    EXPECT_EQ(shared, *alone.next(12));
  }
}

TEST(DistributedSampler, GivesTheSameOrderForTheSameSeedOnly) {
  const auto epoch = [](uint64_t seed) {
    DistributedSampler sampler(100, SamplerOptions().seed(seed), WorkerShares{});
    return take_epoch(sampler, 10);
  };
  EXPECT_EQ(epoch(7), epoch(7));
  EXPECT_NE(epoch(7), epoch(8));
  EXPECT_NE(epoch(7), epoch(7 + (uint64_t{1} << 40)));
}

TEST(DistributedSampler, ShufflesAnewInEveryEpoch) {
  DistributedSampler sampler(100, {}, WorkerShares{});
  const Rows first = take_epoch(sampler, 10);
  EXPECT_EQ(sampler.epoch(), 0u);
  const Rows second = take_epoch(sampler, 10);
  EXPECT_EQ(sampler.epoch(), 1u);
  EXPECT_NE(first, second);
  sampler.set_epoch(0);
  EXPECT_EQ(take_epoch(sampler, 10), first);
  EXPECT_EQ(take_epoch(sampler, 10), second);
}

TEST(DistributedSampler, KeepsTheOrderOfTheDataSetWhereAsked) {
  const SamplerOptions in_order = SamplerOptions().shuffle(false);
  DistributedSampler sampler(12, in_order, WorkerShares{{2, 1}, 1});
  EXPECT_EQ(take_epoch(sampler, 2), (Rows{4, 5, 10, 11}));
  EXPECT_EQ(take_epoch(sampler, 2), (Rows{4, 5, 10, 11}));
}

TEST(DistributedSampler, GoesOnInTheMiddleOfAnEpoch) {
  DistributedSampler whole(100, {}, WorkerShares{});
  take_epoch(whole, 10);
  const Rows second = take_epoch(whole, 10);
  DistributedSampler resumed(100, {}, WorkerShares{});
  resumed.set_epoch(1, 7);
  EXPECT_EQ(take_epoch(resumed, 10), Rows(second.begin() + 70, second.end()));
}

std::string saved(const DistributedSampler& sampler) {
  std::ostringstream file;
  torch::save(sampler, file);
  return file.str();
}

void load(DistributedSampler& sampler, const std::string& text) {
  std::istringstream file(text);
  torch::load(sampler, file);
}

TEST(DistributedSampler, SavesItsSeedAndPosition) {
  DistributedSampler sampler(100, SamplerOptions().seed(9), WorkerShares{});
  take_epoch(sampler, 10);
  sampler.reset();
  sampler.next(10);
  const std::string file = saved(sampler);
  const Rows expected = *sampler.next(10);

  DistributedSampler resumed(100, {}, WorkerShares{});
  load(resumed, file);
  EXPECT_EQ(resumed.epoch(), 1u);
  EXPECT_EQ(resumed.step(), 1u);
  resumed.reset();  // as a loader does before its first batch
  EXPECT_EQ(*resumed.next(10), expected);

  // Two workers go on where one worker stopped.
  DistributedSampler half(100, {}, WorkerShares{{1, 1}, 1});
  load(half, file);
  EXPECT_EQ(*half.next(5), Rows(expected.begin() + 5, expected.end()));
}

TEST(DistributedSampler, SavesAFinishedEpochAsTheBeginningOfTheNext) {
  DistributedSampler sampler(100, {}, WorkerShares{});
  take_epoch(sampler, 10);
  DistributedSampler resumed(100, {}, WorkerShares{});
  load(resumed, saved(sampler));
  EXPECT_EQ(resumed.epoch(), 1u);
  EXPECT_EQ(take_epoch(resumed, 10), take_epoch(sampler, 10));
}

TEST(DistributedSampler, RefusesArchivesThatDoNotFit) {
  DistributedSampler sampler(100, {}, WorkerShares{}, SourceLocation{"train.cc", 5});
  const std::string file = saved(DistributedSampler(99, {}, WorkerShares{}));
  EXPECT_EQ(error_of([&] { load(sampler, file); }),
            "epl: the archive holds a position among 99 rows, and there are 100\n"
            "  asked by: epl::DistributedSampler at train.cc:5\n"
            "  try:      the data set that it was saved with");
  std::ostringstream other;
  torch::save(torch::zeros({2}), other);
  EXPECT_EQ(error_of([&] { load(sampler, other.str()); }),
            "epl: the archive holds no epl::DistributedSampler\n"
            "  asked by: epl::DistributedSampler at train.cc:5\n"
            "  try:      an archive that DistributedSampler::save() wrote");
}

TEST(DistributedSampler, RefusesABatchThatItsDevicesCannotShare) {
  DistributedSampler sampler(100, {}, WorkerShares{{1, 3}, 1}, SourceLocation{"train.cc", 5});
  const std::string error =
      "epl: a batch of 10 rows cannot be cut over the 3 replicas of worker 1\n"
      "  asked by: epl::DistributedSampler at train.cc:5\n"
      "  try:      epl::worker_batch_size(rows of one device) as the loader's batch size";
  EXPECT_EQ(error_of([&] { sampler.next(10); }), error);
  EXPECT_NE(error_of([&] { sampler.next(0); }), "no error");
}

TEST(DistributedSampler, RefusesADataSetWithoutOneStep) {
  DistributedSampler sampler(11, {}, WorkerShares{{2, 1}, 1}, SourceLocation{"train.cc", 5});
  EXPECT_EQ(error_of([&] { sampler.next(4); }),
            "epl: 11 rows do not fill one step of 12 rows over 2 workers with 2 + 1 replicas\n"
            "  asked by: epl::DistributedSampler at train.cc:5\n"
            "  try:      smaller batches, or epl::Remainder::kPad, which reads some rows more than "
            "once");
}

TEST(DistributedSampler, HasNothingToHandOutForAnEmptyDataSet) {
  DistributedSampler sampler(0, {}, WorkerShares{});
  EXPECT_FALSE(sampler.next(4).has_value());
  DistributedSampler padded(0, SamplerOptions().remainder(Remainder::kPad), WorkerShares{});
  EXPECT_FALSE(padded.next(4).has_value());
}

TEST(DistributedSampler, TakesANewSizeWithReset) {
  DistributedSampler sampler(100, {}, WorkerShares{});
  take_epoch(sampler, 10);
  sampler.reset(20);
  EXPECT_EQ(sampler.steps(10), 2u);
  sampler.set_epoch(2);
  EXPECT_EQ(sorted(take_epoch(sampler, 10)), first_numbers(20));
}

// Row i of the data set is the number i.
struct Numbers : torch::data::datasets::Dataset<Numbers> {
  explicit Numbers(size_t count) : count(count) {}
  torch::data::Example<> get(size_t index) override {
    return {torch::tensor(static_cast<int64_t>(index)), torch::tensor(0)};
  }
  torch::optional<size_t> size() const override { return count; }
  size_t count;
};

class LoaderOfEnv : public EnvironmentFixture {};

TEST_F(LoaderOfEnv, HandsOutTheSamplersRowsInOrderWithAnyNumberOfThreads) {
  init();
  for (const size_t threads : {0, 1, 3}) {
    DistributedSampler sampler(103, SamplerOptions().seed(2));
    auto loader = torch::data::make_data_loader(
        Numbers(103).map(torch::data::transforms::Stack<>()), sampler,
        torch::data::DataLoaderOptions().batch_size(worker_batch_size(10)).workers(threads));
    DistributedSampler expected(103, SamplerOptions().seed(2));
    for (int epoch = 0; epoch < 3; ++epoch) {
      Rows rows;
      for (auto& batch : *loader) {
        for (int64_t i = 0; i < batch.data.size(0); ++i) {
          rows.push_back(static_cast<size_t>(batch.data[i].item<int64_t>()));
        }
      }
      EXPECT_EQ(rows, take_epoch(expected, worker_batch_size(10)));
      EXPECT_EQ(sampler.epoch(), static_cast<size_t>(epoch)) << "the handle does not follow";
    }
  }
}

TEST_F(LoaderOfEnv, StartsWhereTheProgramsHandleSays) {
  init();
  DistributedSampler sampler(100);
  auto loader = torch::data::make_data_loader(Numbers(100).map(torch::data::transforms::Stack<>()),
                                              sampler, 10);
  sampler.set_epoch(4, 8);
  int64_t batches = 0;
  for (auto& batch : *loader) batches += batch.data.size(0) / 10;
  EXPECT_EQ(batches, 2);
  EXPECT_EQ(sampler.epoch(), 4u);
}

TEST_F(LoaderOfEnv, MakesItsOwnSamplerFromTheSizeOfTheDataSet) {
  init();
  auto loader = torch::data::make_data_loader<DistributedSampler>(
      Numbers(100).map(torch::data::transforms::Stack<>()), 10);
  int64_t batches = 0;
  for (auto& batch : *loader) batches += batch.data.size(0) / 10;
  EXPECT_EQ(batches, 10);
}

}  // namespace
}  // namespace epl

// DistributedSampler: the rows of a data set over all workers, for the loaders of torch::data.
//
//   epl::DistributedSampler sampler(dataset.size().value(), epl::SamplerOptions().seed(7));
//   auto loader = torch::data::make_data_loader(dataset, sampler, epl::worker_batch_size(32));
//   for (int64_t epoch = 0; epoch < epochs; ++epoch)
//     for (auto& batch : *loader) trainer.step({batch.data, batch.target});
//
// All workers know the order of an epoch, which follows from the seed and the epoch's number. Step
// s takes the next rows of that order for all devices, and each worker its part of them:
//
//   devices 2 and 1, 4 rows a device     worker 0          worker 1
//     step 0                             order[0 .. 8)     order[8 .. 12)
//     step 1                             order[12 .. 20)   order[20 .. 24)
//
// So in every epoch
//   - a row is read by one worker, once;
//   - every worker makes the same number of steps, and all of them full: nobody waits at the end of
//     an epoch for a worker that has no rows left, and a batch always divides by the devices;
//   - a step over all workers reads the same rows in the same order however many devices share
//     them, so a run on one device with the whole batch is comparable.
// Rows that do not fill a last step are dropped (other ones in each epoch, if shuffled) or, with
// Remainder::kPad, the step is filled up from the beginning of the epoch's order.
//
// LibTorch's own DistributedRandomSampler has the same order in all epochs unless set_epoch() is
// called, which cannot reach the copy that a loader makes; it takes the epoch as the seed, knows
// only workers of one size, and forgets a loaded position when the loader starts.
#pragma once

#include <epl/io.h>
#include <torch/arg.h>
#include <torch/data/samplers/base.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace epl {

// What becomes of the rows that do not fill a last step.
enum class Remainder { kDrop, kPad };

struct SamplerOptions {
  TORCH_ARG(uint64_t, seed) = 0;    // the same on all workers
  TORCH_ARG(bool, shuffle) = true;  // else the rows in the order of the data set
  TORCH_ARG(Remainder, remainder) = Remainder::kDrop;
};

// A handle: copies share one position. A loader copies its sampler, and through the handle that is
// left the program still sets the epoch of that loader's next pass, or saves its position.
class DistributedSampler : public torch::data::samplers::Sampler<> {
 public:
  // `size` rows over the workers that epl::init() found, or over those of `shares`.
  explicit DistributedSampler(size_t size, SamplerOptions options = {},
                              SourceLocation where = SourceLocation::current());
  DistributedSampler(size_t size, SamplerOptions options, WorkerShares shares,
                     SourceLocation where = SourceLocation::current());

  // A loader calls it whenever a pass begins. The first pass is epoch 0, each further one the next
  // epoch; after set_epoch() or load() it begins where these say.
  void reset(c10::optional<size_t> new_size = c10::nullopt) override;

  // The rows of this worker's next step, all `batch_size` of them, or none at the end of the epoch.
  // An error where the devices of this worker do not divide batch_size, and where a data set is too
  // small for a single step. From one thread; a loader's own threads do not come here.
  c10::optional<std::vector<size_t>> next(size_t batch_size) override;

  // The next pass is this epoch, without its first `step` steps: where a run goes on that was
  // interrupted there.
  void set_epoch(size_t epoch, size_t step = 0);

  size_t epoch() const;
  size_t step() const;  // steps of this epoch that were handed out

  // Steps in every epoch, on every worker.
  size_t steps(size_t batch_size) const;

  // Seed and position, which fit any number of workers. A loader with threads asks for up to
  // max_jobs batches more than the program has seen; there, save at the end of an epoch, or count
  // steps and use set_epoch().
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the copies that loaders make
};

}  // namespace epl

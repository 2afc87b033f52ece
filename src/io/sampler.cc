#include <epl/data.h>
#include <torch/serialize/archive.h>

#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "io/epoch_order.h"
#include "io/shares.h"

namespace epl {
namespace {

// Archives hold tensors: one for all numbers, so that they come and go together.
constexpr const char* kArchiveKey = "epl_sampler";
constexpr int64_t kFormat = 1;

}  // namespace

struct DistributedSampler::State {
  size_t size;
  SamplerOptions options;
  WorkerShares shares;
  std::string asked_by;

  size_t epoch = 0;
  size_t step = 0;
  bool begun = false;              // rows were handed out since the position was set
  bool exhausted = false;          // next() has said that the epoch is over
  std::vector<size_t> order = {};  // of this epoch; empty until it is needed, and if not shuffled

  void move_to(size_t new_epoch, size_t new_step) {
    epoch = new_epoch;
    step = new_step;
    begun = false;
    exhausted = false;
    order.clear();
  }

  size_t steps(const StepRows& rows) const {
    if (options.remainder() == Remainder::kPad) return (size + rows.all - 1) / rows.all;
    EPL_CHECK(size == 0 || size >= rows.all,
              concat(size, " rows do not fill one step of ", rows.all, " rows over ", str(shares)),
              asked_by,
              "smaller batches, or epl::Remainder::kPad, which reads some rows more than once");
    return size / rows.all;
  }
};

DistributedSampler::DistributedSampler(size_t size, SamplerOptions options, SourceLocation where)
    : DistributedSampler(size, options, worker_shares(where), where) {}

DistributedSampler::DistributedSampler(size_t size, SamplerOptions options, WorkerShares shares,
                                       SourceLocation where) {
  check_shares(shares);
  state_ = std::make_shared<State>(
      State{size, options, std::move(shares), "epl::DistributedSampler at " + where.str()});
}

void DistributedSampler::reset(c10::optional<size_t> new_size) {
  State& state = *state_;
  if (new_size) state.size = *new_size;
  if (state.begun) {
    state.move_to(state.epoch + 1, 0);
  } else {
    state.move_to(state.epoch, state.step);
  }
}

c10::optional<std::vector<size_t>> DistributedSampler::next(size_t batch_size) {
  State& state = *state_;
  const StepRows rows = rows_of_step(batch_size, state.shares, state.asked_by);
  const size_t steps = state.steps(rows);
  state.begun = true;
  state.exhausted = state.step >= steps;
  if (state.exhausted) return c10::nullopt;
  if (state.options.shuffle() && state.order.empty()) {
    state.order = epoch_order(state.size, state.options.seed(), state.epoch);
  }
  std::vector<size_t> batch;
  batch.reserve(rows.count);
  const size_t begin = state.step * rows.all + rows.begin;
  for (size_t i = begin; i < begin + rows.count; ++i) {
    const size_t place = i % state.size;  // past the end only in a last step that is padded
    batch.push_back(state.options.shuffle() ? state.order[place] : place);
  }
  ++state.step;
  return batch;
}

void DistributedSampler::set_epoch(size_t epoch, size_t step) { state_->move_to(epoch, step); }

size_t DistributedSampler::epoch() const { return state_->epoch; }

size_t DistributedSampler::step() const { return state_->step; }

size_t DistributedSampler::steps(size_t batch_size) const {
  return state_->steps(rows_of_step(batch_size, state_->shares, state_->asked_by));
}

// A finished epoch is saved as the beginning of the next, so that a resumed run has no empty pass.
void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  const State& state = *state_;
  const std::vector<int64_t> numbers = {
      kFormat, static_cast<int64_t>(state.size), static_cast<int64_t>(state.options.seed()),
      static_cast<int64_t>(state.exhausted ? state.epoch + 1 : state.epoch),
      static_cast<int64_t>(state.exhausted ? 0 : state.step)};
  archive.write(kArchiveKey, torch::tensor(numbers, torch::kInt64), /*is_buffer=*/true);
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  State& state = *state_;
  torch::Tensor numbers;
  EPL_CHECK(archive.try_read(kArchiveKey, numbers, /*is_buffer=*/true) && numbers.numel() == 5 &&
                numbers.scalar_type() == torch::kInt64 && numbers[0].item<int64_t>() == kFormat,
            "the archive holds no epl::DistributedSampler", state.asked_by,
            "an archive that DistributedSampler::save() wrote");
  const auto number = [&](int64_t i) { return static_cast<size_t>(numbers[i].item<int64_t>()); };
  EPL_CHECK(
      number(1) == state.size,
      concat("the archive holds a position among ", number(1), " rows, and there are ", state.size),
      state.asked_by, "the data set that it was saved with");
  state.options.seed(number(2));
  state.move_to(number(3), number(4));
}

}  // namespace epl

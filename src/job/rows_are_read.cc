#include "job/rows_are_read.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "batch/readers.h"

namespace epl {
namespace {

// Steps 0, 1, 2, 4, 8, ...: loaders that differ do so from the beginning or from some epoch on.
bool is_looked_at(int64_t step) { return (step & (step - 1)) == 0; }

uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15ULL;
  return hash ^ (hash >> 29);
}

uint64_t fingerprint(const at::Tensor& tensor, uint64_t hash) {
  hash = mix(hash, static_cast<uint64_t>(tensor.scalar_type()));
  for (int64_t size : tensor.sizes()) hash = mix(hash, static_cast<uint64_t>(size));
  const at::Tensor values = tensor.detach().contiguous();
  const auto* bytes = static_cast<const char*>(values.data_ptr());
  size_t left = values.nbytes();
  for (uint64_t word = 0; left > 0; word = 0) {
    const size_t count = std::min(left, sizeof word);
    std::memcpy(&word, bytes, count);
    hash = mix(hash, word);
    bytes += count;
    left -= count;
  }
  return hash;
}

uint64_t fingerprint(const Batch& batch) {
  uint64_t hash = batch.size();
  for (const at::Tensor& tensor : batch) hash = fingerprint(tensor, hash);
  return hash;
}

bool is_no_data(const Batch& batch) {
  return std::all_of(batch.begin(), batch.end(), [](const at::Tensor& tensor) {
    return tensor.numel() == 0 || tensor.eq(tensor.flatten()[0]).all().item<bool>();
  });
}

}  // namespace

void check_rows_are_read(Job& job, const Placement& placement, const Batch& batch, int64_t step) {
  if (job.workers() == nullptr || !is_looked_at(step)) return;
  const Cluster& cluster = job.cluster();
  bool all_read = true;
  for (int worker = 0; worker < cluster.worker_num; ++worker) {
    all_read &= reads_rows(worker, placement, cluster);
  }
  if (all_read) return;
  const auto count = static_cast<size_t>(cluster.worker_num);
  const at::Tensor mine = at::tensor(
      {static_cast<int64_t>(fingerprint(batch)), static_cast<int64_t>(is_no_data(batch))},
      at::kLong);
  const at::Tensor all = at::empty({2 * cluster.worker_num}, at::kLong);
  job.watch().doing(step, "agree");
  job.workers()->all_gather(mine, all, std::vector<int64_t>(count, 2));
  const auto* said = all.data_ptr<int64_t>();
  for (int worker = 0; worker < cluster.worker_num; ++worker) {
    const int reader = reader_for(worker, placement, cluster);
    const bool no_data = said[2 * worker + 1] != 0;
    EPL_CHECK(
        no_data || said[2 * worker] == said[2 * reader],
        concat("nobody would train on the rows of worker ", worker,
               ": it has no first stage of the model, and it hands in other rows than worker ",
               reader, ", which reads for it"),
        placement.asked_by,
        concat("an epl::DistributedSampler with trainer.shares(sample) or epl::pipeline_shares("
               "...), by which worker ",
               worker, " hands in the rows of worker ", reader, "; or zeros of the same shape"));
  }
}

}  // namespace epl

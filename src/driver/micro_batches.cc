#include "driver/micro_batches.h"

#include "base/check.h"

namespace epl {
namespace {

constexpr const char* kKey = "pipeline.num_micro_batch";

void check_defined(const Batch& batch) {
  for (size_t i = 0; i < batch.size(); ++i) {
    EPL_CHECK(batch[i].defined(), concat("tensor ", i, " of the batch is undefined"),
              "epl::Trainer::step", "leave it out, or pass an empty tensor");
  }
}

void check_rows(const Batch& batch, int64_t parts, const Config& config) {
  for (size_t i = 0; i < batch.size(); ++i) {
    EPL_CHECK(batch[i].dim() > 0,
              concat("cannot cut tensor ", i, " of the batch, a single number, into ", parts,
                     " micro batches"),
              config.asked_by(kKey), "one number a row, or epl::Trainer::step(source)");
    EPL_CHECK(batch[i].size(0) == batch[0].size(0),
              concat("cannot cut a batch whose tensors differ in rows: tensor 0 has ",
                     batch[0].size(0), ", tensor ", i, " has ", batch[i].size(0)),
              config.asked_by(kKey),
              "rows in dim 0 of every tensor, or epl::Trainer::step(source)");
    EPL_CHECK(batch[i].size(0) % parts == 0,
              concat("cannot cut a batch of ", batch[i].size(0), " rows evenly into ", parts,
                     " micro batches"),
              config.asked_by(kKey),
              concat("a batch size that ", parts, " divides, such as ",
                     (batch[i].size(0) / parts + 1) * parts));
  }
}

}  // namespace

std::vector<Batch> cut_into_micro_batches(const Batch& batch, const Config& config) {
  check_defined(batch);
  const int64_t parts = config.get<int64_t>(kKey);
  if (parts == 1) return {batch};
  check_rows(batch, parts, config);
  std::vector<Batch> micro_batches(static_cast<size_t>(parts));
  for (const auto& tensor : batch) {
    const int64_t rows = tensor.size(0) / parts;
    for (int64_t i = 0; i < parts; ++i) {
      micro_batches[static_cast<size_t>(i)].push_back(tensor.narrow(0, i * rows, rows));
    }
  }
  return micro_batches;
}

std::vector<Batch> draw_micro_batches(const BatchSource& source, const Config& config) {
  std::vector<Batch> micro_batches;
  for (int64_t i = 0; i < config.get<int64_t>(kKey); ++i) {
    micro_batches.push_back(source());
    const Batch& first = micro_batches.front();
    const Batch& now = micro_batches.back();
    check_defined(now);
    EPL_CHECK(now.size() == first.size(),
              concat("micro batch ", i, " has ", now.size(), " tensors, micro batch 0 has ",
                     first.size()),
              config.asked_by(kKey));
    for (size_t j = 0; j < now.size(); ++j) {
      EPL_CHECK(now[j].sizes() == first[j].sizes() && now[j].dtype() == first[j].dtype(),
                concat("tensor ", j, " of micro batch ", i, " is ", now[j].dtype(), now[j].sizes(),
                       ", that of micro batch 0 is ", first[j].dtype(), first[j].sizes()),
                config.asked_by(kKey), "micro batches of one shape within a step");
    }
  }
  return micro_batches;
}

}  // namespace epl

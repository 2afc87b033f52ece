// Input over workers: which files a worker reads, and how many rows of a step are its own.
//
//   epl::init(epl::Config{{"io.slicing", true}, {"io.drop_last_files", true}});
//   std::vector<std::string> mine = epl::slice_files(all_files);  // the same list on every worker
//   loader_options.batch_size(epl::worker_batch_size(32));         // 32 rows for each device
//
// A worker's part is in proportion to its replicas: with 4 replicas on one worker and 2 on the
// other, the first reads twice as many files and rows. docs/data-input.md has the rules.
#pragma once

#include <epl/source_location.h>

#include <cstdint>
#include <string>
#include <vector>

namespace epl {

// The devices that take rows of a step, model replicas or their first stages, of each worker that
// has any, and which of those workers this is.
struct WorkerShares {
  std::vector<int> replicas = {1};
  int worker = 0;
};

// The shares of this job, as epl::init() found it: one replica a device.
WorkerShares worker_shares(SourceLocation where = SourceLocation::current());

// The shares of a job whose model is cut into stages of so many devices each: workers that have a
// first stage read, each in proportion to its devices of that stage; one that has none gets the
// share of the worker that reads for it, since it hands in the same batches. Trainer::shares()
// finds the stages by itself.
//
//   epl::DistributedSampler sampler(rows, {}, epl::pipeline_shares({1, 1}));
WorkerShares pipeline_shares(const std::vector<int>& stage_devices,
                             SourceLocation where = SourceLocation::current());

// The files of this worker, or all files where io.slicing is off. Needs the same list in the same
// order on every worker. Every file is read by one worker and every worker has at least one: what
// cannot be so is an error, and so is a list that cannot be cut in proportion, unless
// io.drop_last_files or io.unbalanced_io_slicing says what to do with the remainder.
std::vector<std::string> slice_files(const std::vector<std::string>& files,
                                     SourceLocation where = SourceLocation::current());

// Rows of this worker in one step, where each device takes `per_device` rows. Workers that all ask
// with the same number make steps of which every device does an equal part.
int64_t worker_batch_size(int64_t per_device, SourceLocation where = SourceLocation::current());

// The same for the shares of a job with stages, where `per_device` rows are those of a device of
// the first stage.
int64_t worker_batch_size(int64_t per_device, const WorkerShares& shares,
                          SourceLocation where = SourceLocation::current());

}  // namespace epl

// The rows of this worker for one step, cut over its devices and micro batches.
//
// Rows lie in the order: replica, micro batch, slice. A replica of one device has one slice.
#pragma once

#include <epl/cluster.h>
#include <epl/config.h>
#include <epl/step.h>

#include <vector>

namespace epl {

// How a step's rows are shared out on this worker.
struct Shares {
  int replicas = 1;       // of this worker; a part of one where it spans several workers
  int slices = 1;         // devices of this worker that share one micro batch
  int micro_batches = 1;  // of each replica
  std::string asked_by;   // who wants several devices; empty where there is one

  int devices() const { return replicas * slices; }
};

// For each device its micro batches.
using DeviceBatches = std::vector<std::vector<Batch>>;

// One of `parts` even parts of the batch, to record by: before the strategies are known nobody can
// say how many rows a device gets. Where the batch cannot be cut so, the whole of it.
Batch sample_of(const Batch& batch, int64_t parts);

// Whether every tensor has rows, as many as the others, that divide by the parts of a step.
bool divides_evenly(const Batch& batch, const Shares& shares);

// Sizes that do not divide are an Error with the numbers in it.
DeviceBatches cut_into_micro_batches(const Batch& batch, const Shares& shares,
                                     const Config& config);

// The rows of several slices of a micro batch, in their order: one view of the tensors that they
// were cut from where they lie side by side, else a copy.
Batch joined_rows(const std::vector<const Batch*>& slices);

// The rows of the batch (dim 0 of every tensor that has one) so many times, one copy behind the
// other.
Batch repeat_rows(const Batch& batch, int times);

// The source is called once a micro batch of each replica.
DeviceBatches draw_micro_batches(const BatchSource& source, const Shares& shares,
                                 const Config& config);

}  // namespace epl

// StepInput: the rows of one step as the program handed them in, a batch or a source of micro
// batches.
//
// How rows are cut is known once the strategies of the step are, and those by recording it. So a
// step first asks for a sample, then, where so few rows do not do, for the whole, and then has
// all of them cut.
#pragma once

#include <epl/config.h>
#include <epl/step.h>

#include "batch/micro_batches.h"

namespace epl {

class StepInput {
 public:
  virtual ~StepInput() = default;
  virtual Batch sample() = 0;
  virtual Batch whole() const = 0;  // after sample()
  virtual DeviceBatches cut(const Shares& shares) const = 0;
  // Whether all parts get as many rows.
  virtual bool is_even(const Shares& /*shares*/) const { return true; }
};

// A batch of this worker's `devices`. It and the configuration outlive this.
class BatchInput final : public StepInput {
 public:
  BatchInput(const Batch& batch, const Config& config, int devices)
      : batch_(batch), config_(config), devices_(devices) {}

  Batch sample() override;
  Batch whole() const override { return batch_; }
  DeviceBatches cut(const Shares& shares) const override;
  bool is_even(const Shares& shares) const override;

 private:
  const Batch& batch_;
  const Config& config_;
  const int devices_;
};

// What was drawn as the sample is the first micro batch.
class SourceInput final : public StepInput {
 public:
  SourceInput(const BatchSource& source, const Config& config) : source_(source), config_(config) {}

  Batch sample() override { return first_ = source_(); }
  Batch whole() const override { return first_; }
  DeviceBatches cut(const Shares& shares) const override;

 private:
  const BatchSource& source_;
  const Config& config_;
  Batch first_;
};

}  // namespace epl

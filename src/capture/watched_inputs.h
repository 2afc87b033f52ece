// The batch of a recording, in memory that tells when C++ reads or writes it.
//
// An operator that reads the batch is recorded. What the user's own code reads through data_ptr()
// or accessor() no operator shows, and a replay would go on with what it found in the first batch.
// So the copies that a recording works on lie in pages of their own, which are closed while the
// user's code runs and open while an operator does: the first access by C++ is a fault, which is
// noted before the pages are opened for good.
//
//   WatchedInputs inputs(batch);
//   inputs.close();  step(inputs.batch());  inputs.open();
//   if (inputs.touched()) ...
#pragma once

#include <epl/step.h>

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

namespace epl {

class WatchedInputs {
 public:
  // Each input in memory of its own: recorded places start at 0, and no two inputs share.
  explicit WatchedInputs(const Batch& batch);
  ~WatchedInputs();
  WatchedInputs(const WatchedInputs&) = delete;
  WatchedInputs& operator=(const WatchedInputs&) = delete;

  const Batch& batch() const { return batch_; }

  // One batch at a time in a process: steps take turns.
  void close();
  void open();

  // The first tensor of the batch that was accessed while they were closed.
  std::optional<size_t> touched() const;

 private:
  struct Mapping;
  struct Pages {
    std::shared_ptr<Mapping> mapping;  // which may outlive the tensor's interest in it
    size_t input = 0;
  };
  friend struct FaultHandler;
  static at::Tensor in_pages(const at::Tensor& copy, std::shared_ptr<Mapping>& mapping);
  bool note(const void* address);
  void protect(int access) const;

  Batch batch_;
  std::vector<Pages> pages_;
  bool handles_faults_ = false;
  bool closed_ = false;
  std::atomic<int64_t> touched_{-1};
};

}  // namespace epl

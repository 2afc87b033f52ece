// ProgressPage: a page of memory that shows what a worker does, to the other workers of its host.
//
// The worker writes it at every instruction, for the price of a few stores; peers map it too and
// can read it after the worker was killed. It has no name in the file system: it is gone with the
// last process that maps it.
#pragma once

#include <cstdint>

#include "comm/socket.h"
#include "comm/watch.h"

namespace epl::comm {

class ProgressPage {
 public:
  // A page of this process. Peers open it by descriptor() of this process's id.
  static ProgressPage make();
  // The page of a peer, read only; empty where it cannot be had (another user, hardened systems).
  static ProgressPage open(int64_t pid, int descriptor);

  ProgressPage() = default;
  ProgressPage(ProgressPage&& other) noexcept;
  ProgressPage& operator=(ProgressPage&& other) noexcept;
  ~ProgressPage();

  explicit operator bool() const { return progress_ != nullptr; }
  Progress& progress() { return *progress_; }
  const Progress& progress() const { return *progress_; }
  int descriptor() const { return memory_.get(); }

 private:
  Descriptor memory_;
  Progress* progress_ = nullptr;
};

}  // namespace epl::comm

// Mailbox: what the stages of a pipeline hand to the devices of this worker, until it is asked for.
//
// A letter is copied when it is posted, so that the sender's memory is free at once, and waits
// under its key for as long as its reader needs; nobody waits to post. Readers may ask in any
// order.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "base/mutex.h"
#include "comm/waiting.h"

namespace epl {

struct LetterKey {
  int transfer = 0;
  int micro_batch = 0;
  int from = 0;  // devices of the job
  int to = 0;

  bool operator<(const LetterKey& other) const {
    return std::tie(transfer, micro_batch, from, to) <
           std::tie(other.transfer, other.micro_batch, other.from, other.to);
  }
};

struct Letter {
  std::vector<at::Tensor> tensors;
  std::chrono::steady_clock::time_point sent;  // when its sender had it ready
};

class Mailbox {
 public:
  // `devices`: of this worker, which may wait for each other.
  Mailbox(Watch& watch, std::chrono::milliseconds deadline, int devices);

  void post(const LetterKey& key, Letter letter);

  // Waits for it. `meanwhile` is called now and then and may throw; `what` names it in the message
  // of the JobFailed that is thrown after the deadline.
  Letter take(const LetterKey& key, const std::function<void()>& meanwhile,
              const std::function<std::string()>& what);

  // Forgets what a step that failed has left.
  void clear();

 private:
  comm::Waiting waiting_;
  comm::Doorbell bell_;
  Mutex mutex_;
  std::map<LetterKey, Letter> letters_ EPL_GUARDED_BY(mutex_);
  std::atomic<uint64_t> posted_{0};  // letters since ever: what a waiting device looks at
};

}  // namespace epl

// Messages between the threads of one process: a sender leaves a letter that points at its tensor,
// the receiver copies from there and lets the sender go.
//
// So nothing is copied twice as long as both sides come in the order of the letters. A member that
// waits for something else puts letters aside, that is it copies them to memory of its own: members
// that send to each other at the same time, or that receive tags in another order than they are
// sent, do not wait for each other for ever.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "comm/call.h"
#include "comm/waiting.h"

namespace epl::comm {

// On the sender's stack from its post to its end.
struct Letter {
  int from = 0;
  Contents contents;
  const void* data = nullptr;
  Doorbell* sender = nullptr;
  std::string refused;             // why, where sender and receiver do not agree
  std::atomic<bool> taken{false};  // the last thing the receiver does with the letter
};

class Inbox {
 public:
  void post(Letter& letter);
  // The sender gives up. After this nobody looks at the letter any more.
  void withdraw(Letter& letter);

  // Copies the first letter from `from` with this tag; false where there is none. Throws Error
  // where it has other contents; the sender gets the same message.
  bool take(int from, const Contents& expected, void* data, const std::string& communicator,
            int to);
  void put_aside();

  // Changes when a letter comes.
  uint64_t posted() const { return posted_.load(std::memory_order_seq_cst); }

 private:
  struct Entry {
    int from;
    Contents contents;
    Letter* letter;                // null once it is put aside
    std::unique_ptr<char[]> copy;  // then its data are here
  };

  Mutex mutex_;
  std::list<Entry> entries_ EPL_GUARDED_BY(mutex_);
  std::atomic<uint64_t> posted_{0};
};

}  // namespace epl::comm

#include "comm/inbox.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace epl::comm {
namespace {

// The letter may be gone as soon as it is taken; the sender's bell is not.
void let_go(Letter& letter) {
  Doorbell& sender = *letter.sender;
  letter.taken.store(true, std::memory_order_seq_cst);
  sender.ring();
}

}  // namespace

void Inbox::post(Letter& letter) {
  const MutexLock lock(mutex_);
  entries_.push_back({letter.from, letter.contents, &letter, nullptr});
  posted_.fetch_add(1, std::memory_order_seq_cst);
}

void Inbox::withdraw(Letter& letter) {
  const MutexLock lock(mutex_);
  entries_.remove_if([&](const Entry& entry) { return entry.letter == &letter; });
}

bool Inbox::take(int from, const Contents& expected, void* data, const std::string& communicator,
                 int to) {
  const MutexLock lock(mutex_);
  const auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& other) {
    return other.from == from && other.contents.tag == expected.tag;
  });
  if (entry == entries_.end()) return false;
  const Entry taken = std::move(*entry);
  entries_.erase(entry);
  const Contents& sent = taken.contents;
  const bool agree = sent.matches(expected);
  std::string refused;
  if (!agree) {
    refused = describe_mismatch(communicator, from, sent, to, expected);
  } else if (sent.elements != 0) {
    const void* source = taken.letter ? taken.letter->data : taken.copy.get();
    std::memcpy(data, source, static_cast<size_t>(sent.bytes()));
  }
  if (taken.letter) {
    taken.letter->refused = refused;
    let_go(*taken.letter);
  }
  EPL_CHECK(agree, refused);
  return true;
}

void Inbox::put_aside() {
  const MutexLock lock(mutex_);
  for (Entry& entry : entries_) {
    if (!entry.letter) continue;
    const auto bytes = static_cast<size_t>(entry.contents.bytes());
    entry.copy = std::make_unique<char[]>(bytes);
    if (bytes != 0) std::memcpy(entry.copy.get(), entry.letter->data, bytes);
    let_go(*std::exchange(entry.letter, nullptr));
  }
}

}  // namespace epl::comm

#include "runtime/mailbox.h"

#include "base/check.h"

namespace epl {

Mailbox::Mailbox(Watch& watch, std::chrono::milliseconds deadline, int devices)
    : waiting_(watch, deadline, devices) {}

void Mailbox::post(const LetterKey& key, Letter letter) {
  {
    const MutexLock lock(mutex_);
    const bool fresh = letters_.emplace(key, std::move(letter)).second;
    EPL_ASSERT(fresh, "a letter is posted once");
  }
  posted_.fetch_add(1, std::memory_order_seq_cst);
  bell_.ring();
}

Letter Mailbox::take(const LetterKey& key, const std::function<void()>& meanwhile,
                     const std::function<std::string()>& what) {
  for (;;) {
    const uint64_t seen = posted_.load(std::memory_order_seq_cst);
    {
      const MutexLock lock(mutex_);
      const auto found = letters_.find(key);
      if (found != letters_.end()) {
        Letter letter = std::move(found->second);
        letters_.erase(found);
        return letter;
      }
    }
    waiting_.until(
        bell_, [&] { return posted_.load(std::memory_order_seq_cst) != seen; }, meanwhile,
        [&] { return concat(what(), " did not come"); });
  }
}

void Mailbox::clear() {
  const MutexLock lock(mutex_);
  letters_.clear();
}

}  // namespace epl

// Messages from one process to another through shared memory, chunk by chunk.
//
// The counters have one writer each, so a process that is killed leaves them as they are. A sender
// waits until its message is out of the channel; a receiver that waits for something else puts it
// aside, into memory of its own (compare inbox.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "comm/call.h"

namespace epl::comm {

// Lies in shared memory, which is zero at first.
struct Channel {
  static constexpr int64_t kChunk = 128 * 1024;
  static constexpr uint64_t kSlots = 2;

  alignas(128) std::atomic<uint64_t> sent;   // chunks; by the sender
  Contents contents;                         // of the message whose first chunk was sent last
  alignas(128) std::atomic<uint64_t> taken;  // chunks; by the receiver
  std::atomic<uint64_t> refused;             // number of the last message that was refused
  Contents expected;                         // and what the receiver wanted instead
  alignas(128) char chunks[kSlots][kChunk];
};

// The sender's side. It waits between these calls while they return false.
class ChannelWriter {
 public:
  explicit ChannelWriter(Channel& channel) : channel_(channel) {}

  void begin(const Contents& contents, const void* data);
  // Writes what there is room for; true when all of it was taken.
  bool advance();
  // What the receiver of the last message wanted, where it was something else.
  std::optional<Contents> refused() const;
  bool moved() const { return moved_; }  // whether the last advance() wrote something

 private:
  Channel& channel_;
  Contents contents_;
  const char* data_ = nullptr;
  int64_t written_ = 0;  // bytes
  uint64_t messages_ = 0;
  uint64_t end_ = 0;  // chunks sent when this message is
  bool moved_ = false;
};

class ChannelReader {
 public:
  explicit ChannelReader(Channel& channel) : channel_(channel) {}

  // Reads on; true when the first message with this tag is in `data`. Throws nothing: where the
  // message is another one, `other` has what was sent.
  bool take(const Contents& expected, void* data, std::optional<Contents>* other);
  // Reads whatever is there into memory of its own.
  void put_aside();
  bool moved() const { return moved_; }  // whether the last call took something out of the channel

 private:
  struct Message {
    Contents contents;
    std::unique_ptr<char[]> own;  // where it was put aside
    char* data = nullptr;         // null: it is thrown away
    int64_t read = 0;             // bytes
    bool wanted = false;
  };
  bool something_there() const;
  void open(const Contents* expected, void* data);
  bool read_on();  // true when the open message is complete

  Channel& channel_;
  std::optional<Message> open_;
  std::deque<Message> aside_;
  uint64_t messages_ = 0;
  bool moved_ = false;
};

}  // namespace epl::comm

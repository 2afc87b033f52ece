// The shared memory of one communicator: who may write what, and where.
//
// Data go through it in rounds, a chunk that stays in the caches at a time. In each round a member
// offers something to the others in its own buffer (and says so: `offered`) and uses what the
// others offered (`consumed`). There are three buffers, so that members may be in different phases
// of neighbouring rounds. Every counter and every buffer has one writer: a process that is killed
// leaves nothing locked.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "comm/call.h"
#include "comm/channel.h"
#include "comm/waiting.h"

namespace epl::comm {

// Lies in shared memory, which is zero at first.
struct SharedSeat {
  enum State : uint32_t { kHere, kLeft, kGaveUp };

  alignas(128) std::atomic<uint64_t> offered;  // rounds
  alignas(64) std::atomic<uint64_t> consumed;  // rounds
  std::atomic<uint32_t> state;
  alignas(64) Doorbell bell;  // its member sleeps here
};

class SharedBoard {
 public:
  static constexpr int64_t kChunk = 256 * 1024;  // what a member offers in one round
  static constexpr int64_t kBuffers = 3;

  static size_t bytes(int size) {
    const SharedBoard board(nullptr, size);
    return static_cast<size_t>(board.channels_ + int64_t{size} * size * kChannel);
  }

  SharedBoard(char* memory, int size)
      : memory_(memory),
        size_(size),
        record_(line(static_cast<int64_t>(sizeof(CallRecord)) + 2 * size * 8)),
        buffer_(record_ + kChunk + result_bytes()),
        channels_(page(size * (kSeat + kBuffers * buffer_))) {}

  SharedSeat& seat(int member) const {
    return *reinterpret_cast<SharedSeat*>(memory_ + member * kSeat);
  }
  // What member `member` calls: read by the others before they use its first offer.
  CallRecord& record(int member, uint64_t round) const {
    return *reinterpret_cast<CallRecord*>(buffer(member, round));
  }
  int64_t* rows(int member, uint64_t round) const {
    return reinterpret_cast<int64_t*>(buffer(member, round) + sizeof(CallRecord));
  }
  char* offer(int member, uint64_t round) const { return buffer(member, round) + record_; }
  // What the member made of the others' offers, for all of them.
  char* result(int member, uint64_t round) const { return offer(member, round) + kChunk; }
  Channel& channel(int from, int to) const {
    return *reinterpret_cast<Channel*>(memory_ + channels_ + (from * size_ + to) * kChannel);
  }
  // The most rows that a record can have.
  int64_t row_limit() const { return 2 * size_; }

 private:
  static constexpr int64_t line(int64_t bytes) { return (bytes + 127) / 128 * 128; }
  static constexpr int64_t page(int64_t bytes) { return (bytes + 4095) / 4096 * 4096; }
  static constexpr int64_t kSeat = static_cast<int64_t>(sizeof(SharedSeat));
  static constexpr int64_t kChannel = (sizeof(Channel) + 4095) / 4096 * 4096;

  // A share of a chunk (see share_of).
  int64_t result_bytes() const { return line(kChunk / size_ + 128); }
  char* buffer(int member, uint64_t round) const {
    const auto number = member * kBuffers + static_cast<int64_t>(round % kBuffers);
    return memory_ + size_ * kSeat + number * buffer_;
  }

  char* memory_;
  int64_t size_, record_, buffer_, channels_;
};

}  // namespace epl::comm

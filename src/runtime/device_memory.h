// The memory of one device: where its tensors live, how much is in use, how much was at most.
//
// A CPU device is a thread. While a DeviceMemory::Use stands on a thread, every CPU tensor made there
// takes its memory from this DeviceMemory: blocks are cut from large mapped segments, joined again
// when they are freed, and kept across steps, so that a step does not fault in fresh pages. Tensors
// may outlive the Use and be freed from any thread; they keep the segments alive.
//
// Without a Use on the thread LibTorch allocates as it always did.
#pragma once

#include <c10/core/Allocator.h>

#include <cstdint>
#include <memory>

namespace epl {

class DeviceMemory {
 public:
  DeviceMemory();
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  struct Account {
    int64_t in_use = 0;    // bytes that tensors hold now
    int64_t peak = 0;      // most bytes held at once since the last reset_peak()
    int64_t reserved = 0;  // bytes mapped from the operating system
    int64_t hits = 0;      // expectations (see Expect) that were met
    int64_t misses = 0;
  };
  Account account() const;
  void reset_peak();

  // No more than this many bytes in use; 0 is no limit. An allocation beyond it, or one that the
  // operating system refuses, throws epl::Error "out of memory" with the numbers of the account.
  void set_limit(int64_t bytes);

  // Gives segments without a used block back to the operating system.
  void trim();

  // Memory for a whole plan: 64-byte aligned, huge pages where the system grants them.
  c10::DataPtr reserve(int64_t bytes);

  // Takes over this thread's CPU allocations while it stands. Nests; the inner one counts.
  class Use {
   public:
    explicit Use(DeviceMemory& memory);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    DeviceMemory* previous_;
  };

  // While it stands on this thread, the first allocation of exactly `bytes` bytes gets `address`
  // instead of memory of its own, and freeing it does nothing. This is how an operator without an out=
  // variant writes its result where the plan wants it. Several expectations may stand in one object.
  class Expect {
   public:
    Expect();
    ~Expect();
    Expect(const Expect&) = delete;
    Expect& operator=(const Expect&) = delete;
    void add(void* address, int64_t bytes);
  };

 private:
  struct Pool;
  std::shared_ptr<Pool> pool_;  // shared with every tensor that holds memory of it
  friend class CpuAllocator;
};

}  // namespace epl

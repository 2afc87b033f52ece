// The memory of one device: where its tensors live, how much is in use, how much was at most.
//
// A CPU device is a thread. While a DeviceMemory::Use stands on a thread, every CPU tensor made
// there takes its memory from this DeviceMemory: blocks are cut from large mapped segments, joined
// again when they are freed, and kept across steps, so that a step does not fault in fresh pages.
// Tensors may outlive the Use and the DeviceMemory and be freed from any thread, also after main()
// has returned; the segments stay until the last of them is gone.
//
//   DeviceMemory memory;
//   DeviceMemory::Use use(memory);
//   ... build a model, train it ...
//   std::cout << memory.account().peak;
//
// Without a Use on the thread LibTorch allocates as it always did. That includes the threads that
// LibTorch starts inside an operator (OpenMP): what a kernel allocates there is not accounted for.
// Nor is a tensor older than the first DeviceMemory that grows by resize_(): its storage remembers
// LibTorch's own allocator. LibTorch's profiler does not see the memory of a DeviceMemory.
//
// The first DeviceMemory of the process puts an allocator in front of LibTorch's for the CPU. c10
// has no lock there, so no other thread should be making tensors at that moment; every later
// DeviceMemory may be made at any time.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <set>
#include <vector>

namespace epl {

class DeviceMemory {
  struct Pool;

 public:
  DeviceMemory();
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // A tensor counts with its bytes rounded up to a multiple of 64. What the pool itself needs (64
  // bytes a block, and what is too little to be split off) shows in `reserved` only.
  struct Account {
    int64_t in_use = 0;    // bytes that tensors, reserve() and pages of map_pages() hold now
    int64_t mapped = 0;    // of those, the pages
    int64_t peak = 0;      // most bytes held at once since the last reset_peak()
    int64_t lap_peak = 0;  // and since the last begin_lap()
    int64_t reserved = 0;  // bytes mapped from the operating system
    int64_t hits = 0;      // expectations (see Expect) that were met
    int64_t misses = 0;    // and that were not, once their Expect is gone
  };
  Account account() const;
  void reset_peak();
  // For somebody who asks besides those that look at `peak`: of one step, of one recording.
  void begin_lap();

  // No more than this many bytes in use; 0 is no limit. An allocation beyond it, or one that the
  // operating system refuses, throws epl::Error "out of memory" with the numbers of the account,
  // and leaves all as it was.
  void set_limit(int64_t bytes);

  // Gives segments without a used block back to the operating system, and of other segments the
  // huge pages in which nothing lies.
  void trim();

  // Memory for a whole plan: 64-byte aligned, huge pages where the system grants them, in use
  // until the DataPtr is gone. Needs no Use.
  c10::DataPtr reserve(int64_t bytes);

  // Zeros that take memory page by page, when they are written (pages.h). They belong to the
  // DeviceMemory that this thread uses, and count there once count_pages() has asked the system
  // which of them are there; without a Use they count nowhere. Null where the system gives no more.
  static c10::DataPtr map_pages(int64_t bytes);
  // To be called on the same thread after such pages were written for the first time; costs nothing
  // where none were mapped or given back since the last call.
  static void count_pages();
  // Some of them were written, or went back to the system.
  static void note_changed_pages();

  // Whether a Use stands on this thread, and the account of whatever is in use there; all of it is
  // 0 where nothing is.
  static bool in_use_on_this_thread();
  static Account account_here();
  static void begin_lap_here();

  // Whether some DeviceMemory counts the memory at this address, and how many bytes from there on
  // lie in pages that the system has given.
  static bool counts(const void* address);
  static int64_t resident(const void* data, int64_t bytes);

  class Expect;
  class Log;

  // Takes over this thread's CPU allocations while it stands. Nests; the inner one counts, and the
  // expectations of an outer one wait until it is gone. Ends on the thread that made it, and before
  // the DeviceMemory does.
  class Use {
   public:
    explicit Use(DeviceMemory& memory);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Pool* outer_pool_;
    Expect* outer_expect_;
  };

  // What is allocated and freed on this thread while it stands. Needs a Use, on which it ends; does
  // not nest. What meets an Expect is not in it.
  class Log {
   public:
    Log();
    ~Log();
    Log(const Log&) = delete;
    Log& operator=(const Log&) = delete;

    // The most bytes that were held at once of what was allocated in the meantime, but for the
    // memory at these addresses that is still there; or, if that is more, but for what would have
    // met expectations in its place: an Expect is met by the first that has its size.
    int64_t peak_besides(const std::vector<const void*>& kept) const;

   private:
    friend class DeviceMemory;
    struct Entry {
      const void* address;
      int64_t bytes;  // negative: freed
    };
    void add(const void* address, int64_t bytes) { entries_.push_back({address, bytes}); }
    int64_t peak_without(const std::set<size_t>& entries) const;

    std::vector<Entry> entries_;
  };

  // While it stands on this thread, the first allocation of exactly `bytes` bytes gets `address`
  // instead of memory of its own, and freeing it does nothing. This is how an operator without an
  // out= variant writes its result where the plan wants it:
  //
  //   DeviceMemory::Expect expect;
  //   expect.add(slot, bytes);
  //   at::Tensor result = op(...);
  //   if (result.data_ptr() != slot) ... copy it there ...
  //
  // The check is the caller's: an operator may take the address for an intermediate of that size.
  // Several expectations may stand in one object: of equal sizes the first added is met first. An
  // inner Expect is asked before an outer one. The addresses belong to a reserve(), so they do not
  // count again. Needs a Use, on which it ends; costs a few nanoseconds.
  class Expect {
   public:
    Expect();
    ~Expect();
    Expect(const Expect&) = delete;
    Expect& operator=(const Expect&) = delete;
    void add(void* address, int64_t bytes) { open_.push_back({address, bytes}); }

   private:
    friend class DeviceMemory;
    struct Entry {
      void* address;
      int64_t bytes;
    };
    void* meet(int64_t bytes);

    Expect* outer_;
    int64_t hits_ = 0;
    c10::SmallVector<Entry, 4> open_;  // what no allocation has met yet
  };

 private:
  class Allocator;
  struct Mapping;
  struct Thread;
  Pool* const pool_;  // deletes itself when both this and its last block are gone
};

}  // namespace epl

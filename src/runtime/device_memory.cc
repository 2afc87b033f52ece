#include "runtime/device_memory.h"

#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <limits>
#include <map>
#include <set>

#include "base/check.h"
#include "base/mutex.h"
#include "config/libtorch.h"
#include "runtime/memory_blocks.h"

namespace epl {

// Pages of a tensor's own.
struct DeviceMemory::Mapping {
  Pool* const pool;  // null where no DeviceMemory was in use
  void* const data;
  const size_t bytes;

  int64_t resident() const;
  static void release(void* mapping);
};

// What a DeviceMemory and its tensors share. Blocks up to kSmall bytes have segments of their own:
// small ones that live long do not stand in the way of large ones.
struct DeviceMemory::Pool {
  static constexpr int64_t kSmall = MemoryBlocks::kBinned;
  static constexpr int64_t kSmallSegment = 2 << 20;
  static constexpr int64_t kLargeSegment = 32 << 20;

  void* allocate(size_t size, bool planned) EPL_EXCLUDES(mutex);
  static void release(void* data);
  void add(Mapping* mapping) EPL_EXCLUDES(mutex);
  bool remove(Mapping* mapping) EPL_EXCLUDES(mutex);  // as abandon()
  // Its DeviceMemory is gone. Returns whether nothing of the pool is used any more: then the caller
  // deletes it.
  bool abandon() EPL_EXCLUDES(mutex);
  void trim() EPL_REQUIRES(mutex);
  void count_pages() EPL_REQUIRES(mutex);
  int64_t held() const EPL_REQUIRES(mutex) { return in_use + mapped; }
  void note_peak() EPL_REQUIRES(mutex) {
    peak = std::max(peak, held());
    lap_peak = std::max(lap_peak, held());
  }
  Account account() EPL_EXCLUDES(mutex);
  void begin_lap() EPL_EXCLUDES(mutex);
  [[noreturn]] void out_of_memory(int64_t wanted, bool by_limit) const EPL_REQUIRES(mutex);

  Mutex mutex;
  MemoryBlocks small EPL_GUARDED_BY(mutex){this, kSmallSegment, MemoryBlocks::kAlign};
  MemoryBlocks large EPL_GUARDED_BY(mutex){this, kLargeSegment, kSmall};
  int64_t in_use EPL_GUARDED_BY(mutex) = 0;  // in blocks
  int64_t mapped EPL_GUARDED_BY(mutex) = 0;  // in pages of mappings, as last counted
  int64_t peak EPL_GUARDED_BY(mutex) = 0;
  int64_t lap_peak EPL_GUARDED_BY(mutex) = 0;
  int64_t limit EPL_GUARDED_BY(mutex) = 0;
  int64_t blocks EPL_GUARDED_BY(mutex) = 0;                    // used ones, and mappings
  std::map<Mapping*, int64_t> mappings EPL_GUARDED_BY(mutex);  // each one's part of `mapped`
  std::atomic<bool> miscounted{false};  // pages came or went since they were counted
  bool abandoned EPL_GUARDED_BY(mutex) = false;
  std::atomic<int64_t> hits{0};
  std::atomic<int64_t> misses{0};
};

// What stands on a thread. Initial-exec: a load instead of a call, three times for each allocation
// that is expected; there is room for so little also where EPL is loaded at run time.
struct DeviceMemory::Thread {
  Pool* pool = nullptr;
  Expect* expect = nullptr;
  Log* log = nullptr;

  static Thread& here() {
    [[gnu::tls_model("initial-exec")]] static thread_local Thread thread;
    return thread;
  }
};

void* DeviceMemory::Pool::allocate(size_t size, bool planned) {
  constexpr size_t kMost =
      std::numeric_limits<int64_t>::max() / 2;  // what adds up without overflow
  const int64_t wanted = std::min(size, kMost);
  const int64_t bytes =
      (wanted + MemoryBlocks::kAlign - 1) / MemoryBlocks::kAlign * MemoryBlocks::kAlign;
  const MutexLock lock(mutex);
  if (limit > 0 && bytes > limit - held()) out_of_memory(wanted, /*by_limit=*/true);
  MemoryBlocks& segments = bytes <= kSmall ? small : large;
  MemoryBlocks::Block* block = segments.take(bytes);
  if (block == nullptr) {
    trim();
    block = segments.take(bytes);
  }
  if (block == nullptr) out_of_memory(wanted, /*by_limit=*/false);
  block->counted = bytes;
  block->planned = planned;
  ++blocks;
  in_use += bytes;
  note_peak();
  return block->data();
}

void DeviceMemory::Pool::release(void* data) {
  MemoryBlocks::Block* const block = MemoryBlocks::Block::of(data);
  MemoryBlocks* const segments = block->home;
  Pool* const pool = static_cast<Pool*>(segments->owner());
  if (Log* const log = Thread::here().log) log->add(data, -block->counted);
  bool last;
  {
    const MutexLock lock(pool->mutex);
    pool->in_use -= block->counted;
    segments->give(block);
    last = --pool->blocks == 0 && pool->abandoned;
  }
  if (last) delete pool;
}

void DeviceMemory::Pool::add(Mapping* mapping) {
  const MutexLock lock(mutex);
  mappings.emplace(mapping, 0);
  ++blocks;
  miscounted = true;
}

bool DeviceMemory::Pool::remove(Mapping* mapping) {
  const MutexLock lock(mutex);
  const auto found = mappings.find(mapping);
  mapped -= found->second;
  mappings.erase(found);
  return --blocks == 0 && abandoned;
}

bool DeviceMemory::Pool::abandon() {
  const MutexLock lock(mutex);
  abandoned = true;
  trim();
  return blocks == 0;
}

void DeviceMemory::Pool::trim() {
  small.trim();
  large.trim();
}

void DeviceMemory::Pool::count_pages() {
  if (!miscounted.exchange(false)) return;
  for (auto& [mapping, counted] : mappings) {
    mapped -= counted;
    counted = mapping->resident();
    mapped += counted;
  }
  note_peak();
}

namespace {

// How many of these bytes lie in pages that the system has given. It answers in portions, with a
// byte a page.
int64_t resident_bytes(const void* data, size_t bytes) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(data);
  const uintptr_t last = first + bytes;
  std::array<unsigned char, 4096> states;
  int64_t count = 0;
  for (uintptr_t begin = first / page * page; begin < last; begin += states.size() * page) {
    const uintptr_t length = std::min<uintptr_t>(last - begin, states.size() * page);
    if (mincore(reinterpret_cast<void*>(begin), length, states.data()) != 0) return 0;
    for (size_t i = 0; i < (length + page - 1) / page; ++i) {
      const uintptr_t from = std::max(first, begin + i * page);
      const uintptr_t to = std::min(last, begin + (i + 1) * page);
      if ((states[i] & 1) != 0) count += static_cast<int64_t>(to - from);
    }
  }
  return count;
}

// The mappings that some pool counts, by address: whoever has an address may ask whether that is
// so.
class CountedMappings {
 public:
  // For ever: tensors may outlive all statics.
  static CountedMappings& all() {
    static auto* const mappings = new CountedMappings;
    return *mappings;
  }

  void add(const void* data, size_t bytes) EPL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    ends_[static_cast<const char*>(data)] = static_cast<const char*>(data) + bytes;
  }
  void remove(const void* data) EPL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    ends_.erase(static_cast<const char*>(data));
  }
  bool has(const void* address) EPL_EXCLUDES(mutex_) {
    const auto* const at = static_cast<const char*>(address);
    const MutexLock lock(mutex_);
    const auto next = ends_.upper_bound(at);
    return next != ends_.begin() && at < std::prev(next)->second;
  }

 private:
  Mutex mutex_;
  std::map<const char*, const char*> ends_ EPL_GUARDED_BY(mutex_);  // by begin
};

}  // namespace

int64_t DeviceMemory::Mapping::resident() const { return resident_bytes(data, bytes); }

void DeviceMemory::Mapping::release(void* released) {
  auto* const mapping = static_cast<Mapping*>(released);
  CountedMappings::all().remove(mapping->data);
  munmap(mapping->data, mapping->bytes);
  if (mapping->pool != nullptr && mapping->pool->remove(mapping)) delete mapping->pool;
  delete mapping;
}

void DeviceMemory::Pool::out_of_memory(int64_t wanted, bool by_limit) const {
  const std::string what = concat("out of memory on this device: ", human_bytes(wanted),
                                  " wanted, ", human_bytes(held()), " in use");
  if (by_limit) {
    throw Error(what + " of a limit of " + human_bytes(limit), "",
                "smaller micro batches, or a higher limit");
  }
  throw Error(what + ", and the operating system gives no more", "",
              "smaller micro batches, or fewer devices on this machine");
}

// LibTorch's allocator for the CPU, once there is a DeviceMemory.
//
// The raw interface of c10 (raw_allocate, raw_deallocate) has nothing but the address to free a
// block by, and one deleter for all addresses. So the context of our DataPtrs is their data, and
// the raw deleter finds out whose address it is given. LibTorch 1.13 is not known to use the raw
// interface of this allocator; libraries on top of it do.
class DeviceMemory::Allocator final : public c10::Allocator {
 public:
  static Allocator& install() {
    static Allocator* const installed = [] {
      auto* allocator = new Allocator(c10::GetCPUAllocator());  // tensors may outlive all statics
      c10::SetCPUAllocator(allocator, std::numeric_limits<uint8_t>::max());
      return allocator;
    }();
    return *installed;
  }

#if EPL_TORCH_AT_LEAST(2, 2)
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  c10::DataPtr allocate(size_t bytes) override {
#else
  c10::DataPtr allocate(size_t bytes) const override {
#endif
    const Thread& thread = Thread::here();
    if (thread.pool == nullptr || bytes == 0) return previous_->allocate(bytes);
    for (Expect* expect = thread.expect; expect != nullptr; expect = expect->outer_) {
      if (void* address = expect->meet(bytes)) {
        return {address, address, &c10::detail::deleteNothing, c10::kCPU};
      }
    }
    void* const data = thread.pool->allocate(bytes, /*planned=*/false);
    if (thread.log != nullptr) thread.log->add(data, MemoryBlocks::Block::of(data)->counted);
    return {data, data, &Pool::release, c10::kCPU};
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return previous_->raw_deleter() == nullptr ? nullptr : &raw_delete;
  }

 private:
  explicit Allocator(c10::Allocator* previous) : previous_(previous) {}

  static void raw_delete(void* data) {
    MemoryBlocks* const segments = MemoryBlocks::around(data);
    if (segments == nullptr) return install().previous_->raw_deallocate(data);
    {
      const MutexLock lock(static_cast<Pool*>(segments->owner())->mutex);
      MemoryBlocks::Block* const block = segments->find(data);
      // An expected address is no block, or the first of a plan's, which is not the caller's.
      if (block == nullptr || block->planned) return;
    }
    Pool::release(data);
  }

  c10::Allocator* const previous_;
};

DeviceMemory::DeviceMemory() : pool_(new Pool) { Allocator::install(); }

DeviceMemory::~DeviceMemory() {
  if (pool_->abandon()) delete pool_;
}

DeviceMemory::Account DeviceMemory::Pool::account() {
  const MutexLock lock(mutex);
  count_pages();
  Account account;
  account.in_use = held();
  account.mapped = mapped;
  account.peak = peak;
  account.lap_peak = lap_peak;
  account.reserved = small.mapped() + large.mapped();
  account.hits = hits;
  account.misses = misses;
  return account;
}

void DeviceMemory::Pool::begin_lap() {
  const MutexLock lock(mutex);
  count_pages();
  lap_peak = held();
}

DeviceMemory::Account DeviceMemory::account() const { return pool_->account(); }

void DeviceMemory::begin_lap() { pool_->begin_lap(); }

DeviceMemory::Account DeviceMemory::account_here() {
  Pool* const pool = Thread::here().pool;
  return pool == nullptr ? Account() : pool->account();
}

void DeviceMemory::begin_lap_here() {
  if (Pool* const pool = Thread::here().pool) pool->begin_lap();
}

bool DeviceMemory::counts(const void* address) {
  return MemoryBlocks::around(address) != nullptr || CountedMappings::all().has(address);
}

int64_t DeviceMemory::resident(const void* data, int64_t bytes) {
  return bytes <= 0 ? 0 : resident_bytes(data, static_cast<size_t>(bytes));
}

void DeviceMemory::reset_peak() {
  const MutexLock lock(pool_->mutex);
  pool_->count_pages();
  pool_->peak = pool_->held();
}

void DeviceMemory::set_limit(int64_t bytes) {
  const MutexLock lock(pool_->mutex);
  pool_->limit = bytes;
}

void DeviceMemory::trim() {
  const MutexLock lock(pool_->mutex);
  pool_->trim();
}

c10::DataPtr DeviceMemory::reserve(int64_t bytes) {
  EPL_ASSERT(bytes >= 0, "memory to reserve is not negative");
  if (bytes == 0) return {nullptr, c10::kCPU};
  void* const data = pool_->allocate(bytes, /*planned=*/true);
  return {data, data, &Pool::release, c10::kCPU};
}

c10::DataPtr DeviceMemory::map_pages(int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  void* const data =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return {nullptr, c10::kCPU};
  auto* const mapping = new Mapping{Thread::here().pool, data, size};
  if (mapping->pool != nullptr) {
    mapping->pool->add(mapping);
    CountedMappings::all().add(data, size);
  }
  return {data, mapping, &Mapping::release, c10::kCPU};
}

void DeviceMemory::count_pages() {
  Pool* const pool = Thread::here().pool;
  if (pool == nullptr || !pool->miscounted) return;
  const MutexLock lock(pool->mutex);
  pool->count_pages();
}

void DeviceMemory::note_changed_pages() {
  if (Pool* const pool = Thread::here().pool) pool->miscounted = true;
}

DeviceMemory::Use::Use(DeviceMemory& memory) {
  Thread& thread = Thread::here();
  outer_pool_ = thread.pool;
  outer_expect_ = thread.expect;
  thread.pool = memory.pool_;
  thread.expect = nullptr;
}

DeviceMemory::Use::~Use() {
  Thread& thread = Thread::here();
  thread.pool = outer_pool_;
  thread.expect = outer_expect_;
}

bool DeviceMemory::in_use_on_this_thread() { return Thread::here().pool != nullptr; }

DeviceMemory::Expect::Expect() {
  Thread& thread = Thread::here();
  EPL_ASSERT(thread.pool != nullptr, "an Expect stands on a Use");
  outer_ = thread.expect;
  thread.expect = this;
}

DeviceMemory::Expect::~Expect() {
  Thread& thread = Thread::here();
  thread.expect = outer_;
  if (hits_ > 0) thread.pool->hits.fetch_add(hits_, std::memory_order_relaxed);
  if (!open_.empty()) thread.pool->misses.fetch_add(open_.size(), std::memory_order_relaxed);
}

DeviceMemory::Log::Log() {
  Thread& thread = Thread::here();
  EPL_ASSERT(thread.pool != nullptr && thread.log == nullptr, "a Log stands alone, on a Use");
  thread.log = this;
}

DeviceMemory::Log::~Log() { Thread::here().log = nullptr; }

int64_t DeviceMemory::Log::peak_besides(const std::vector<const void*>& kept) const {
  // Of an address that was used several times the last block is the one that is still there.
  std::map<const void*, size_t> last;  // by address: its last entry
  for (size_t i = 0; i < entries_.size(); ++i) last[entries_[i].address] = i;
  std::set<size_t> results, expected;
  for (const void* address : kept) {
    const auto found = last.find(address);
    if (found == last.end() || entries_[found->second].bytes <= 0) continue;
    results.insert(found->second);
    size_t first = 0;
    while (entries_[first].bytes != entries_[found->second].bytes || expected.count(first) != 0) {
      ++first;
    }
    expected.insert(first);
  }
  return std::max(peak_without(results), peak_without(expected));
}

int64_t DeviceMemory::Log::peak_without(const std::set<size_t>& left_out) const {
  int64_t now = 0;
  int64_t most = 0;
  std::set<const void*> held;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const auto [address, bytes] = entries_[i];
    if (left_out.count(i) != 0) continue;
    // What was there before and is freed in the meantime makes no room.
    if (bytes > 0 ? !held.insert(address).second : held.erase(address) == 0) continue;
    most = std::max(most, now += bytes);
  }
  return most;
}

// The address that waits for an allocation of this size, or null.
void* DeviceMemory::Expect::meet(int64_t bytes) {
  for (auto entry = open_.begin(); entry != open_.end(); ++entry) {
    if (entry->bytes != bytes) continue;
    void* const address = entry->address;
    open_.erase(entry);
    ++hits_;
    return address;
  }
  return nullptr;
}

}  // namespace epl

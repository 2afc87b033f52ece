#include "runtime/memory_blocks.h"

#include <sys/mman.h>

#include <new>

#include "base/check.h"
#include "base/mutex.h"

// A pool hides from the address sanitizer which of its memory is free, unless it tells.
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace epl {
namespace {

using Block = MemoryBlocks::Block;
constexpr int64_t kRecord = sizeof(Block);

// Which MemoryBlocks mapped which addresses, for the whole process. Never destroyed: tensors may be
// freed after main() has returned.
struct Directory {
  struct Entry {
    int64_t bytes;
    MemoryBlocks* segments;
  };
  Mutex mutex;
  std::map<const char*, Entry> entries EPL_GUARDED_BY(mutex);

  static Directory& get() {
    static auto* directory = new Directory;
    return *directory;
  }
};

int64_t bin_of(int64_t size) { return size / MemoryBlocks::kAlign - 1; }

// Memory that starts at a multiple of kPage, or null.
char* map_aligned(int64_t bytes) {
  const int64_t with_slack = bytes + MemoryBlocks::kPage;
  void* mapped =
      mmap(nullptr, with_slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  char* const begin = static_cast<char*>(mapped);
  const int64_t past = reinterpret_cast<uintptr_t>(begin) % MemoryBlocks::kPage;
  const int64_t in_front = past == 0 ? 0 : MemoryBlocks::kPage - past;
  if (in_front > 0) munmap(begin, in_front);
  munmap(begin + in_front + bytes, MemoryBlocks::kPage - in_front);
  madvise(begin + in_front, bytes, MADV_HUGEPAGE);  // a wish: the system may not have them
  return begin + in_front;
}

}  // namespace

MemoryBlocks::MemoryBlocks(void* owner, int64_t segment_bytes, int64_t smallest)
    : owner_(owner), segment_bytes_(segment_bytes), smallest_(smallest) {}

MemoryBlocks::~MemoryBlocks() { trim(); }

Block* MemoryBlocks::take(int64_t bytes) {
  Block* block = best_fit(bytes);
  if (block == nullptr) block = map_segment(bytes);
  if (block == nullptr) return nullptr;

  const int64_t left = block->size - bytes - kRecord;
  if (left < smallest_) {
    remove(block);
  } else {
    // Cut at the end, what stays free keeps its record and mostly its place in the tree.
    const bool last = block->last;
    char* const place = block->data() + left;
    ASAN_UNPOISON_MEMORY_REGION(place, kRecord);
    Block* const taken = new (place) Block;
    taken->home = this;
    taken->before = block;
    taken->size = bytes;
    taken->last = last;
    if (Block* after = taken->after()) after->before = taken;
    resize(block, left);
    block->last = false;
    block = taken;
  }
  ASAN_UNPOISON_MEMORY_REGION(block->data(), block->size);
  return block;
}

void MemoryBlocks::give(Block* block) {
  ASAN_POISON_MEMORY_REGION(block->data(), block->size);
  Block* after = block->after();
  if (after != nullptr && after->free) {
    remove(after);
    block->size += kRecord + after->size;
    block->last = after->last;
    ASAN_POISON_MEMORY_REGION(after, kRecord);
    after = block->after();
  }
  Block* const before = block->before;
  if (before != nullptr && before->free) {
    if (after != nullptr) after->before = before;
    before->last = block->last;
    const int64_t joined = before->size + kRecord + block->size;
    ASAN_POISON_MEMORY_REGION(block, kRecord);
    resize(before, joined);
  } else {
    if (after != nullptr) after->before = block;
    insert(block);
  }
}

namespace {

// The huge pages that lie wholly in a free block: its contents are nobody's.
void give_back_pages(MemoryBlocks::Block& block) {
  constexpr auto kPage = static_cast<uintptr_t>(MemoryBlocks::kPage);
  const auto data = reinterpret_cast<uintptr_t>(block.data());
  const uintptr_t begin = (data + kPage - 1) / kPage * kPage;
  const uintptr_t end = (data + static_cast<uintptr_t>(block.size)) / kPage * kPage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace

void MemoryBlocks::trim() {
  for (auto it = blocks_.begin(); it != blocks_.end();) {
    const auto [start, bytes] = *it;
    Block* const first = reinterpret_cast<Block*>(start);
    if (!first->free || !first->last) {
      ++it;
      continue;
    }
    remove(first);
    it = blocks_.erase(it);
    mapped_ -= bytes;
    {
      const MutexLock lock(Directory::get().mutex);
      Directory::get().entries.erase(start);
    }
    ASAN_UNPOISON_MEMORY_REGION(start, bytes);
    munmap(start, bytes);
  }
  for (Block* const block : tree_) give_back_pages(*block);
}

Block* MemoryBlocks::map_segment(int64_t bytes) {
  const int64_t needed = (bytes + kRecord + kPage - 1) / kPage * kPage;
  const int64_t length = needed > segment_bytes_ ? needed : segment_bytes_;
  char* const start = map_aligned(length);
  if (start == nullptr) return nullptr;
  blocks_.emplace(start, length);
  mapped_ += length;
  {
    const MutexLock lock(Directory::get().mutex);
    Directory::get().entries.emplace(start, Directory::Entry{length, this});
  }
  Block* const block = new (start) Block;
  block->home = this;
  block->size = length - kRecord;
  block->last = true;
  ASAN_POISON_MEMORY_REGION(block->data(), block->size);
  insert(block);
  return block;
}

Block* MemoryBlocks::best_fit(int64_t bytes) {
  if (bytes <= kBinned) {
    const uint64_t large_enough = bins_with_blocks_ >> bin_of(bytes);
    if (large_enough != 0) return bins_[bin_of(bytes) + __builtin_ctzll(large_enough)];
  }
  const auto found = tree_.lower_bound(bytes);
  return found == tree_.end() ? nullptr : *found;
}

void MemoryBlocks::insert(Block* block) {
  block->free = true;
  if (block->size > kBinned) {
    block->in_tree = tree_.insert(block).first;
    return;
  }
  const int64_t bin = bin_of(block->size);
  block->previous_in_bin = nullptr;
  block->next_in_bin = bins_[bin];
  if (block->next_in_bin != nullptr) block->next_in_bin->previous_in_bin = block;
  bins_[bin] = block;
  bins_with_blocks_ |= uint64_t{1} << bin;
}

void MemoryBlocks::remove(Block* block) {
  block->free = false;
  if (block->size > kBinned) {
    tree_.erase(block->in_tree);
    return;
  }
  const int64_t bin = bin_of(block->size);
  if (block->next_in_bin != nullptr) block->next_in_bin->previous_in_bin = block->previous_in_bin;
  if (block->previous_in_bin != nullptr) {
    block->previous_in_bin->next_in_bin = block->next_in_bin;
  } else {
    bins_[bin] = block->next_in_bin;
    if (bins_[bin] == nullptr) bins_with_blocks_ &= ~(uint64_t{1} << bin);
  }
}

// Gives a free block another size. Often its place among its neighbours in the tree stays right,
// and then the tree stays as it is.
void MemoryBlocks::resize(Block* block, int64_t size) {
  if (block->size > kBinned && size > kBinned) {
    const auto next = std::next(block->in_tree);
    const bool below_next = next == tree_.end() || size < (*next)->size;
    if (below_next &&
        (block->in_tree == tree_.begin() || (*std::prev(block->in_tree))->size < size)) {
      block->size = size;
      return;
    }
  }
  remove(block);
  block->size = size;
  insert(block);
}

MemoryBlocks* MemoryBlocks::around(const void* address) {
  const char* const at = static_cast<const char*>(address);
  Directory& directory = Directory::get();
  const MutexLock lock(directory.mutex);
  auto found = directory.entries.upper_bound(at);
  if (found == directory.entries.begin()) return nullptr;
  --found;
  return at < found->first + found->second.bytes ? found->second.segments : nullptr;
}

Block* MemoryBlocks::find(const void* address) {
  auto found = blocks_.upper_bound(static_cast<char*>(const_cast<void*>(address)));
  if (found == blocks_.begin()) return nullptr;
  --found;
  Block* block = reinterpret_cast<Block*>(found->first);
  while (block != nullptr && block->data() < address) block = block->after();
  return block != nullptr && block->data() == address && !block->free ? block : nullptr;
}

void MemoryBlocks::verify() {
  size_t free_blocks = 0;
  int64_t mapped = 0;
  for (const auto& [start, bytes] : blocks_) {
    mapped += bytes;
    Block* before = nullptr;
    char* end = start;
    for (Block* block = reinterpret_cast<Block*>(start); block != nullptr; block = block->after()) {
      EPL_ASSERT(block->home == this, "a block has a home");
      EPL_ASSERT(block->before == before, "a block knows its neighbour");
      EPL_ASSERT(block->size > 0 && block->size % kAlign == 0, "a block's size is aligned");
      EPL_ASSERT(!(block->free && before != nullptr && before->free), "free neighbours are joined");
      free_blocks += block->free;
      before = block;
      end = block->data() + block->size;
    }
    EPL_ASSERT(end == start + bytes, "blocks fill their segment");
  }
  EPL_ASSERT(mapped == mapped_, "the account of segments is right");

  size_t listed = tree_.size();
  for (size_t bin = 0; bin < bins_.size(); ++bin) {
    EPL_ASSERT((bins_[bin] != nullptr) == ((bins_with_blocks_ >> bin & 1) != 0), "bits show bins");
    for (Block* block = bins_[bin]; block != nullptr; block = block->next_in_bin) {
      EPL_ASSERT(block->free && bin_of(block->size) == static_cast<int64_t>(bin),
                 "bins are by size");
      ++listed;
    }
  }
  const Block* smaller = nullptr;
  for (const Block* block : tree_) {
    EPL_ASSERT(block->free && block->size > kBinned, "the tree holds large free blocks");
    EPL_ASSERT(smaller == nullptr || Block::Order()(smaller, block), "the tree is in order");
    smaller = block;
  }
  EPL_ASSERT(listed == free_blocks, "every free block is listed once");
}

}  // namespace epl

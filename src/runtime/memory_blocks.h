// Blocks of memory cut from large mapped segments, for one DeviceMemory.
//
// A segment is a row of blocks without gaps; each block has its record in the 64 bytes in front of
// its data, so that a pointer to the data is all that freeing needs:
//
//   segment   | record | data ........ | record | data ... | record | data .................... |
//               used                     free                used
//
// take() cuts the smallest free block that is large enough (best fit), at its end; give() joins a
// freed block with its free neighbours at once, so two free blocks never lie side by side. Of free
// blocks above kBinned bytes that fit equally well the one with the lowest address is taken. The
// same calls in the same order give the same places, as far as the system places segments alike.
//
// Not locked: the owner has a mutex.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>

namespace epl {

class MemoryBlocks {
 public:
  struct alignas(64) Block {
    // Free blocks above kBinned bytes, by size and then by address.
    struct Order {
      using is_transparent = void;
      bool operator()(const Block* a, const Block* b) const {
        return a->size != b->size ? a->size < b->size : a < b;
      }
      bool operator()(const Block* a, int64_t size) const { return a->size < size; }
    };
    using Tree = std::set<Block*, Order>;

    MemoryBlocks* home = nullptr;
    Block* before = nullptr;  // the neighbour at lower addresses; none in front of the first
    int64_t size = 0;         // bytes of data behind this record; a multiple of 64
    int64_t counted = 0;      // used blocks: bytes that the account counts; at most size
    Block* next_in_bin = nullptr;
    Block* previous_in_bin = nullptr;
    Tree::iterator in_tree;
    bool last = false;     // of its segment
    bool free = false;     // free blocks lie in a bin or in the tree
    bool planned = false;  // used blocks: made by DeviceMemory::reserve()

    char* data() { return reinterpret_cast<char*>(this + 1); }
    Block* after() { return last ? nullptr : reinterpret_cast<Block*>(data() + size); }
    static Block* of(void* data) { return static_cast<Block*>(data) - 1; }
  };

  static constexpr int64_t kAlign = 64;      // of every block's data; sizes are multiples of it
  static constexpr int64_t kBinned = 4096;   // up to here a list of free blocks for every size
  static constexpr int64_t kPage = 2 << 20;  // a huge page: segments are so aligned, and so long

  // Mapped segments are `segment_bytes` long, or longer for a larger block. No free block with
  // fewer than `smallest` bytes is split off: what is left over stays with the block that was
  // taken.
  MemoryBlocks(void* owner, int64_t segment_bytes, int64_t smallest);
  ~MemoryBlocks();
  MemoryBlocks(const MemoryBlocks&) = delete;
  MemoryBlocks& operator=(const MemoryBlocks&) = delete;

  // A block of at least `bytes` bytes, a positive multiple of kAlign. Null if the operating system
  // refuses a segment for it; then all is as before.
  Block* take(int64_t bytes);
  void give(Block* block);

  // Unmaps the segments that are wholly free, and gives back the huge pages of other free blocks.
  void trim();

  void* owner() const { return owner_; }
  int64_t mapped() const { return mapped_; }

  // The MemoryBlocks of this process that mapped this address, or null. Takes a lock of its own.
  static MemoryBlocks* around(const void* address);

  // The used block whose data starts at this address, or null. Walks the segment: slow.
  Block* find(const void* address);

  // Checks what the comments above promise; throws InternalError. For tests.
  void verify();

 private:
  Block* map_segment(int64_t bytes);
  Block* best_fit(int64_t bytes);
  void insert(Block* block);
  void remove(Block* block);
  void resize(Block* block, int64_t size);

  void* const owner_;
  const int64_t segment_bytes_;
  const int64_t smallest_;
  int64_t mapped_ = 0;
  std::map<char*, int64_t> blocks_;  // start and length

  uint64_t bins_with_blocks_ = 0;                // bit i: bins_[i] is not empty
  std::array<Block*, kBinned / kAlign> bins_{};  // bins_[i]: free blocks of (i + 1) * kAlign bytes
  Block::Tree tree_;                             // free blocks above kBinned bytes
};
static_assert(sizeof(MemoryBlocks::Block) == 64,
              "the record in front of a block keeps its data aligned");

}  // namespace epl

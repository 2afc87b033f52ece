#include "runtime/memory_blocks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <vector>

namespace epl {
namespace {

using Block = MemoryBlocks::Block;
constexpr int64_t kMiB = 1 << 20;

class MemoryBlocksTest : public testing::Test {
 protected:
  MemoryBlocks blocks_{/*owner=*/nullptr, /*segment_bytes=*/2 * kMiB, /*smallest=*/64};
};

TEST_F(MemoryBlocksTest, CutBlocksWithoutGapsFromTheEndOfASegment) {
  Block* a = blocks_.take(128);
  Block* b = blocks_.take(64);
  EXPECT_EQ(b->after(), a);
  EXPECT_EQ(a->data() - b->data(), 64 + 64);
  EXPECT_TRUE(a->last);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a->data() + 128) % (2 * kMiB), 0u);
  EXPECT_EQ(blocks_.mapped(), 2 * kMiB);
  blocks_.verify();
  blocks_.give(a);
  blocks_.give(b);
}

TEST_F(MemoryBlocksTest, JoinAFreedBlockWithBothNeighbours) {
  Block* whole = blocks_.take(2 * kMiB - 64);  // all that the segment has
  blocks_.give(whole);
  Block* high = blocks_.take(4096);
  Block* middle = blocks_.take(64);
  Block* low = blocks_.take(8192);
  blocks_.give(high);
  blocks_.give(low);
  blocks_.verify();
  blocks_.give(middle);
  blocks_.verify();
  EXPECT_EQ(blocks_.take(2 * kMiB - 64), whole);
  EXPECT_EQ(blocks_.mapped(), 2 * kMiB);
  blocks_.give(whole);
}

// Free blocks of the given sizes, kept apart by used ones.
struct Holes {
  Holes(MemoryBlocks& segments, const std::vector<int64_t>& sizes) : segments(segments) {
    for (int64_t size : sizes) {
      holes[size] = segments.take(size);
      walls.push_back(segments.take(64));
    }
    for (auto& [size, block] : holes) segments.give(block);
    segments.verify();
  }
  ~Holes() {
    for (Block* wall : walls) segments.give(wall);
  }
  MemoryBlocks& segments;
  std::map<int64_t, Block*> holes;
  std::vector<Block*> walls;
};

TEST_F(MemoryBlocksTest, TakeTheSmallestFreeBlockThatFits) {
  Holes three(blocks_, {20480, 256, 1024, 8192, 512});
  Block* exact = blocks_.take(512);
  EXPECT_EQ(exact, three.holes[512]);
  Block* larger = blocks_.take(960);  // 64 bytes would be left: no room for a record and data
  EXPECT_EQ(larger, three.holes[1024]);
  EXPECT_EQ(larger->size, 1024);
  Block* next = blocks_.take(320);  // the 256 are too few, all up to 1024 are taken
  EXPECT_EQ(next->before, three.holes[8192]);
  Block* large = blocks_.take(8192);
  EXPECT_EQ(large->before, three.holes[20480]);
  for (Block* block : {exact, larger, next, large}) blocks_.give(block);
  blocks_.verify();
}

TEST_F(MemoryBlocksTest, TakeTheLowestOfLargeBlocksThatFitEquallyWell) {
  std::vector<Block*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(blocks_.take(8192));
  for (int i : {5, 1, 3}) blocks_.give(blocks[i]);
  for (int i : {5, 3, 1}) EXPECT_EQ(blocks_.take(8192), blocks[i]) << "cut downwards: 5 is lowest";
  for (Block* block : blocks) blocks_.give(block);
}

TEST_F(MemoryBlocksTest, MapASegmentAsLongAsALargeBlockNeeds) {
  Block* block = blocks_.take(5 * kMiB);
  EXPECT_EQ(blocks_.mapped(), 6 * kMiB);
  std::memset(block->data(), 1, 5 * kMiB);
  blocks_.give(block);
}

TEST_F(MemoryBlocksTest, TrimUnmapsOnlySegmentsThatAreWhollyFree) {
  Block* kept = blocks_.take(kMiB);
  Block* gone = blocks_.take(5 * kMiB);
  blocks_.give(gone);
  blocks_.trim();
  blocks_.verify();
  EXPECT_EQ(blocks_.mapped(), 2 * kMiB);
  blocks_.give(kept);
  blocks_.trim();
  EXPECT_EQ(blocks_.mapped(), 0);
  blocks_.give(blocks_.take(64));
  EXPECT_EQ(blocks_.mapped(), 2 * kMiB);
}

TEST_F(MemoryBlocksTest, FindTheBlockOfABareAddress) {
  Block* block = blocks_.take(640);
  Block* neighbour = blocks_.take(64);
  EXPECT_EQ(MemoryBlocks::around(block->data()), &blocks_);
  EXPECT_EQ(blocks_.find(block->data()), block);
  EXPECT_EQ(blocks_.find(block->data() + 64), nullptr) << "inside of a block";
  blocks_.give(neighbour);
  EXPECT_EQ(blocks_.find(neighbour->data()), nullptr) << "free";
  int local = 0;
  EXPECT_EQ(MemoryBlocks::around(&local), nullptr);
  EXPECT_EQ(MemoryBlocks::around(nullptr), nullptr);
  char* const data = block->data();
  blocks_.give(block);
  blocks_.trim();
  EXPECT_EQ(MemoryBlocks::around(data), nullptr) << "no longer mapped";
}

TEST_F(MemoryBlocksTest, RefuseWhatTheSystemDoesNotHaveAndStayUsable) {
  EXPECT_EQ(blocks_.take(int64_t{1} << 50), nullptr);
  EXPECT_EQ(blocks_.mapped(), 0);
  blocks_.give(blocks_.take(64));
  blocks_.verify();
}

TEST_F(MemoryBlocksTest, NeverHandOutTheSameMemoryTwice) {
  std::mt19937 random(7);
  std::map<char*, Block*> live;  // by address
  for (int i = 0; i < 30000; ++i) {
    const bool grow = live.size() < 40 || (live.size() < 400 && random() % 2 == 0);
    if (grow) {
      const int64_t largest = int64_t{1} << (random() % 12);  // in units of 64 bytes
      const int64_t bytes = 64 * (1 + random() % largest);
      Block* block = blocks_.take(bytes);
      ASSERT_GE(block->size, bytes);
      const auto [mine, fresh] = live.emplace(block->data(), block);
      ASSERT_TRUE(fresh);
      const auto next = std::next(mine);
      if (next != live.end()) {
        ASSERT_LE(block->data() + block->size, next->first);
      }
      if (mine != live.begin()) {
        const auto& [data, previous] = *std::prev(mine);
        ASSERT_LE(data + previous->size, block->data());
      }
      std::memset(block->data(), 0xab, bytes);
    } else {
      auto victim = std::next(live.begin(), random() % live.size());
      blocks_.give(victim->second);
      live.erase(victim);
    }
    if (i % 100 == 0) blocks_.verify();
    if (i % 5000 == 0) blocks_.trim();
  }
  for (auto& [data, block] : live) blocks_.give(block);
  blocks_.verify();
  blocks_.trim();
  EXPECT_EQ(blocks_.mapped(), 0);
}

TEST(MemoryBlocks, LeaveSmallRestsWithTheBlockThatWasTaken) {
  MemoryBlocks segments(nullptr, 2 * kMiB, /*smallest=*/4096);
  Block* whole = segments.take(2 * kMiB - 64 - 4096);  // the rest is less than 4096 + a record
  EXPECT_EQ(whole->size, 2 * kMiB - 64);
  segments.give(whole);
  segments.verify();
}

}  // namespace
}  // namespace epl

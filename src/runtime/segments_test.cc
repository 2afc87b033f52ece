#include "runtime/segments.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <vector>

namespace epl {
namespace {

using Block = Segments::Block;
constexpr int64_t kMiB = 1 << 20;

class SegmentsTest : public testing::Test {
 protected:
  Segments segments_{/*owner=*/nullptr, /*segment_bytes=*/2 * kMiB, /*smallest=*/64};
};

TEST_F(SegmentsTest, CutBlocksWithoutGapsFromTheEndOfASegment) {
  Block* a = segments_.take(128);
  Block* b = segments_.take(64);
  EXPECT_EQ(b->after(), a);
  EXPECT_EQ(a->data() - b->data(), 64 + 64);
  EXPECT_TRUE(a->last);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a->data() + 128) % (2 * kMiB), 0u);
  EXPECT_EQ(segments_.mapped(), 2 * kMiB);
  segments_.verify();
  segments_.give(a);
  segments_.give(b);
}

TEST_F(SegmentsTest, JoinAFreedBlockWithBothNeighbours) {
  Block* whole = segments_.take(2 * kMiB - 64);  // all that the segment has
  segments_.give(whole);
  Block* high = segments_.take(4096);
  Block* middle = segments_.take(64);
  Block* low = segments_.take(8192);
  segments_.give(high);
  segments_.give(low);
  segments_.verify();
  segments_.give(middle);
  segments_.verify();
  EXPECT_EQ(segments_.take(2 * kMiB - 64), whole);
  EXPECT_EQ(segments_.mapped(), 2 * kMiB);
  segments_.give(whole);
}

// Free blocks of the given sizes, kept apart by used ones.
struct Holes {
  Holes(Segments& segments, const std::vector<int64_t>& sizes) : segments(segments) {
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
  Segments& segments;
  std::map<int64_t, Block*> holes;
  std::vector<Block*> walls;
};

TEST_F(SegmentsTest, TakeTheSmallestFreeBlockThatFits) {
  Holes three(segments_, {20480, 256, 1024, 8192, 512});
  Block* exact = segments_.take(512);
  EXPECT_EQ(exact, three.holes[512]);
  Block* larger = segments_.take(960);  // 64 bytes would be left: no room for a record and data
  EXPECT_EQ(larger, three.holes[1024]);
  EXPECT_EQ(larger->size, 1024);
  Block* next = segments_.take(320);  // the 256 are too few, all up to 1024 are taken
  EXPECT_EQ(next->before, three.holes[8192]);
  Block* large = segments_.take(8192);
  EXPECT_EQ(large->before, three.holes[20480]);
  for (Block* block : {exact, larger, next, large}) segments_.give(block);
  segments_.verify();
}

TEST_F(SegmentsTest, TakeTheLowestOfLargeBlocksThatFitEquallyWell) {
  std::vector<Block*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(segments_.take(8192));
  for (int i : {5, 1, 3}) segments_.give(blocks[i]);
  for (int i : {5, 3, 1})
    EXPECT_EQ(segments_.take(8192), blocks[i]) << "cut downwards: 5 is lowest";
  for (Block* block : blocks) segments_.give(block);
}

TEST_F(SegmentsTest, MapASegmentAsLongAsALargeBlockNeeds) {
  Block* block = segments_.take(5 * kMiB);
  EXPECT_EQ(segments_.mapped(), 6 * kMiB);
  std::memset(block->data(), 1, 5 * kMiB);
  segments_.give(block);
}

TEST_F(SegmentsTest, TrimUnmapsOnlySegmentsThatAreWhollyFree) {
  Block* kept = segments_.take(kMiB);
  Block* gone = segments_.take(5 * kMiB);
  segments_.give(gone);
  segments_.trim();
  segments_.verify();
  EXPECT_EQ(segments_.mapped(), 2 * kMiB);
  segments_.give(kept);
  segments_.trim();
  EXPECT_EQ(segments_.mapped(), 0);
  segments_.give(segments_.take(64));
  EXPECT_EQ(segments_.mapped(), 2 * kMiB);
}

TEST_F(SegmentsTest, FindTheBlockOfABareAddress) {
  Block* block = segments_.take(640);
  Block* neighbour = segments_.take(64);
  EXPECT_EQ(Segments::around(block->data()), &segments_);
  EXPECT_EQ(segments_.find(block->data()), block);
  EXPECT_EQ(segments_.find(block->data() + 64), nullptr) << "inside of a block";
  segments_.give(neighbour);
  EXPECT_EQ(segments_.find(neighbour->data()), nullptr) << "free";
  int local = 0;
  EXPECT_EQ(Segments::around(&local), nullptr);
  EXPECT_EQ(Segments::around(nullptr), nullptr);
  char* const data = block->data();
  segments_.give(block);
  segments_.trim();
  EXPECT_EQ(Segments::around(data), nullptr) << "no longer mapped";
}

TEST_F(SegmentsTest, RefuseWhatTheSystemDoesNotHaveAndStayUsable) {
  EXPECT_EQ(segments_.take(int64_t{1} << 50), nullptr);
  EXPECT_EQ(segments_.mapped(), 0);
  segments_.give(segments_.take(64));
  segments_.verify();
}

TEST_F(SegmentsTest, NeverHandOutTheSameMemoryTwice) {
  std::mt19937 random(7);
  std::map<char*, Block*> live;  // by address
  for (int i = 0; i < 30000; ++i) {
    const bool grow = live.size() < 40 || (live.size() < 400 && random() % 2 == 0);
    if (grow) {
      const int64_t largest = int64_t{1} << (random() % 12);  // in units of 64 bytes
      const int64_t bytes = 64 * (1 + random() % largest);
      Block* block = segments_.take(bytes);
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
      segments_.give(victim->second);
      live.erase(victim);
    }
    if (i % 100 == 0) segments_.verify();
    if (i % 5000 == 0) segments_.trim();
  }
  for (auto& [data, block] : live) segments_.give(block);
  segments_.verify();
  segments_.trim();
  EXPECT_EQ(segments_.mapped(), 0);
}

TEST(Segments, LeaveSmallRestsWithTheBlockThatWasTaken) {
  Segments segments(nullptr, 2 * kMiB, /*smallest=*/4096);
  Block* whole = segments.take(2 * kMiB - 64 - 4096);  // the rest is less than 4096 + a record
  EXPECT_EQ(whole->size, 2 * kMiB - 64);
  segments.give(whole);
  segments.verify();
}

}  // namespace
}  // namespace epl

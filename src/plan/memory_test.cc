#include "plan/memory.h"

#include <gtest/gtest.h>

#include <random>

#include "compile/compile.h"
#include "tests/models/steps.h"

namespace epl {
namespace {

bool live_together(const Lifetime& a, const Lifetime& b) {
  return a.first <= b.last && b.first <= a.last;
}

// The first fault of a placement, or nothing.
std::string fault(const std::vector<Lifetime>& lifetimes, const BufferPlaces& placement) {
  if (placement.offsets.size() != lifetimes.size()) return "a buffer has no place";
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    const int64_t begin = placement.offsets[i], end = begin + lifetimes[i].bytes;
    if (begin < 0 || end > placement.total) return "outside of the arena";
    if (begin % kArenaAlignment != 0) return "not aligned";
    for (size_t j = 0; j < i; ++j) {
      const int64_t other = placement.offsets[j], other_end = other + lifetimes[j].bytes;
      const bool overlap = begin < other_end && other < end;
      if (overlap && live_together(lifetimes[i], lifetimes[j])) return "two lie on one another";
    }
  }
  if (placement.total < lower_bound_bytes(lifetimes)) return "less than the lower bound";
  return "";
}

TEST(PlaceBuffers, NeverPutsTwoLivingOnesOnOneAnother) {
  std::mt19937 random(1);
  const auto draw = [&](int below) {
    return static_cast<int>(random() % static_cast<unsigned>(below));
  };
  for (int round = 0; round < 200; ++round) {
    std::vector<Lifetime> lifetimes(static_cast<size_t>(1 + draw(120)));
    const int length = 1 + draw(100);
    const int largest = 1 << draw(16);
    for (auto& lifetime : lifetimes) {
      lifetime.bytes = draw(8) == 0 ? 0 : draw(largest);
      lifetime.first = draw(length);
      lifetime.last = lifetime.first + draw(1 + draw(length));
    }
    ASSERT_EQ(fault(lifetimes, place_buffers(lifetimes)), "") << "round " << round;
  }
}

TEST(PlaceBuffers, SharesBytesBetweenThoseThatDoNotMeet) {
  const BufferPlaces placement = place_buffers({{256, 0, 3}, {256, 4, 5}, {256, 3, 4}});
  EXPECT_EQ(placement.offsets, (std::vector<int64_t>{0, 0, 256}));
  EXPECT_EQ(placement.total, 512);
}

TEST(PlaceBuffers, FillsAGapBetweenLargerOnes) {
  // Large ones at 0 and, for the time when both live, at 640; between them 128 bytes are free.
  const BufferPlaces placement =
      place_buffers({{512, 0, 9}, {640, 10, 19}, {500, 5, 12}, {64, 0, 9}});
  EXPECT_EQ(placement.offsets, (std::vector<int64_t>{0, 0, 640, 512}));
}

TEST(PlaceBuffers, AlignsEveryBuffer) {
  const BufferPlaces placement = place_buffers({{1, 0, 1}, {65, 0, 1}, {64, 0, 1}});
  EXPECT_EQ(placement.offsets, (std::vector<int64_t>{192, 0, 128}));
  EXPECT_EQ(placement.total, 256);
}

TEST(PlaceBuffers, TakesNoBytesForEmptyOnes) {
  EXPECT_EQ(place_buffers({{0, 0, 9}, {0, 0, 9}}).total, 0);
  EXPECT_EQ(place_buffers({{0, 0, 9}, {64, 0, 9}}).total, 64);
  EXPECT_EQ(place_buffers({}).total, 0);
}

TEST(LowerBoundBytes, IsTheMostThatLivesAtOnce) {
  EXPECT_EQ(lower_bound_bytes({{64, 0, 1}, {64, 1, 2}, {64, 2, 3}}), 128);
  EXPECT_EQ(lower_bound_bytes({{1, 0, 0}, {1, 1, 1}}), 64);
  EXPECT_EQ(lower_bound_bytes({}), 0);
}

TEST(AlignUp, RoundsToTheNextMultiple) {
  EXPECT_EQ(align_up(0), 0);
  EXPECT_EQ(align_up(1), 64);
  EXPECT_EQ(align_up(64), 64);
  EXPECT_EQ(align_up(65), 128);
}

// When each buffer of the step is written first and read last, as its calls tell.
std::vector<Lifetime> lifetimes_of(const Plan& plan) {
  std::map<int, Lifetime> by_buffer;
  const auto& calls = plan.programs[0].segments[0].calls;
  const auto touch = [&](SlotId id, int now) {
    const Slot& slot = plan.programs[0].slots[static_cast<size_t>(id)];
    if (slot.where != Slot::Where::kArena) return;
    const int64_t bytes = plan.programs[0].buffers[static_cast<size_t>(slot.index)].bytes;
    by_buffer.try_emplace(slot.index, Lifetime{bytes, now, now}).first->second.last = now;
  };
  for (size_t i = 0; i < calls.size(); ++i) {
    for_each_operand(calls[i], [&](SlotId id) { touch(id, static_cast<int>(i)); });
    for_each_result(calls[i], [&](SlotId id) { touch(id, static_cast<int>(i)); });
  }
  for (const auto& gradient : plan.programs[0].gradients)
    touch(gradient.slot, static_cast<int>(calls.size()));
  std::vector<Lifetime> lifetimes;
  for (const auto& [buffer, lifetime] : by_buffer) lifetimes.push_back(lifetime);
  return lifetimes;
}

// In toys the rounding to 64 bytes weighs more (1.13 at most).
// Measured: 1.000 for bert, gpt and resnet18, 1.035 for the encoder, 1.091 for speech.
TEST(PlaceBuffers, ComesCloseToTheLowerBoundOnRealSteps) {
  for (const auto& step : models::wide_steps()) {
    const std::vector<Lifetime> lifetimes =
        lifetimes_of(compile(step.capture(), Cluster(), Config()).plan);
    const BufferPlaces placement = place_buffers(lifetimes);
    EXPECT_EQ(fault(lifetimes, placement), "") << step.name;
    const double ratio =
        static_cast<double>(placement.total) / static_cast<double>(lower_bound_bytes(lifetimes));
    EXPECT_LE(ratio, 1.1) << step.name;
    RecordProperty(step.name, std::to_string(ratio));
  }
}

}  // namespace
}  // namespace epl

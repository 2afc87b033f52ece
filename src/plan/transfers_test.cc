#include "plan/transfers.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace epl {
namespace {

// "0>1 2+4@0": device 0 sends device 1 four rows from its row 2 on, to row 0 of the other.
std::vector<std::string> common(int64_t rows, TransferEnd from, TransferEnd to) {
  std::vector<std::string> texts;
  for (const auto& each : common_rows(rows, from, to)) {
    texts.push_back(
        concat(each.from, ">", each.to, " ", each.first, "+", each.count, "@", each.place));
  }
  return texts;
}

using Texts = std::vector<std::string>;

TEST(CommonRows, OneDeviceSharesWithAll) {
  EXPECT_EQ(common(12, {1}, {3}), (Texts{"0>0 0+4@0", "0>1 4+4@0", "0>2 8+4@0"}));
  EXPECT_EQ(common(12, {3}, {1}), (Texts{"0>0 0+4@0", "1>0 0+4@4", "2>0 0+4@8"}));
}

TEST(CommonRows, EqualNumbersShareOneToOne) {
  EXPECT_EQ(common(12, {2}, {2}), (Texts{"0>0 0+6@0", "1>1 0+6@0"}));
}

TEST(CommonRows, UnevenNumbersOverlap) {
  EXPECT_EQ(common(12, {2}, {3}), (Texts{"0>0 0+4@0", "0>1 4+2@0", "1>1 0+2@2", "1>2 2+4@0"}));
  EXPECT_EQ(common(12, {3}, {2}), (Texts{"0>0 0+4@0", "1>0 0+2@4", "1>1 2+2@0", "2>1 0+4@2"}));
}

// Every row is sent once, from where it is to where it belongs.
TEST(CommonRows, AreAllRowsOnce) {
  for (int senders : {1, 2, 3, 4, 6}) {
    for (int receivers : {1, 2, 3, 4, 6}) {
      std::vector<int> seen(24, 0);
      for (const auto& each : common_rows(24, {senders}, {receivers})) {
        const int64_t first = each.from * 24 / senders + each.first;
        EXPECT_EQ(first, each.to * 24 / receivers + each.place);
        for (int64_t i = 0; i < each.count; ++i) ++seen[static_cast<size_t>(first + i)];
      }
      EXPECT_EQ(seen, std::vector<int>(24, 1)) << senders << " to " << receivers;
    }
  }
}

TEST(CommonRows, WhatAllHaveIsSentByOneOfThem) {
  const TransferEnd whole{2, /*is_cut=*/false};
  EXPECT_EQ(common(12, whole, {3}), (Texts{"0>0 0+4@0", "0>2 8+4@0", "1>1 4+4@0"}));
  EXPECT_EQ(common(12, whole, {1}), (Texts{"0>0 0+12@0"}));
  EXPECT_EQ(common(12, {1}, whole), (Texts{"0>0 0+12@0", "0>1 0+12@0"}));
  EXPECT_EQ(common(12, {3}, whole),
            (Texts{"0>0 0+4@0", "0>1 0+4@0", "1>0 0+4@4", "1>1 0+4@4", "2>0 0+4@8", "2>1 0+4@8"}));
}

TEST(CommonRows, NoRowsAreCommonToNobody) { EXPECT_TRUE(common(0, {2}, {3}).empty()); }

}  // namespace
}  // namespace epl

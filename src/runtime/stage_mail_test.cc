#include "runtime/stage_mail.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace epl {
namespace {

// What a device has in common with each of its peers: "2+2" are two rows from row 2 of its part on.
std::vector<std::string> common(int64_t rows, int slice, int devices, int peers) {
  std::vector<std::string> texts;
  for (int peer = 0; peer < peers; ++peer) {
    const CommonRows each = common_rows(rows, slice, devices, peer, peers);
    texts.push_back(each.count == 0 ? "-" : concat(each.first, "+", each.count));
  }
  return texts;
}

using Texts = std::vector<std::string>;

TEST(CommonRows, OneDeviceSharesWithAll) {
  EXPECT_EQ(common(12, 0, 1, 3), (Texts{"0+4", "4+4", "8+4"}));
  EXPECT_EQ(common(12, 2, 3, 1), (Texts{"0+4"}));
}

TEST(CommonRows, EqualNumbersShareOneToOne) {
  EXPECT_EQ(common(12, 0, 3, 3), (Texts{"0+4", "-", "-"}));
  EXPECT_EQ(common(12, 1, 3, 3), (Texts{"-", "0+4", "-"}));
}

TEST(CommonRows, UnevenNumbersOverlap) {
  EXPECT_EQ(common(12, 0, 2, 3), (Texts{"0+4", "4+2", "-"}));
  EXPECT_EQ(common(12, 1, 2, 3), (Texts{"-", "0+2", "2+4"}));
  EXPECT_EQ(common(12, 1, 3, 2), (Texts{"0+2", "2+2"}));
}

// Whatever one end counts the other counts as well, and together they have all rows once.
TEST(CommonRows, BothEndsAgree) {
  for (int devices : {1, 2, 3, 4, 6}) {
    for (int peers : {1, 2, 3, 4, 6}) {
      int64_t sum = 0;
      for (int slice = 0; slice < devices; ++slice) {
        for (int peer = 0; peer < peers; ++peer) {
          const CommonRows here = common_rows(24, slice, devices, peer, peers);
          const CommonRows there = common_rows(24, peer, peers, slice, devices);
          EXPECT_EQ(here.count, there.count);
          if (here.count > 0) {
            EXPECT_EQ(here.first + slice * 24 / devices, there.first + peer * 24 / peers);
          }
          sum += here.count;
        }
      }
      EXPECT_EQ(sum, 24) << devices << " to " << peers;
    }
  }
}

TEST(CommonRows, NoRowsAreCommonToNobody) { EXPECT_EQ(common(0, 0, 2, 3), (Texts{"-", "-", "-"})); }

}  // namespace
}  // namespace epl

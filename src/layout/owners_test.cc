#include "layout/owners.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace epl {
namespace {

constexpr Owners kRanges{Owners::Kind::kRanges, 0};

std::string again(const std::string& text) {
  TextLine line("owners", text, 1);
  const std::string printed = print_owners(parse_owners(line));
  line.expect_end();
  return printed;
}

TEST(Owners, PrintWhatTheyParsed) {
  EXPECT_EQ(again(""), "");
  EXPECT_EQ(again("to ranges"), " to ranges");
  EXPECT_EQ(again("to rank 12"), " to rank 12");
}

TEST(Owners, OfAllHaveAllOfIt) { EXPECT_EQ(owned_elements({}, 10, {1, 1}, 1), (Piece{0, 10})); }

TEST(Owners, OfARankHaveItThereAlone) {
  const Owners second{Owners::Kind::kRank, 1};
  EXPECT_EQ(owned_elements(second, 10, {1, 1}, 0).length, 0);
  EXPECT_EQ(owned_elements(second, 10, {1, 1}, 1), (Piece{0, 10}));
}

// Whatever the sizes: they lie end to end, begin at multiples of 1024, and each has its share up to
// that.
TEST(Owners, OfRangesCutEvenlyAndLeaveNothingOut) {
  for (const std::vector<int>& shares :
       {std::vector<int>{1}, {1, 1}, {4, 2}, {1, 1, 1}, {3, 1, 7, 2}, {1, 0, 1}}) {
    const int64_t all = std::accumulate(shares.begin(), shares.end(), int64_t{0});
    for (int64_t elements : {int64_t{0}, int64_t{1}, int64_t{1023}, int64_t{4096}, int64_t{100'003},
                             (int64_t{1} << 60) + 5}) {
      int64_t next = 0;
      for (int rank = 0; rank < static_cast<int>(shares.size()); ++rank) {
        const Piece owned = owned_elements(kRanges, elements, shares, rank);
        EXPECT_EQ(owned.begin, next);
        EXPECT_EQ(owned.begin % 1024, 0);
        const double share = static_cast<double>(elements) / static_cast<double>(all) *
                             shares[static_cast<size_t>(rank)];
        EXPECT_NEAR(static_cast<double>(owned.length), share, 1024 + 1e-9 * share);
        next += owned.length;
      }
      EXPECT_EQ(next, elements);
    }
  }
}

}  // namespace
}  // namespace epl

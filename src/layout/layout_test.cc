#include "layout/layout.h"

#include <gtest/gtest.h>

#include <numeric>

namespace epl {
namespace {

TEST(Layout, IsAValueWithAText) {
  EXPECT_EQ(Layout::whole().str(), "R");
  EXPECT_EQ(Layout::cut(1).str(), "S(1)");
  EXPECT_EQ(Layout::partial().str(), "P");
  EXPECT_EQ(Layout(), Layout::whole());
  EXPECT_EQ(Layout::cut(2), Layout::cut(2));
  EXPECT_NE(Layout::cut(2), Layout::cut(0));
  EXPECT_NE(Layout::cut(0), Layout::partial());
}

TEST(Layout, HasAnOrder) {
  const Layout ascending[] = {Layout::whole(), Layout::cut(0), Layout::cut(1), Layout::partial()};
  for (size_t i = 0; i < 4; ++i) {
    for (size_t j = 0; j < 4; ++j) EXPECT_EQ(ascending[i] < ascending[j], i < j) << i << " " << j;
  }
}

TEST(PiecesOf, GiveTheFirstOnesWhatDoesNotDivide) {
  const std::vector<int64_t> thirds = {334, 333, 333};
  EXPECT_EQ(pieces_of(1000, 3), thirds);
  EXPECT_EQ(pieces_of(6, 3), (std::vector<int64_t>{2, 2, 2}));
  EXPECT_EQ(pieces_of(7, 1), std::vector<int64_t>{7});
  EXPECT_EQ(pieces_of(2, 4), (std::vector<int64_t>{1, 1, 0, 0}));
  EXPECT_EQ(pieces_of(0, 2), (std::vector<int64_t>{0, 0}));
}

TEST(PieceOf, LiesEndToEndWithTheOthers) {
  for (int parts : {1, 2, 3, 5, 8}) {
    for (int64_t size : {0, 1, 4, 7, 8, 1000}) {
      int64_t end = 0;
      for (int part = 0; part < parts; ++part) {
        const Piece piece = piece_of(size, parts, part);
        EXPECT_EQ(piece.begin, end);
        end += piece.length;
      }
      EXPECT_EQ(end, size);
    }
  }
}

TEST(LocalSizes, ChangeWhereTheValueIsCut) {
  const std::vector<int64_t> sizes = {4, 7};
  EXPECT_EQ(local_sizes(sizes, Layout::whole(), 2, 1), sizes);
  EXPECT_EQ(local_sizes(sizes, Layout::partial(), 2, 1), sizes);
  EXPECT_EQ(local_sizes(sizes, Layout::cut(0), 2, 1), (std::vector<int64_t>{2, 7}));
  EXPECT_EQ(local_sizes(sizes, Layout::cut(1), 2, 0), (std::vector<int64_t>{4, 4}));
  EXPECT_EQ(local_sizes(sizes, Layout::cut(1), 2, 1), (std::vector<int64_t>{4, 3}));
}

TEST(LocalSizes, FollowTheSharesOfTheAxis) {
  const std::vector<int64_t> sizes = {8, 4};
  const Axis unequal(2, {3, 1});
  EXPECT_EQ(local_sizes(sizes, Layout::cut(0), unequal, 0), (std::vector<int64_t>{6, 4}));
  EXPECT_EQ(local_sizes(sizes, Layout::cut(0), unequal, 1), (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(local_sizes(sizes, Layout::cut(0, 2), unequal, 1), (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(piece_of(8, unequal, 1), (Piece{6, 2}));
}

}  // namespace
}  // namespace epl

#include "layout/shard.h"

#include <gtest/gtest.h>

namespace epl {
namespace {

std::string again(const std::string& text) {
  TextLine line("shard", text, 1);
  const std::string printed = print_shard(parse_shard(line));
  line.expect_end();
  return printed;
}

TEST(Shard, PrintsWhatItParsed) {
  EXPECT_EQ(again(""), "");
  EXPECT_EQ(again("[4:8 of 8 in dim 0]"), " [4:8 of 8 in dim 0]");
  EXPECT_EQ(again("[ 0:0 of 3 in dim -1 ]"), " [0:0 of 3 in dim -1]");
}

TEST(Shard, OfACutTensorIsThePieceOfTheDevice) {
  EXPECT_EQ(print_shard(shard_of({7, 5}, Layout::cut(0), 3, 1)), " [3:5 of 7 in dim 0]");
  EXPECT_FALSE(shard_of({7, 5}, Layout::whole(), 3, 1).is_cut());
  EXPECT_FALSE(shard_of({7, 5}, Layout::partial(), 3, 1).is_cut());
}

TEST(Shard, OfAWholeTensorIsNotWritten) { EXPECT_EQ(print_shard({}), ""); }

}  // namespace
}  // namespace epl

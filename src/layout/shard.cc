#include "layout/shard.h"

#include "base/text.h"

namespace epl {

std::string print_shard(const Shard& shard) {
  const bool is_whole =
      shard.dim == -1 && shard.piece.begin == 0 && shard.piece.length == 0 && shard.whole == 0;
  if (is_whole) return "";
  return concat(" [", shard.piece.begin, ":", shard.piece.begin + shard.piece.length, " of ",
                shard.whole, " in dim ", shard.dim, "]");
}

Shard parse_shard(TextLine& line) {
  Shard shard;
  if (!line.take("[")) return shard;
  shard.piece.begin = line.integer();
  line.expect(":");
  const int64_t end = line.integer();
  if (shard.piece.begin < 0 || end < shard.piece.begin) line.fail("a piece without a length");
  shard.piece.length = end - shard.piece.begin;
  line.expect("of");
  shard.whole = line.integer();
  line.expect("in dim");
  shard.dim = line.small_integer();
  line.expect("]");
  return shard;
}

}  // namespace epl

#include "layout/shard.h"

#include "base/text.h"

namespace epl {

Shard shard_of(const std::vector<int64_t>& sizes, Layout layout, const Axis& parts, int part) {
  if (!layout.is_cut()) return {};
  const int64_t whole = sizes.at(static_cast<size_t>(layout.dim));
  return {layout.dim, piece_of(whole, parts, part), whole};
}

std::string print_shard(const Shard& shard) {
  if (shard == Shard()) return "";
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

// Shard: a part of a tensor, as a device has it. The one struct for it: of a leaf of a graph or a
// plan, of a gradient, of the numbers that indices may be.
//
//   [4:8 of 8 in dim 0]     elements 4 to 7 of the 8 along dimension 0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/text_line.h"
#include "layout/layout.h"

namespace epl {

struct Shard {
  int dim = -1;  // -1: it has all of it
  Piece piece = {};
  int64_t whole = 0;  // elements along that dimension

  bool is_cut() const { return dim >= 0; }
  bool operator==(const Shard& other) const {
    return dim == other.dim && piece == other.piece && whole == other.whole;
  }
};

// What device `part` of `parts` has of a tensor of these sizes; all of it where it is not cut.
Shard shard_of(const std::vector<int64_t>& sizes, Layout layout, const Axis& parts, int part);

// With a blank in front; nothing where the device has the whole tensor.
std::string print_shard(const Shard& shard);
// The whole tensor where the line does not go on with a bracket.
Shard parse_shard(TextLine& line);

}  // namespace epl

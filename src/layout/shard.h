// Shard: which part of a tensor a device has, where it has one part of it.
//
//   [4:8 of 8 in dim 0]     elements 4 to 7 of the 8 along dimension 0
#pragma once

#include <cstdint>
#include <string>

#include "base/text_line.h"
#include "layout/layout.h"

namespace epl {

struct Shard {
  int dim = -1;  // -1: it has all of it
  Piece piece = {};
  int64_t whole = 0;  // elements along that dimension
};

// With a blank in front; nothing where the device has the whole tensor.
std::string print_shard(const Shard& shard);
// The whole tensor where the line does not go on with a bracket.
Shard parse_shard(TextLine& line);

}  // namespace epl

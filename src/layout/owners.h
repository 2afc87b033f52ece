// Owners: which of the workers that have a parameter alike update it, and keep the states of its
// optimizer (zero.level).
//
//   all        each of them all of it, as in plain data parallelism
//   ranges     each a run of its elements in the order of memory, in proportion to its devices
//   rank 1     the second of them all of it
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/text_line.h"
#include "layout/layout.h"

namespace epl {

struct Owners {
  enum class Kind : uint8_t { kAll, kRanges, kRank };

  Kind kind = Kind::kAll;
  int rank = 0;  // kRank: among those workers, in order

  bool are_all() const { return kind == Kind::kAll; }
  bool operator==(const Owners& other) const { return kind == other.kind && rank == other.rank; }
};

// Which of `elements` the worker of this rank updates. `shares`: the devices of each, by rank.
// Ranges begin at multiples of 1024 elements, so that states of float32 begin at pages.
Piece owned_elements(const Owners& owners, int64_t elements, const std::vector<int>& shares,
                     int rank);

// With a blank in front; nothing where all own it.
std::string print_owners(const Owners& owners);
Owners parse_owners(TextLine& line);

}  // namespace epl

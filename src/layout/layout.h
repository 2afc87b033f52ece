// How a value lies on the devices of a TaskGraph.
//
//   R       whole on each of them
//   S(d)    cut along dimension d, one piece a device, in the order of the devices
//   S(d in n runs)
//           the dimension is n stretches one behind the other, and each of them is cut: rows of a
//           batch in dimension 1 of [time, batch], after that was flattened
//   P       each has a part of the same shape; the value is their sum
//
// A Layout is a value: copied and compared freely.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "layout/axis.h"

namespace epl {

struct Layout {
  enum class Kind : uint8_t { kWhole, kCut, kPartial };

  Kind kind = Kind::kWhole;
  int dim = -1;      // kCut only
  int64_t runs = 1;  // kCut only

  static Layout whole() { return {}; }
  static Layout cut(int dim, int64_t runs = 1) { return {Kind::kCut, dim, runs}; }
  static Layout partial() { return {Kind::kPartial, -1}; }

  bool is_whole() const { return kind == Kind::kWhole; }
  bool is_cut() const { return kind == Kind::kCut; }
  bool is_partial() const { return kind == Kind::kPartial; }
  bool operator==(const Layout& other) const {
    return kind == other.kind && dim == other.dim && runs == other.runs;
  }
  bool operator!=(const Layout& other) const { return !(*this == other); }
  bool operator<(const Layout& other) const {
    return std::tie(kind, dim, runs) < std::tie(other.kind, other.dim, other.runs);
  }

  std::string str() const;  // "R", "S(1)", "S(1 in 4 runs)", "P"
};

// A run of the elements of one dimension.
struct Piece {
  int64_t begin = 0;
  int64_t length = 0;

  bool operator==(const Piece& other) const {
    return begin == other.begin && length == other.length;
  }
};

// What device `part` has of `size` elements that are cut over `parts`: its own of pieces_of(),
// which lie end to end.
Piece piece_of(int64_t size, const Axis& parts, int part);

// The sizes that device `part` of `parts` holds.
std::vector<int64_t> local_sizes(std::vector<int64_t> sizes, Layout layout, const Axis& parts,
                                 int part);

}  // namespace epl

#include "layout/layout.h"

#include <algorithm>
#include <numeric>

namespace epl {

std::string Layout::str() const {
  switch (kind) {
    case Kind::kWhole:
      return "R";
    case Kind::kCut:
      return "S(" + std::to_string(dim) +
             (runs == 1 ? "" : " in " + std::to_string(runs) + " runs") + ")";
    case Kind::kPartial:
      break;
  }
  return "P";
}

// Even pieces are worked out one by one: with hundreds of devices each asks for its own.
Piece piece_of(int64_t size, const Axis& parts, int part) {
  if (parts.is_even()) {
    const int64_t each = size / parts.size;
    const int64_t longer = size % parts.size;
    return {each * part + std::min<int64_t>(part, longer), each + (part < longer ? 1 : 0)};
  }
  const std::vector<int64_t> lengths = pieces_of(size, parts);
  const auto own = lengths.begin() + part;
  return {std::accumulate(lengths.begin(), own, int64_t{0}), *own};
}

std::vector<int64_t> local_sizes(std::vector<int64_t> sizes, Layout layout, const Axis& parts,
                                 int part) {
  if (!layout.is_cut()) return sizes;
  int64_t& size = sizes[static_cast<size_t>(layout.dim)];
  size = piece_of(size / layout.runs, parts, part).length * layout.runs;
  return sizes;
}

}  // namespace epl

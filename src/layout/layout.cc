#include "layout/layout.h"

#include <algorithm>

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

Piece piece_of(int64_t size, int parts, int part) {
  const int64_t each = size / parts;
  const int64_t longer = size % parts;
  return {each * part + std::min<int64_t>(part, longer), each + (part < longer ? 1 : 0)};
}

std::vector<int64_t> pieces_of(int64_t size, int parts) {
  std::vector<int64_t> lengths;
  for (int part = 0; part < parts; ++part) lengths.push_back(piece_of(size, parts, part).length);
  return lengths;
}

std::vector<int64_t> local_sizes(std::vector<int64_t> sizes, Layout layout, int parts, int part) {
  if (!layout.is_cut()) return sizes;
  int64_t& size = sizes[static_cast<size_t>(layout.dim)];
  size = piece_of(size / layout.runs, parts, part).length * layout.runs;
  return sizes;
}

}  // namespace epl

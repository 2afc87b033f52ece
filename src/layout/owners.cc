#include "layout/owners.h"

#include <numeric>

#include "base/check.h"
#include "base/text.h"

namespace epl {
namespace {

constexpr int64_t kGrain = 1024;  // elements

// Where the range of a rank begins: that of the one behind the last at the end.
int64_t begin_of(int64_t elements, const std::vector<int>& shares, int rank) {
  if (rank == static_cast<int>(shares.size())) return elements;
  const int64_t all = std::accumulate(shares.begin(), shares.end(), int64_t{0});
  const int64_t before = std::accumulate(shares.begin(), shares.begin() + rank, int64_t{0});
  // In two parts, since elements times devices may leave the range of 64 bits.
  const int64_t begin = elements / all * before + elements % all * before / all;
  return begin / kGrain * kGrain;
}

}  // namespace

Piece owned_elements(const Owners& owners, int64_t elements, const std::vector<int>& shares,
                     int rank) {
  EPL_ASSERT(rank >= 0 && rank < static_cast<int>(shares.size()),
             concat("rank ", rank, " of ", shares.size(), " workers"));
  switch (owners.kind) {
    case Owners::Kind::kAll:
      break;
    case Owners::Kind::kRank:
      return {0, owners.rank == rank ? elements : 0};
    case Owners::Kind::kRanges: {
      const int64_t begin = begin_of(elements, shares, rank);
      return {begin, begin_of(elements, shares, rank + 1) - begin};
    }
  }
  return {0, elements};
}

std::string print_owners(const Owners& owners) {
  if (owners.kind == Owners::Kind::kRanges) return " to ranges";
  return owners.kind == Owners::Kind::kRank ? concat(" to rank ", owners.rank) : "";
}

Owners parse_owners(TextLine& line) {
  if (line.take("to ranges")) return {Owners::Kind::kRanges, 0};
  if (line.take("to rank ")) return {Owners::Kind::kRank, line.small_integer()};
  return {};
}

}  // namespace epl

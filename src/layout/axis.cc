#include "layout/axis.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace epl {
namespace {

std::vector<int64_t> even_pieces(int64_t size, int parts) {
  std::vector<int64_t> lengths(static_cast<size_t>(parts), size / parts);
  std::fill_n(lengths.begin(), size % parts, size / parts + 1);
  return lengths;
}

// The places of the largest numbers first; of equal ones the first.
std::vector<size_t> largest_first(const std::vector<double>& numbers) {
  std::vector<size_t> order(numbers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return numbers[a] > numbers[b]; });
  return order;
}

// An operator need not know what to do with nothing (the largest of no elements).
void fill_empty_pieces(std::vector<int64_t>& lengths) {
  for (auto& length : lengths) {
    if (length > 0) continue;
    --*std::max_element(lengths.begin(), lengths.end());
    ++length;
  }
}

std::vector<int64_t> shared_pieces(int64_t size, const std::vector<double>& shares) {
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<int64_t> lengths;
  std::vector<double> lost;
  int64_t left = size;
  for (double share : shares) {
    const double due = static_cast<double>(size) * share / all;
    lengths.push_back(static_cast<int64_t>(std::floor(due)));
    lost.push_back(due - std::floor(due));
    left -= lengths.back();
  }
  const std::vector<size_t> order = largest_first(lost);
  for (size_t i = 0; static_cast<int64_t>(i) < left; ++i) ++lengths[order[i % order.size()]];
  if (size >= static_cast<int64_t>(lengths.size())) fill_empty_pieces(lengths);
  return lengths;
}

}  // namespace

Axis::Axis(int size, std::vector<double> shares, std::string name)
    : name(std::move(name)), size(size), shares(std::move(shares)) {
  EPL_ASSERT(is_even() || static_cast<int>(this->shares.size()) == size,
             concat("an axis of ", size, " devices has ", this->shares.size(), " shares"));
  EPL_ASSERT(
      std::all_of(this->shares.begin(), this->shares.end(), [](double share) { return share > 0; }),
      "each device of an axis has a share");
}

double Axis::speedup() const {
  if (is_even()) return size;
  return std::accumulate(shares.begin(), shares.end(), 0.0) /
         *std::min_element(shares.begin(), shares.end());
}

std::vector<int64_t> pieces_of(int64_t size, const Axis& parts) {
  return parts.is_even() ? even_pieces(size, parts.size) : shared_pieces(size, parts.shares);
}

}  // namespace epl

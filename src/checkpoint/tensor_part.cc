#include "checkpoint/tensor_part.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "checkpoint/stored_type.h"

namespace epl {
namespace {

int64_t product(const Shape& shape, size_t begin, size_t end) {
  int64_t count = 1;
  for (size_t i = begin; i < end; ++i) count *= shape[i];
  return count;
}

// As its runs are cut. A slab that has all of its dimension is the tensor.
bool is_cut_slab(const TensorPart& part, const Shape& shape) {
  return part.dim >= 0 && !(part.begin == 0 && part.end == shape[static_cast<size_t>(part.dim)]);
}

}  // namespace

TensorPart elements(const Shape& shape, int64_t first, int64_t last) {
  const TensorPart part{-1, 0, 0, first, last};
  EPL_ASSERT(is_part_of(part, shape), "elements of a tensor");
  return part;
}

TensorPart whole(const Shape& shape) { return elements(shape, 0, product(shape, 0, shape.size())); }

TensorPart slab(const Shape& shape, int64_t dim, int64_t begin, int64_t end) {
  EPL_ASSERT(dim >= 0 && dim < static_cast<int64_t>(shape.size()), "a dimension of a tensor");
  Shape cut = shape;
  cut[static_cast<size_t>(dim)] = end - begin;
  const TensorPart part{dim, begin, end, 0, product(cut, 0, cut.size())};
  EPL_ASSERT(is_part_of(part, shape), "a slab of a tensor");
  return part;
}

TensorPart rows(const Shape& shape, int64_t begin, int64_t end) {
  const int64_t row = product(shape, 1, shape.size());
  return elements(shape, begin * row, end * row);
}

bool is_part_of(const TensorPart& part, const Shape& shape) {
  Shape cut = shape;
  if (part.dim < -1 || part.dim >= static_cast<int64_t>(shape.size())) return false;
  if (part.dim >= 0) {
    const int64_t size = shape[static_cast<size_t>(part.dim)];
    if (part.begin < 0 || part.begin > part.end || part.end > size) return false;
    cut[static_cast<size_t>(part.dim)] = part.end - part.begin;
  } else if (part.begin != 0 || part.end != 0) {
    return false;
  }
  const auto count = element_count(cut);
  return count && part.first >= 0 && part.first <= part.last && part.last <= *count;
}

std::string print_part(const TensorPart& part) {
  const std::string run = concat("[", part.first, ":", part.last, "]");
  return part.dim < 0 ? run
                      : concat("[", part.begin, ":", part.end, " in dim ", part.dim, "]", run);
}

PartRuns::PartRuns(const TensorPart& part, const Shape& shape) : part_(part), next_(part.first) {
  if (part.first == part.last) return;  // no dimension is empty from here on
  width_ = period_ = product(shape, 0, shape.size());
  if (!is_cut_slab(part, shape)) return;
  const auto dim = static_cast<size_t>(part.dim);
  const int64_t inner = product(shape, dim + 1, shape.size());
  width_ = (part.end - part.begin) * inner;
  period_ = shape[dim] * inner;
  begin_ = part.begin * inner;
}

PartRun PartRuns::run() const {
  const int64_t in_run = next_ % width_;
  return {next_ / width_ * period_ + begin_ + in_run, next_ - part_.first,
          std::min(width_ - in_run, part_.last - next_)};
}

void PartRuns::skip_to(int64_t in_whole) {
  const int64_t number = in_whole / period_;
  const int64_t in_run = std::clamp(in_whole % period_ - begin_, int64_t{0}, width_);
  next_ = std::max(next_, number * width_ + in_run);
}

void for_overlaps(const TensorPart& a, const TensorPart& b, const Shape& shape,
                  const std::function<void(int64_t, int64_t, int64_t)>& common) {
  PartRuns of_a(a, shape);
  PartRuns of_b(b, shape);
  while (!of_a.is_done() && !of_b.is_done()) {
    const PartRun in_a = of_a.run();
    const PartRun in_b = of_b.run();
    const int64_t begin = std::max(in_a.in_whole, in_b.in_whole);
    const int64_t end = std::min(in_a.in_whole + in_a.count, in_b.in_whole + in_b.count);
    if (begin < end) {
      common(in_a.in_part + begin - in_a.in_whole, in_b.in_part + begin - in_b.in_whole,
             end - begin);
    }
    // Where they have nothing in common, the one that lies behind begins at `begin`.
    of_a.skip_to(std::max(begin, end));
    of_b.skip_to(std::max(begin, end));
  }
}

std::string fault_of_cover(const std::vector<TensorPart>& parts, const Shape& shape) {
  std::vector<std::pair<int64_t, int64_t>> runs;
  for (const TensorPart& part : parts) {
    for (PartRuns of(part, shape); !of.is_done();) {
      const PartRun run = of.run();
      runs.emplace_back(run.in_whole, run.in_whole + run.count);
      of.skip_to(run.in_whole + run.count);
    }
  }
  std::sort(runs.begin(), runs.end());
  int64_t next = 0;
  for (const auto& [begin, end] : runs) {
    if (begin < next) return concat("element ", begin, " is in two pieces");
    if (begin > next) break;
    next = end;
  }
  return next == product(shape, 0, shape.size()) ? "" : concat("element ", next, " is in no piece");
}

}  // namespace epl

// TensorPart: which elements of a tensor somebody has, or wants.
//
//   whole(shape)                 all
//   rows(shape, 4, 8)            rows 4 to 7
//   slab(shape, 1, 0, 3)         the first three columns
//   elements(shape, 10, 20)      elements 10 to 19 in the order of memory
//
// In general: a run of the elements of a slab. That is what workers have of a tensor: a piece
// along a dimension where it is split, and of that a run where owners share it (zero.level). A
// part lies in memory and in files in the tensor's order, without gaps.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace epl {

struct TensorPart {
  int64_t dim = -1;  // -1: the slab is the tensor
  int64_t begin = 0, end = 0;
  int64_t first = 0, last = 0;  // of the elements of the slab

  int64_t count() const { return last - first; }
  bool operator==(const TensorPart& other) const {
    return dim == other.dim && begin == other.begin && end == other.end && first == other.first &&
           last == other.last;
  }
};

using Shape = std::vector<int64_t>;

TensorPart whole(const Shape& shape);
TensorPart rows(const Shape& shape, int64_t begin, int64_t end);
TensorPart slab(const Shape& shape, int64_t dim, int64_t begin, int64_t end);
TensorPart elements(const Shape& shape, int64_t first, int64_t last);

// Whether there is such a part of a tensor of this shape, which element_count() knows.
bool is_part_of(const TensorPart& part, const Shape& shape);
std::string print_part(const TensorPart& part);  // "[4:8 in dim 1][0:12]"

// Elements of a part that lie side by side in the whole tensor.
struct PartRun {
  int64_t in_whole = 0;
  int64_t in_part = 0;
  int64_t count = 0;
};

// The runs of a part, in order; made as they are asked for, since a column has as many as rows.
class PartRuns {
 public:
  PartRuns(const TensorPart& part, const Shape& shape);
  bool is_done() const { return next_ >= part_.last; }
  PartRun run() const;
  // On to the elements that do not lie before this one of the whole tensor.
  void skip_to(int64_t in_whole);

 private:
  const TensorPart part_;
  int64_t width_ = 1;   // elements of a run of the slab
  int64_t period_ = 1;  // from one to the next, in the whole tensor
  int64_t begin_ = 0;   // of the first, in the whole tensor
  int64_t next_ = 0;    // of the slab's elements
};

// Calls `common(in a, in b, count)` for all that two parts of a tensor have in common, in order.
void for_overlaps(const TensorPart& a, const TensorPart& b, const Shape& shape,
                  const std::function<void(int64_t, int64_t, int64_t)>& common);

// What is wrong with parts that should have each element of a tensor once; empty: nothing.
std::string fault_of_cover(const std::vector<TensorPart>& parts, const Shape& shape);

}  // namespace epl

// Several tensors as one strip of bytes, as if they lay end to end.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace epl::comm {

struct ByteRange {
  int64_t begin, end;
  int64_t bytes() const { return end - begin; }
};

// What is to be copied may be nothing, and may be there already.
inline void copy_bytes(char* to, const char* from, int64_t bytes) {
  if (bytes != 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

class ByteStrip {
 public:
  ByteStrip() = default;
  explicit ByteStrip(const std::vector<at::Tensor>& tensors) {
    pieces_.reserve(tensors.size());
    for (const at::Tensor& tensor : tensors) add(tensor);
  }
  explicit ByteStrip(const at::Tensor& tensor) { add(tensor); }

  int64_t bytes() const { return pieces_.empty() ? 0 : pieces_.back().end; }

  // The memory at a place of the strip, and how many bytes lie there without a gap.
  struct Run {
    char* data;
    int64_t bytes;
  };
  Run at(int64_t place) const {
    const auto piece =
        std::upper_bound(pieces_.begin(), pieces_.end(), place,
                         [](int64_t wanted, const Piece& other) { return wanted < other.end; });
    return {piece->data + (place - piece->begin), piece->end - place};
  }

  // Calls f(data, bytes, offset from `begin`) for the memory of [begin, end), in order.
  template <typename F>
  void each(int64_t begin, int64_t end, const F& f) const {
    for (int64_t place = begin; place < end;) {
      const Run run = at(place);
      const int64_t bytes = std::min(run.bytes, end - place);
      f(run.data, bytes, place - begin);
      place += bytes;
    }
  }

  // Between the strip and memory that lies together.
  void copy_out(const ByteRange& range, char* to) const {
    each(range.begin, range.end, [&](const char* data, int64_t bytes, int64_t offset) {
      copy_bytes(to + offset, data, bytes);
    });
  }
  void copy_in(const ByteRange& range, const char* from) const {
    each(range.begin, range.end, [&](char* data, int64_t bytes, int64_t offset) {
      copy_bytes(data, from + offset, bytes);
    });
  }

 private:
  struct Piece {
    char* data;
    int64_t begin, end;  // never empty
  };
  void add(const at::Tensor& tensor) {
    const int64_t size = static_cast<int64_t>(tensor.nbytes());
    if (size != 0)
      pieces_.push_back({static_cast<char*>(tensor.data_ptr()), bytes(), bytes() + size});
  }

  std::vector<Piece> pieces_;
};

// `bytes` in pieces of `piece_bytes`, the last of which may be shorter: how many there are, at
// least one, and where piece `index` lies.
inline int64_t count_pieces(int64_t bytes, int64_t piece_bytes) {
  return std::max<int64_t>(1, (bytes + piece_bytes - 1) / piece_bytes);
}
inline ByteRange piece_of(int64_t bytes, int64_t index, int64_t piece_bytes) {
  const int64_t begin = std::min(bytes, index * piece_bytes);
  return {begin, std::min(bytes, begin + piece_bytes)};
}

// Where the rows of each member lie in what has those of all, in the order of ranks.
class Borders {
 public:
  Borders(const std::vector<int64_t>& rows, int64_t row_bytes) : begins_{0} {
    begins_.reserve(rows.size() + 1);
    for (const int64_t count : rows) begins_.push_back(begins_.back() + count * row_bytes);
  }

  int64_t begin(int member) const { return begins_[static_cast<size_t>(member)]; }
  int64_t bytes(int member) const { return begin(member + 1) - begin(member); }
  ByteRange range(int member) const { return {begin(member), begin(member + 1)}; }
  // Of what the member has, in the place where it lies in the whole.
  ByteRange piece(int member, int64_t index, int64_t piece_bytes) const {
    const ByteRange within = piece_of(bytes(member), index, piece_bytes);
    return {begin(member) + within.begin, begin(member) + within.end};
  }
  int64_t largest() const {
    int64_t most = 0;
    for (size_t i = 1; i < begins_.size(); ++i) most = std::max(most, begins_[i] - begins_[i - 1]);
    return most;
  }

 private:
  std::vector<int64_t> begins_;  // one more than members
};

// Borders of a tensor that has the rows of all.
class Parts : public Borders {
 public:
  Parts(const at::Tensor& whole, const std::vector<int64_t>& rows, int64_t row_bytes)
      : Borders(rows, row_bytes), data_(static_cast<char*>(whole.data_ptr())) {}

  char* data(int member) const { return data_ + begin(member); }

 private:
  char* data_;
};

// The share of member `rank` in `bytes`, cut evenly at cache lines.
inline ByteRange share_of(int64_t bytes, int rank, int size) {
  constexpr int64_t kLine = 64;
  const int64_t lines = (bytes + kLine - 1) / kLine;
  return {std::min(bytes, lines * rank / size * kLine),
          std::min(bytes, lines * (rank + 1) / size * kLine)};
}

}  // namespace epl::comm

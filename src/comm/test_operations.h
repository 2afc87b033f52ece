// Every operation of a Communicator, called by one member, with results that it can work out alone:
// what the tests of all transports share.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/text.h"
#include "comm/communicator.h"

namespace epl::testing {

inline const std::vector<at::ScalarType>& all_types() {
  static const std::vector<at::ScalarType> types = {
      at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kByte,
      at::kChar,  at::kShort,  at::kInt,  at::kLong,     at::kBool};
  return types;
}

inline const std::vector<ReduceOp>& all_ops() {
  static const std::vector<ReduceOp> ops = {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax,
                                            ReduceOp::kMin, ReduceOp::kProd};
  return ops;
}

// Members of tests may be processes of their own, where only an exception is seen.
inline void require_equal(const at::Tensor& got, const at::Tensor& expected,
                          const std::string& what) {
  if (got.sizes() == expected.sizes() && got.dtype() == expected.dtype() && got.equal(expected)) {
    return;
  }
  std::string values;
  if (got.numel() <= 32) values = concat(": ", got, " instead of ", expected);
  throw std::runtime_error(concat(what, " is wrong", values));
}

// The numbers of a member: 1 to 3, so that sums of 8 members fit into every type.
inline at::Tensor numbers(int member, int64_t count, at::ScalarType type) {
  const at::Tensor integers = (at::arange(count, at::kLong) * 7 + member * 5) % 3;
  return type == at::kBool ? integers.to(type) : (integers + 1).to(type);
}

// What a reduction of these numbers gives, worked out in wide types.
inline at::Tensor reduced(int members, int64_t count, at::ScalarType type, ReduceOp op) {
  const bool is_float = at::isFloatingType(type);
  const auto wide = is_float ? at::kDouble : at::kLong;
  at::Tensor result = numbers(0, count, type).to(wide);
  for (int member = 1; member < members; ++member) {
    const at::Tensor other = numbers(member, count, type).to(wide);
    if (op == ReduceOp::kMax) result = at::maximum(result, other);
    if (op == ReduceOp::kMin) result = at::minimum(result, other);
    if (op == ReduceOp::kProd) result = result * other;
    if (op == ReduceOp::kSum || op == ReduceOp::kMean) result = result + other;
  }
  if (op == ReduceOp::kMean) result = result / members;
  return result.to(type);  // integers wrap, bools are true where they are not zero
}

inline std::vector<int64_t> uneven_rows(int members) {
  std::vector<int64_t> rows;
  for (int member = 0; member < members; ++member) rows.push_back((member * 2 + 3) % 4);
  return rows;  // 3 1 3 1 ...; with zeros below
}

inline std::vector<int64_t> rows_with_zeros(int members) {
  std::vector<int64_t> rows(static_cast<size_t>(members), 0);
  for (int member = 1; member < members; member += 2) rows[static_cast<size_t>(member)] = 2;
  return rows;
}

inline at::Tensor part_of(const at::Tensor& whole, const std::vector<int64_t>& rows, int member) {
  const int64_t begin = std::accumulate(rows.begin(), rows.begin() + member, int64_t{0});
  return whole.narrow(0, begin, rows[static_cast<size_t>(member)]);
}

inline int64_t sum_of(const std::vector<int64_t>& rows) {
  return std::accumulate(rows.begin(), rows.end(), int64_t{0});
}

inline void check_reductions(Communicator& communicator, int64_t count, at::ScalarType type) {
  const int members = communicator.size(), rank = communicator.rank();
  for (const ReduceOp op : all_ops()) {
    if (op == ReduceOp::kMean && !at::isFloatingType(type)) continue;
    const std::string what = concat(count, " ", type, " elements, operation ", static_cast<int>(op),
                                    ", member ", rank, " of ", members);
    const at::Tensor expected = reduced(members, count, type, op);

    at::Tensor tensor = numbers(rank, count, type);
    communicator.all_reduce({tensor}, op);
    require_equal(tensor, expected, "all_reduce of " + what);

    const int root = static_cast<int>(op) % members;
    tensor = numbers(rank, count, type);
    communicator.reduce({tensor}, op, root);
    require_equal(tensor, rank == root ? expected : numbers(rank, count, type),
                  "reduce of " + what);
  }
}

inline void check_rows(Communicator& communicator, const std::vector<int64_t>& rows,
                       int64_t columns, at::ScalarType type) {
  const int members = communicator.size(), rank = communicator.rank();
  const int64_t count = sum_of(rows);
  const int64_t mine = rows[static_cast<size_t>(rank)];
  const std::string what =
      concat("rows [", join(rows, ", "), "] of ", columns, " ", type, ", member ", rank);

  const at::Tensor whole = numbers(rank, count * columns, type).view({count, columns});
  at::Tensor part = at::zeros({mine, columns}, type);
  communicator.reduce_scatter(whole, part, rows, ReduceOp::kSum);
  const at::Tensor sum =
      reduced(members, count * columns, type, ReduceOp::kSum).view({count, columns});
  require_equal(part, part_of(sum, rows, rank), "reduce_scatter of " + what);

  at::Tensor gathered = at::zeros({count, columns}, type);
  communicator.all_gather(part, gathered, rows);
  require_equal(gathered, sum, "all_gather of " + what);

  // In place: the part lies in the whole already.
  gathered.zero_();
  part_of(gathered, rows, rank).copy_(part);
  communicator.all_gather(part_of(gathered, rows, rank), gathered, rows);
  require_equal(gathered, sum, "all_gather in place of " + what);
}

// Member i sends (i + j) % 3 * scale rows to member j.
inline void check_all_to_all(Communicator& communicator, int64_t scale, at::ScalarType type) {
  const int members = communicator.size(), rank = communicator.rank();
  const auto rows_between = [&](int from, int to) { return (from + to) % 3 * scale; };
  const auto sent = [&](int from, int to) {
    return numbers(from * members + to, rows_between(from, to) * 2, type).view({-1, 2});
  };
  std::vector<int64_t> to, from;
  std::vector<at::Tensor> input, expected;
  for (int other = 0; other < members; ++other) {
    to.push_back(rows_between(rank, other));
    from.push_back(rows_between(other, rank));
    input.push_back(sent(rank, other));
    expected.push_back(sent(other, rank));
  }
  at::Tensor output = at::zeros({sum_of(from), 2}, type);
  communicator.all_to_all(at::cat(input), output, to, from);
  require_equal(output, at::cat(expected), concat("all_to_all of ", type, ", member ", rank));
}

inline void check_broadcast(Communicator& communicator, int64_t count) {
  const int rank = communicator.rank();
  for (int root = 0; root < communicator.size(); ++root) {
    at::Tensor floats = numbers(rank, count, at::kFloat), bools = numbers(rank, 3, at::kBool);
    communicator.broadcast({floats, bools}, root);
    require_equal(floats, numbers(root, count, at::kFloat), "broadcast of floats");
    require_equal(bools, numbers(root, 3, at::kBool), "broadcast of bools");
  }
}

// Round and round: each member sends to the next and receives from the one before it; then the same
// with tags in another order, which only works where messages can be put aside.
inline void check_messages(Communicator& communicator, int64_t count) {
  const int members = communicator.size(), rank = communicator.rank();
  if (members == 1) return;
  const int next = (rank + 1) % members, previous = (rank + members - 1) % members;
  at::Tensor tensor = at::zeros({count}, at::kHalf);
  if (rank % 2 == 0) communicator.send(numbers(rank, count, at::kHalf), next, 5);
  communicator.receive(tensor, previous, 5);
  require_equal(tensor, numbers(previous, count, at::kHalf), "a message");
  if (rank % 2 == 1) communicator.send(numbers(rank, count, at::kHalf), next, 5);
  communicator.barrier();

  for (int tag = 0; tag < 3; ++tag) communicator.send(numbers(tag, count, at::kInt), next, tag);
  for (int tag = 2; tag >= 0; --tag) {
    at::Tensor got = at::zeros({count}, at::kInt);
    communicator.receive(got, previous, tag);
    require_equal(got, numbers(tag, count, at::kInt), concat("the message with tag ", tag));
  }
}

inline void check_groups(Communicator& communicator) {
  std::vector<int> even, all;
  for (int member = 0; member < communicator.size(); ++member) {
    if (member % 2 == 0) even.insert(even.begin(), member);
    all.push_back(member);
  }
  const auto group = communicator.group(even);
  if ((group != nullptr) != (communicator.rank() % 2 == 0)) throw std::runtime_error("wrong group");
  if (group) {
    // Ranked as listed: the last even member comes first.
    if (even[static_cast<size_t>(group->rank())] != communicator.rank()) {
      throw std::runtime_error("wrong rank in a group");
    }
    at::Tensor tensor = at::full({3}, communicator.rank(), at::kLong);
    group->broadcast({tensor}, 0);
    require_equal(tensor, at::full({3}, even[0], at::kLong), "broadcast in a group");
    check_reductions(*group, 100, at::kFloat);
    check_messages(*group, 10);
  }
  communicator.group(all)->barrier();
}

// Sums are made in the order of ranks: to the bit what a loop over the members gives.
inline void check_order_of_sums(Communicator& communicator, int64_t count) {
  const auto values = [&](int member) {
    return at::sin(at::arange(count, at::kFloat) * (member + 1) + member) * 1e3f;
  };
  at::Tensor expected = values(0);
  for (int member = 1; member < communicator.size(); ++member) expected = expected + values(member);
  // Cut in three, in another way by each member.
  at::Tensor tensor = values(communicator.rank());
  const int64_t cut = count * (communicator.rank() + 1) / (communicator.size() + 2);
  communicator.all_reduce(
      {tensor.narrow(0, 0, cut), tensor.narrow(0, cut, 0), tensor.narrow(0, cut, count - cut)},
      ReduceOp::kSum);
  require_equal(tensor, expected, "a sum in the order of ranks");
}

// --- in place -----------------------------------------------------------------------------------

inline void require_same_bits(const at::Tensor& got, const at::Tensor& expected,
                              const std::string& what) {
  const at::Tensor a = got.contiguous(), b = expected.contiguous();
  if (a.sizes() == b.sizes() && a.dtype() == b.dtype() &&
      (a.nbytes() == 0 || std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0)) {
    return;
  }
  throw std::runtime_error(what + " has other bits");
}

// Where the type rounds, a reduction of them depends on the order.
inline at::Tensor rounding_numbers(int member, int64_t count, at::ScalarType type) {
  const at::Tensor waves = at::sin(at::arange(count, at::kDouble) * (member + 1.7) + member + 1);
  if (type == at::kBool) return waves > 0;
  return at::isFloatingType(type) ? (waves * 30).to(type) : (waves.abs() * 100).to(type);
}

// `total` in `pieces`, many of which are empty.
inline std::vector<int64_t> random_cut(std::mt19937& random, int64_t total, int pieces) {
  std::vector<int64_t> borders = {0, total};
  for (int i = 1; i < pieces; ++i) {
    const auto number = static_cast<int64_t>(random());
    borders.push_back(number % 3 == 0 ? borders.back() : number % (total + 1));
  }
  std::sort(borders.begin(), borders.end());
  std::vector<int64_t> sizes;
  for (size_t i = 1; i < borders.size(); ++i) sizes.push_back(borders[i] - borders[i - 1]);
  return sizes;
}

// Tensors that have these values, one after the other, with an element between them that nobody may
// write.
class FencedTensors {
 public:
  FencedTensors(const at::Tensor& values, const std::vector<int64_t>& sizes)
      : memory_(
            at::ones({values.numel() + static_cast<int64_t>(sizes.size()) + 1}, values.options())) {
    int64_t place = 1, taken = 0;
    for (const int64_t size : sizes) {
      tensors.push_back(memory_.narrow(0, place, size));
      tensors.back().copy_(values.narrow(0, taken, size));
      fences_.push_back(place - 1);
      place += size + 1;
      taken += size;
    }
    fences_.push_back(place - 1);
  }

  at::Tensor values() const { return at::cat(tensors); }
  void require_fences(const std::string& what) const {
    for (const int64_t place : fences_) {
      require_equal(memory_[place], at::ones({}, memory_.options()), "what lies beside " + what);
    }
  }

  std::vector<at::Tensor> tensors;

 private:
  at::Tensor memory_;
  std::vector<int64_t> fences_;
};

// Each member cuts the elements into tensors in another way.
inline void check_in_place(Communicator& communicator, const std::vector<int64_t>& counts,
                           at::ScalarType type, ReduceOp op) {
  const int rank = communicator.rank();
  const int64_t total = sum_of(counts);
  const at::Tensor mine = rounding_numbers(rank, total, type);
  std::mt19937 random(static_cast<unsigned>(total * 8 + rank));
  const FencedTensors fenced(mine, random_cut(random, total, 1 + static_cast<int>(random() % 6)));
  const std::string what = concat("[", join(counts, ", "), "] ", type, " elements, operation ",
                                  static_cast<int>(op), ", member ", rank);

  const at::Tensor expected = mine.clone();
  communicator.all_reduce({expected}, op);
  communicator.reduce_scatter_in_place(fenced.tensors, counts, op);
  require_same_bits(part_of(fenced.values(), counts, rank), part_of(expected, counts, rank),
                    "reduce_scatter_in_place of " + what);
  fenced.require_fences("reduce_scatter_in_place of " + what);

  communicator.all_gather_in_place(fenced.tensors, counts);
  require_same_bits(fenced.values(), expected, "all_gather_in_place of " + what);
  fenced.require_fences("all_gather_in_place of " + what);
}

inline void check_in_place_operations(Communicator& communicator) {
  std::mt19937 random(1);  // the same for all members
  for (const at::ScalarType type : all_types()) {
    for (const ReduceOp op : all_ops()) {
      if (op == ReduceOp::kMean && !at::isFloatingType(type)) continue;
      for (const int64_t total : {0, 1, 7, 65, 3001}) {
        check_in_place(communicator, random_cut(random, total, communicator.size()), type, op);
      }
    }
  }
  const std::vector<int64_t> nothing(static_cast<size_t>(communicator.size()), 0);
  communicator.reduce_scatter_in_place({}, nothing, ReduceOp::kSum);
  communicator.all_gather_in_place({}, nothing);
}

// More than goes into one round, or one phase, of any transport.
inline void check_large_in_place(Communicator& communicator) {
  constexpr int64_t kCount = 2'500'003;
  std::vector<int64_t> first(static_cast<size_t>(communicator.size()), 0), last = first;
  std::vector<int64_t> even(first.size(), kCount / communicator.size());
  even[0] += kCount - sum_of(even);
  first.front() = last.back() = kCount;
  check_in_place(communicator, even, at::kFloat, ReduceOp::kSum);
  check_in_place(communicator, even, at::kHalf, ReduceOp::kMean);
  check_in_place(communicator, first, at::kBFloat16, ReduceOp::kSum);
  check_in_place(communicator, last, at::kChar, ReduceOp::kMax);
}

inline void check_every_operation(Communicator& communicator) {
  for (const at::ScalarType type : all_types()) {
    for (const int64_t count : {0, 1, 3, 65, 1000}) check_reductions(communicator, count, type);
    check_rows(communicator, uneven_rows(communicator.size()), 5, type);
    check_all_to_all(communicator, 1, type);
  }
  const auto members = static_cast<size_t>(communicator.size());
  check_rows(communicator, rows_with_zeros(communicator.size()), 3, at::kFloat);
  check_rows(communicator, std::vector<int64_t>(members, 0), 3, at::kFloat);
  check_rows(communicator, std::vector<int64_t>(members, 2), 0, at::kFloat);
  for (const int64_t count : {0, 1, 1000}) {
    check_broadcast(communicator, count);
    check_messages(communicator, count);
  }
  check_order_of_sums(communicator, 10'000);
  communicator.all_reduce({}, ReduceOp::kSum);
  check_in_place_operations(communicator);
  check_groups(communicator);
  communicator.barrier();
}

// Large enough for many rounds of a transport that works through tensors piece by piece.
inline void check_large_tensors(Communicator& communicator) {
  constexpr int64_t kCount = 300'003;
  check_reductions(communicator, kCount, at::kByte);
  check_order_of_sums(communicator, kCount);
  check_broadcast(communicator, kCount);
  check_rows(communicator, uneven_rows(communicator.size()), 40'001, at::kFloat);
  check_rows(communicator, rows_with_zeros(communicator.size()), 40'001, at::kShort);
  check_large_in_place(communicator);
  check_all_to_all(communicator, 10'000, at::kDouble);
  check_messages(communicator, kCount);
}

}  // namespace epl::testing

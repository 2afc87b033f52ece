#include "comm/dim_collectives.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "comm/test_operations.h"
#include "comm/test_tcp.h"
#include "comm/test_threads.h"

namespace epl::comm {
namespace {

using namespace testing;  // NOLINT: the helpers of this folder

// The same elements in memory of another order, as transposed values have it.
at::Tensor strided(const at::Tensor& tensor) {
  if (tensor.dim() < 2) return tensor;
  return tensor.transpose(0, 1).contiguous().transpose(0, 1);
}

std::vector<int64_t> with_size(at::IntArrayRef sizes, int64_t dim, int64_t length) {
  std::vector<int64_t> changed = sizes.vec();
  changed[static_cast<size_t>(dim)] = length;
  return changed;
}

at::Tensor piece_of(const at::Tensor& whole, int64_t dim, const std::vector<int64_t>& pieces,
                    int member) {
  return part_of(whole.transpose(0, dim), pieces, member).transpose(0, dim);
}

// Where a result belongs: memory that holds something else before.
at::Tensor place_for(at::IntArrayRef sizes, at::ScalarType type, bool in_strides) {
  const at::Tensor place = at::ones(sizes, type);
  return in_strides ? strided(place) : place;
}

struct Case {
  std::vector<int64_t> sizes;  // the dimension that is cut is replaced
  int64_t dim;
  std::vector<int64_t> pieces;
  at::ScalarType type;
  bool in_strides;
};

void check_cut(Communicator& group, const Case& test) {
  const int rank = group.rank(), members = group.size();
  const std::vector<int64_t> sizes = with_size(test.sizes, test.dim, sum_of(test.pieces));
  const int64_t count = at::empty(sizes).numel();
  const auto lay = [&](const at::Tensor& tensor) {
    return test.in_strides ? strided(tensor) : tensor.contiguous();
  };
  const std::string what =
      concat(" of ", test.type, " [", join(sizes, ", "), "] cut at ", test.dim, " into [",
             join(test.pieces, ", "), "], strides ", test.in_strides, ", member ", rank);

  const at::Tensor gathered = numbers(0, count, test.type).view(sizes);
  const at::Tensor mine = lay(piece_of(gathered, test.dim, test.pieces, rank));
  const at::Tensor whole = place_for(sizes, test.type, test.in_strides);
  all_gather_along(group, mine, whole, test.dim, test.pieces);
  require_equal(whole, gathered, "all_gather" + what);

  const at::Tensor addend = lay(numbers(rank, count, test.type).view(sizes));
  const at::Tensor sum = reduced(members, count, test.type, ReduceOp::kSum).view(sizes);
  const at::Tensor place = place_for(mine.sizes(), test.type, test.in_strides);
  reduce_scatter_along(group, addend, place, test.dim, test.pieces, ReduceOp::kSum);
  require_equal(place, piece_of(sum, test.dim, test.pieces, rank), "reduce_scatter" + what);
}

void check_moved_cut(Communicator& group, const Case& test, int64_t to,
                     const std::vector<int64_t>& to_pieces) {
  std::vector<int64_t> sizes = with_size(test.sizes, test.dim, sum_of(test.pieces));
  sizes = with_size(sizes, to, sum_of(to_pieces));
  const at::Tensor whole = numbers(0, at::empty(sizes).numel(), test.type).view(sizes);
  const at::Tensor before = piece_of(whole, test.dim, test.pieces, group.rank());
  const at::Tensor after = piece_of(whole, to, to_pieces, group.rank());
  const at::Tensor result = place_for(after.sizes(), test.type, test.in_strides);
  all_to_all_along(group, test.in_strides ? strided(before) : before.contiguous(), result, test.dim,
                   to, test.pieces, to_pieces);
  require_equal(result, after,
                concat("all_to_all of [", join(sizes, ", "), "] from ", test.dim, " to ", to,
                       ", strides ", test.in_strides, ", member ", group.rank()));
}

void check_all_dimensions(Communicator& group, at::ScalarType type) {
  const std::vector<std::vector<int64_t>> lists = {uneven_rows(group.size()),
                                                   rows_with_zeros(group.size())};
  for (const bool in_strides : {false, true}) {
    for (const auto& pieces : lists) {
      for (int64_t dim = 0; dim < 3; ++dim) {
        check_cut(group, {{4, 3, 5}, dim, pieces, type, in_strides});
        check_cut(group, {{1, 1, 70}, dim, pieces, type, in_strides});
        check_cut(group, {{2, 0, 5}, dim, pieces, type, in_strides});
        for (int64_t to = 0; to < 3; ++to) {
          if (to == dim) continue;
          check_moved_cut(group, {{4, 3, 5}, dim, pieces, type, in_strides}, to,
                          uneven_rows(group.size()));
          check_moved_cut(group, {{1, 2, 1}, dim, pieces, type, in_strides}, to,
                          rows_with_zeros(group.size()));
        }
      }
    }
  }
}

void check_into(Communicator& group, int64_t count, at::ScalarType type) {
  const int rank = group.rank(), members = group.size();
  for (const bool in_strides : {false, true}) {
    const std::vector<int64_t> sizes = {count, 3};
    const auto lay = [&](const at::Tensor& tensor) {
      return in_strides ? strided(tensor) : tensor;
    };
    const at::Tensor mine = lay(numbers(rank, count * 3, type).view(sizes));
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
      const at::Tensor expected = reduced(members, count * 3, type, op).view(sizes);
      const at::Tensor result = place_for(sizes, type, in_strides);
      all_reduce_into(group, mine, result, op);
      require_equal(result, expected, concat("all_reduce_into of ", count, " ", type));
      require_equal(mine, numbers(rank, count * 3, type).view(sizes), "what all_reduce read");
      const at::Tensor both = mine.clone();
      all_reduce_into(group, both, both, op);
      require_equal(both, expected, concat("all_reduce in place of ", count, " ", type));
      const at::Tensor some = mine.clone();  // in place on one member only
      const at::Tensor place = rank == 0 ? some : result;
      all_reduce_into(group, some, place, op);
      require_equal(place, expected, concat("all_reduce to mixed places of ", count, " ", type));
    }
    for (int root = 0; root < members; ++root) {
      const at::Tensor result = place_for(sizes, type, in_strides);
      broadcast_into(group, mine, result, root);
      require_equal(result, numbers(root, count * 3, type).view(sizes), "broadcast_into");
    }
  }
}

// The two ways: members that read each other's memory, and those that send.
using MakeEnds = std::function<Ends(int size, Watch& watch)>;
const MakeEnds kWays[] = {
    [](int size, Watch& watch) {
      return make_local_communicators(size, watch, {"test", std::chrono::minutes(1)});
    },
    [](int size, Watch& watch) { return connect_ends(size, watch, std::chrono::minutes(1)); }};

TEST(Along, CutsAndJoinsEveryDimensionOfTensorsOfAnyStrides) {
  for (const MakeEnds& make : kWays) {
    for (const int size : {1, 2, 3, 4}) {
      Watch watch;
      expect_no_errors(run_members(
          make(size, watch), [](Communicator& group) { check_all_dimensions(group, at::kFloat); }));
    }
  }
}

TEST(Along, TakesEveryElementType) {
  for (const MakeEnds& make : kWays) {
    Watch watch;
    expect_no_errors(run_members(make(3, watch), [](Communicator& group) {
      for (const at::ScalarType type : all_types()) {
        check_cut(group, {{4, 3, 5}, 1, {2, 0, 3}, type, false});
        check_moved_cut(group, {{4, 3, 5}, 1, {2, 0, 3}, type, false}, 2, {1, 3, 2});
        for (const int64_t count : {0, 1, 40}) check_into(group, count, type);
      }
    }));
  }
}

TEST(Along, ReducesSmallAndLargeTensorsOverAnyNumberOfMembers) {
  for (const MakeEnds& make : kWays) {
    for (const int size : {1, 2, 4}) {
      Watch watch;
      expect_no_errors(run_members(make(size, watch), [](Communicator& group) {
        for (const int64_t count : {1, 1000, 50001}) check_into(group, count, at::kFloat);
      }));
    }
  }
}

TEST(Along, NamesBothCallsWhereMembersCallDifferentThings) {
  for (const MakeEnds& make : kWays) {
    Watch watch;
    const auto errors = run_members(make(2, watch), [](Communicator& group) {
      const at::Tensor tensor = at::ones({4});
      if (group.rank() == 0) {
        all_reduce_into(group, tensor, at::empty({4}), ReduceOp::kSum);
      } else {
        all_gather_along(group, tensor, at::empty({8}), 0, {4, 4});
      }
    });
    for (const std::string& error : errors) {
      EXPECT_NE(error.find("all_reduce (sum) of 4 Float"), error.npos) << error;
      EXPECT_NE(error.find("all_gather of [4, 4] rows"), error.npos) << error;
    }
  }
}

TEST(Along, TellsOneWayToCallFromTheOther) {
  Watch watch;
  const auto errors = run_members(kWays[0](2, watch), [](Communicator& group) {
    const at::Tensor tensor = at::ones({4});
    if (group.rank() == 0) return all_reduce_into(group, tensor, at::empty({4}), ReduceOp::kSum);
    group.all_reduce({tensor}, ReduceOp::kSum);
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("of 4 Float elements in each other's memory"), error.npos) << error;
  }
}

TEST(Along, RefusesASumOfElementsThatHaveNone) {
  Watch watch;
  const auto errors = run_members(kWays[0](2, watch), [](Communicator& group) {
    const at::Tensor tensor = at::ones({4}, at::kComplexFloat);
    all_reduce_into(group, tensor, at::empty_like(tensor), ReduceOp::kSum);
  });
  EXPECT_NE(errors[0].find("cannot combine elements of type ComplexFloat"), errors[0].npos);
}

}  // namespace
}  // namespace epl::comm

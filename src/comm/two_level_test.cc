#include <gmock/gmock.h>

#include "comm/communicator.h"
#include "comm/test_failures.h"
#include "comm/test_operations.h"
#include "comm/test_tcp.h"
#include "comm/test_threads.h"

namespace epl::comm {
namespace {

using testing::connect_ends;
using testing::Ends;
using testing::run_members;

using Groups = std::vector<std::vector<int>>;

// Groups of threads stand in for hosts; between them is TCP.
Ends make_ends(const Groups& groups, Watch& watch) {
  const CommunicatorOptions options{"test", std::chrono::seconds(20)};
  size_t size = 0;
  for (const std::vector<int>& members : groups) size += members.size();
  Ends outer = connect_ends(static_cast<int>(groups.size()), watch, options.deadline);
  Ends direct = connect_ends(static_cast<int>(size), watch, options.deadline);
  Ends ends(size);
  for (size_t group = 0; group < groups.size(); ++group) {
    const std::vector<int>& members = groups[group];
    Ends inner = make_local_communicators(static_cast<int>(members.size()), watch, options);
    for (size_t place = 0; place < members.size(); ++place) {
      TwoLevelParts parts;
      parts.inner = std::move(inner[place]);
      if (place == 0) parts.outer = std::move(outer[group]);
      const auto rank = static_cast<size_t>(members[place]);
      parts.direct = std::move(direct[rank]);
      ends[rank] = make_two_level_communicator(std::move(parts), groups, members[place], options);
    }
  }
  return ends;
}

void check_operations(Communicator& communicator) {
  for (const at::ScalarType type : testing::all_types()) {
    for (const int64_t count : {0, 1, 65, 5000}) {
      testing::check_reductions(communicator, count, type);
    }
    testing::check_rows(communicator, testing::uneven_rows(communicator.size()), 5, type);
    testing::check_all_to_all(communicator, 1, type);
  }
  testing::check_rows(communicator, testing::rows_with_zeros(communicator.size()), 3, at::kFloat);
  testing::check_broadcast(communicator, 1000);
  testing::check_messages(communicator, 1000);
  testing::check_in_place_operations(communicator);
  testing::check_groups(communicator);
  communicator.barrier();
}

TEST(TwoLevelCommunicator, DoesEveryOperationWhateverTheGroups) {
  const std::vector<Groups> cases = {{{0, 1}, {2}},    {{0}, {1, 2}},    {{0, 2}, {1}},
                                     {{0, 1}, {2, 3}}, {{0, 3}, {1, 2}}, {{0}, {1}}};
  for (const Groups& groups : cases) {
    Watch watch;
    const Ends ends = make_ends(groups, watch);
    testing::expect_no_errors(run_members(ends, check_operations));
  }
}

TEST(TwoLevelCommunicator, WorksOnLargeTensorsInPlace) {
  for (const Groups& groups : {Groups{{0, 1}, {2}}, Groups{{0, 3}, {1, 2}}}) {
    Watch watch;
    const Ends ends = make_ends(groups, watch);
    testing::expect_no_errors(run_members(ends, testing::check_large_in_place));
  }
}

TEST(TwoLevelCommunicator, GivesAllMembersTheSameBits) {
  Watch watch;
  const Ends ends = make_ends({{0, 3}, {1, 2}}, watch);
  std::vector<at::Tensor> results(4);
  testing::expect_no_errors(run_members(ends, [&](Communicator& end) {
    at::Tensor tensor = at::sin(at::arange(10000, at::kFloat) * (end.rank() + 1)) * 1e3;
    end.all_reduce({tensor.narrow(0, 0, 17), tensor.narrow(0, 17, 9983)}, ReduceOp::kMean);
    results[static_cast<size_t>(end.rank())] = tensor;
  }));
  for (int rank = 1; rank < 4; ++rank) {
    EXPECT_TRUE(results[0].equal(results[static_cast<size_t>(rank)])) << "member " << rank;
  }
}

// 2048 + 1 + 1 is 2048 in half precision, step by step, and 2050 rounded once.
TEST(TwoLevelCommunicator, RoundsHalvesOnce) {
  Watch watch;
  const Ends ends = make_ends({{0, 1}, {2}}, watch);
  testing::expect_no_errors(run_members(ends, [](Communicator& end) {
    const at::Tensor tensor = at::full({3}, end.rank() == 0 ? 2048 : 1, at::kHalf);
    end.all_reduce({tensor}, ReduceOp::kSum);
    testing::require_equal(tensor, at::full({3}, 2050, at::kHalf), "a sum of halves");
  }));
}

Groups groups_of(int size) { return size == 2 ? Groups{{0}, {1}} : Groups{{0, 1}, {2}}; }

TEST(TwoLevelCommunicator, NamesBothCallsInPlace) {
  Watch watch;
  testing::check_disagreements_in_place(
      [&](int size) { return make_ends(groups_of(size), watch); });
}

TEST(TwoLevelCommunicator, EndsWaitsWhenTheJobFails) {
  testing::check_failing_watch(
      [](int size, Watch& watch) { return make_ends(groups_of(size), watch); });
}

TEST(TwoLevelCommunicator, NamesCallsThatDiffer) {
  Watch watch;
  const Ends ends = make_ends({{0, 1}, {2, 3}}, watch);
  const std::vector<std::string> errors = run_members(ends, [&](Communicator& end) {
    try {
      if (end.rank() == 1) return end.barrier();
      end.all_reduce({at::ones({3})}, ReduceOp::kSum);
    } catch (const JobFailed&) {
      throw;
    } catch (const Error& error) {
      watch.fail(JobFailed(error.what()));  // as a worker's driver does
      throw;
    }
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, ::testing::HasSubstr("reduce (sum) of 3 Float elements"));
    EXPECT_THAT(error, ::testing::HasSubstr("barrier"));
  }
}

}  // namespace
}  // namespace epl::comm

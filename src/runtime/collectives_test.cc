#include "runtime/collectives.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <stdexcept>

#include "base/text.h"
#include "comm/test_threads.h"
#include "ops/facts.h"

namespace epl {
namespace {

using testing::Ends;
using testing::expect_no_errors;
using testing::run_members;

c10::OperatorHandle collective(const std::string& name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(("epl::" + name).c_str(), "");
}

// As the Executor calls operators: boxed.
at::Tensor run_collective(const std::string& name, std::vector<c10::IValue> arguments,
                          const std::string& axis = kPartAxis) {
  arguments.emplace_back(axis);
  collective(name).callBoxed(&arguments);
  return arguments.at(0).toTensor();
}

void require_close(const at::Tensor& got, const at::Tensor& expected) {
  if (got.sizes() == expected.sizes() && at::allclose(got, expected)) return;
  throw std::runtime_error(concat("got ", got, " instead of ", expected));
}

// Each member with its end as the group of its thread.
std::vector<std::string> run_in_scopes(int size, const std::function<void(Communicator&)>& body) {
  Watch watch;
  const Ends ends = make_local_communicators(size, watch, {"test", std::chrono::minutes(1)});
  return run_members(ends, [&](Communicator& end) {
    const CollectiveScope scope({{kPartAxis, &end}});
    body(end);
  });
}

const std::vector<std::string> kNames = {"all_reduce", "broadcast", "all_gather", "reduce_scatter",
                                         "all_to_all"};

TEST(Collectives, AreOperatorsThatWriteIntoTheirSlotAndNothingElse) {
  for (const std::string& name : kNames) {
    const auto out = out_variant(collective(name), c10::DispatchKey::CPU);
    ASSERT_TRUE(out) << name;
    EXPECT_EQ(c10::toString(out->operator_name()), "epl::" + name + ".out");
    const auto functional = functional_variant(*out);
    ASSERT_TRUE(functional) << name;
    EXPECT_EQ(c10::toString(functional->operator_name()), "epl::" + name);
    EXPECT_FALSE(in_place_variant(collective(name))) << name;
    EXPECT_EQ(is_pointwise(collective(name)), name == "all_reduce")
        << name;  // alone works in place
    EXPECT_FALSE(is_random(collective(name)) || overwrites(collective(name))) << name;
    EXPECT_FALSE(reads_metadata_only(collective(name)) || makes_uninitialized(collective(name)))
        << name;
  }
}

TEST(Collectives, MakeTheResultsOfTheirDefinition) {
  expect_no_errors(run_in_scopes(3, [](Communicator& end) {
    const int64_t rank = end.rank();
    const std::vector<int64_t> rows = {2, 0, 1}, columns = {1, 3, 2};
    const at::Tensor whole = at::arange(3 * 5 * 6, at::kFloat).view({5, 3, 6});
    const at::Tensor by_rows = whole.split_with_sizes(rows, 1)[static_cast<size_t>(rank)];
    const at::Tensor by_columns = whole.split_with_sizes(columns, 2)[static_cast<size_t>(rank)];

    require_close(run_collective("all_reduce", {whole * (rank + 1), "sum"}), whole * 6);
    require_close(run_collective("all_reduce", {whole * (rank + 1), "max"}), whole * 3);
    require_close(run_collective("broadcast", {whole + rank, 1}), whole + 1);
    require_close(run_collective("all_gather", {by_rows, -2, rows}), whole);
    require_close(run_collective("reduce_scatter", {whole * (rank + 1), 1, rows}), by_rows * 6);
    require_close(run_collective("all_to_all", {by_rows, 1, -1, rows, columns}), by_columns);
  }));
}

TEST(Collectives, WriteIntoTheGivenTensor) {
  expect_no_errors(run_in_scopes(2, [](Communicator& end) {
    const at::Tensor x = at::full({2, 3}, end.rank() + 1.0, at::kFloat);
    const at::Tensor out = at::zeros({2, 6});
    std::vector<c10::IValue> stack = {x, 1, std::vector<int64_t>{3, 3}, kPartAxis, out};
    out_variant(collective("all_gather"), c10::DispatchKey::CPU)->callBoxed(&stack);
    if (!stack.at(0).toTensor().is_same(out)) throw std::runtime_error("another tensor");
    require_close(out, at::cat({at::full({2, 3}, 1.0), at::full({2, 3}, 2.0)}, 1).to(at::kFloat));
  }));
}

TEST(Collectives, AreCopiesInAGroupOfOne) {
  expect_no_errors(run_in_scopes(1, [](Communicator&) {
    const at::Tensor x = at::rand({4, 3});
    const std::vector<int64_t> four = {4}, three = {3};
    for (const at::Tensor& result :
         {run_collective("all_reduce", {x, "sum"}), run_collective("broadcast", {x, 0}),
          run_collective("all_gather", {x, 0, four}),
          run_collective("reduce_scatter", {x, 1, three}),
          run_collective("all_to_all", {x, 0, 1, four, three})}) {
      require_close(result, x);
      if (result.is_alias_of(x)) throw std::runtime_error("a view of its argument");
    }
  }));
}

TEST(Collectives, CountWhatAMemberSends) {
  Watch watch;
  const Ends ends = make_local_communicators(4, watch, {"test", std::chrono::minutes(1)});
  std::vector<CollectiveMeter> meters(4);
  expect_no_errors(run_members(ends, [&](Communicator& end) {
    const auto rank = static_cast<size_t>(end.rank());
    const CollectiveScope scope({{kPartAxis, &end}}, &meters[rank]);
    const std::vector<int64_t> rows = {1, 2, 3, 4}, columns = {2, 2, 2, 2};
    run_collective("all_reduce", {at::ones({10, 8}), "sum"});
    run_collective("all_gather", {at::ones({rows[rank], 8}), 0, rows});
    run_collective("reduce_scatter", {at::ones({10, 8}), 0, rows});
    run_collective("all_to_all", {at::ones({rows[rank], 8}), 0, 1, rows, columns});
    run_collective("broadcast", {at::ones({8}), 2});
  }));
  for (size_t rank = 0; rank < 4; ++rank) {
    const int64_t rows = static_cast<int64_t>(rank) + 1;
    const CollectiveMeter& meter = meters[rank];
    std::vector<int64_t> bytes;
    for (const auto& span : meter.spans) bytes.push_back(span.bytes);
    EXPECT_THAT(bytes, ::testing::ElementsAre(480, 3 * rows * 32, (10 - rows) * 32, rows * 24,
                                              rank == 2 ? 96 : 0));
    EXPECT_EQ(meter.calls, 5);
    EXPECT_EQ(meter.bytes, std::accumulate(bytes.begin(), bytes.end(), int64_t{0}));
    EXPECT_GT(meter.seconds, 0);
    EXPECT_STREQ(meter.spans[1].name, "all_gather");
    EXPECT_LE(meter.spans[1].end, meter.spans[2].begin);
  }
}

TEST(Collectives, RunOnlyInsideOfAScope) {
  for (const auto& run : std::vector<std::function<void()>>{
           [] {
             run_collective("all_reduce", {at::ones({2}), "sum"});
           },
           [] {
             run_collective("reduce_scatter", {at::ones({2}), 0, std::vector<int64_t>{2}});
           }}) {
    try {
      run();
      FAIL() << "no group was set";
    } catch (const std::exception& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("CollectiveScope"));
    }
  }
}

TEST(Collectives, UseTheInnermostScope) {
  Watch watch;
  const auto alone = make_local_communicators(1, watch, {"alone", std::chrono::minutes(1)});
  const auto other = make_local_communicators(1, watch, {"other", std::chrono::minutes(1)});
  CollectiveMeter outside, inside;
  const CollectiveScope outer({{kPartAxis, alone[0].get()}}, &outside);
  {
    const CollectiveScope inner({{kPartAxis, other[0].get()}}, &inside);
    run_collective("all_reduce", {at::ones({2}), "sum"});
  }
  run_collective("all_reduce", {at::ones({2}), "sum"});
  run_collective("all_reduce", {at::ones({2}), "sum"});
  EXPECT_EQ(inside.calls, 1);
  EXPECT_EQ(outside.calls, 2);
}

TEST(Collectives, TalkToTheGroupOfTheirAxis) {
  Watch watch;
  const Ends rows = make_local_communicators(2, watch, {"rows", std::chrono::minutes(1)});
  const auto alone = make_local_communicators(1, watch, {"alone", std::chrono::minutes(1)});
  expect_no_errors(run_members(rows, [&](Communicator& end) {
    const at::Tensor x = at::ones({2});
    if (end.rank() == 0) {
      const CollectiveScope scope({{kPartAxis, &end}, {kReplicaAxis, alone[0].get()}});
      require_close(run_collective("all_reduce", {x, "sum"}), x * 2);
      require_close(run_collective("all_reduce", {x, "sum"}, kReplicaAxis), x);
    } else {
      const CollectiveScope scope({{kReplicaAxis, &end}});
      require_close(run_collective("all_reduce", {x, "sum"}, kReplicaAxis), x * 2);
    }
  }));
}

TEST(Collectives, NameTheAxisThatHasNoGroup) {
  const auto errors = run_in_scopes(
      1, [](Communicator&) { run_collective("own_addend", {at::ones({2})}, "column"); });
  EXPECT_THAT(errors[0], ::testing::HasSubstr("epl::own_addend runs along axis \"column\""));
}

TEST(Collectives, RefuseTensorsThatAreNotTheirPiece) {
  const auto errors = run_in_scopes(2, [](Communicator&) {
    run_collective("all_gather", {at::ones({3, 2}), 0, std::vector<int64_t>{2, 2}});
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, ::testing::HasSubstr("[3, 2], whose dimension 0 should have 2"));
  }
  const auto counts = run_in_scopes(2, [](Communicator&) {
    run_collective("all_gather", {at::ones({3, 2}), 0, std::vector<int64_t>{3}});
  });
  EXPECT_THAT(counts[0], ::testing::HasSubstr("1 pieces for a group of 2"));
}

TEST(Collectives, TellTheShapesOfTensorsWithoutContents) {
  const at::Tensor x = at::empty({2, 3}, at::TensorOptions(at::kMeta).dtype(at::kHalf));
  EXPECT_EQ(run_collective("all_reduce", {x, "sum"}).sizes(), x.sizes());
  const at::Tensor gathered = run_collective("all_gather", {x, 1, std::vector<int64_t>{3, 2}});
  EXPECT_EQ(gathered.sizes(), (std::vector<int64_t>{2, 5}));
  EXPECT_EQ(gathered.scalar_type(), at::kHalf);
  EXPECT_TRUE(gathered.is_meta());
}

}  // namespace
}  // namespace epl

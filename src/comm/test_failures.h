// How members of any transport fail: what the tests of all transports share.
#pragma once

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/test_operations.h"
#include "comm/test_threads.h"

namespace epl::testing {

using MakeEnds = std::function<Ends(int size)>;

inline std::vector<std::string> disagree(const Ends& ends, const Body& first, const Body& others) {
  return run_members(ends, [&](Communicator& end) { end.rank() == 0 ? first(end) : others(end); });
}

// All members throw, with both texts, and can go on afterwards.
inline void expect_disagreement(const MakeEnds& make, const Body& first, const Body& others,
                                const std::string& text_of_first,
                                const std::string& text_of_others) {
  for (const int size : {2, 3}) {
    const Ends ends = make(size);
    for (const std::string& error : disagree(ends, first, others)) {
      EXPECT_THAT(error, ::testing::HasSubstr("made different calls"));
      EXPECT_THAT(error, ::testing::HasSubstr(text_of_first));
      EXPECT_THAT(error, ::testing::HasSubstr(text_of_others));
    }
    expect_no_errors(
        run_members(ends, [](Communicator& end) { check_reductions(end, 10, at::kFloat); }));
  }
}

inline Body sum_of_floats(int64_t count) {
  return [count](Communicator& end) { end.all_reduce({at::ones({count})}, ReduceOp::kSum); };
}

// Of so many floats that members 0 and 1 own, in two tensors.
struct InPlace {
  int64_t own_0, own_1;
  at::ScalarType type = at::kFloat;
  ReduceOp op = ReduceOp::kSum;

  std::vector<at::Tensor> tensors() const {
    return {at::ones({3}, type), at::ones({own_0 + own_1 - 3}, type)};
  }
  std::vector<int64_t> counts(const Communicator& end) const {
    std::vector<int64_t> counts(static_cast<size_t>(end.size()), 0);
    counts.at(0) = own_0;
    counts.at(1) = own_1;
    return counts;
  }
};

inline Body scatter_in_place(const InPlace& call) {
  return [call](Communicator& end) {
    end.reduce_scatter_in_place(call.tensors(), call.counts(end), call.op);
  };
}

inline Body gather_in_place(const InPlace& call) {
  return [call](Communicator& end) { end.all_gather_in_place(call.tensors(), call.counts(end)); };
}

inline void check_disagreements_in_place(const MakeEnds& make) {
  const Body scatter = scatter_in_place({4, 6}), gather = gather_in_place({4, 6});
  const std::string scatter_text = "member 0: reduce_scatter_in_place (sum) of [4, 6";
  const std::string gather_text = "member 0: all_gather_in_place of [4, 6";
  expect_disagreement(make, scatter, scatter_in_place({5, 5}), scatter_text,
                      "member 1: reduce_scatter_in_place (sum) of [5, 5");
  expect_disagreement(make, scatter, scatter_in_place({4, 600'000}), scatter_text,
                      "member 1: reduce_scatter_in_place (sum) of [4, 600000");
  expect_disagreement(make, scatter, scatter_in_place({4, 6, at::kDouble}), scatter_text,
                      "] Double elements");
  expect_disagreement(make, scatter, scatter_in_place({4, 6, at::kFloat, ReduceOp::kMax}),
                      scatter_text, "member 1: reduce_scatter_in_place (max)");
  expect_disagreement(make, scatter, gather, scatter_text, "member 1: all_gather_in_place");
  expect_disagreement(make, gather, gather_in_place({6, 4}), gather_text,
                      "member 1: all_gather_in_place of [6, 4");
  expect_disagreement(make, gather, gather_in_place({4, 600'000}), gather_text,
                      "member 1: all_gather_in_place of [4, 600000");
}

inline void check_disagreements(const MakeEnds& make) {
  check_disagreements_in_place(make);
  const Body sum = sum_of_floats(10);
  const std::string text = "member 0: all_reduce (sum) of 10 Float elements";
  expect_disagreement(
      make, sum, [](Communicator& end) { end.barrier(); }, text, "member 1: barrier");
  expect_disagreement(make, sum, sum_of_floats(1'000'000), text,
                      "member 1: all_reduce (sum) of 1000000 Float elements");
  expect_disagreement(
      make, sum,
      [](Communicator& end) { end.all_reduce({at::ones({10}, at::kDouble)}, ReduceOp::kSum); },
      text, "of 10 Double elements");
  expect_disagreement(
      make, sum, [](Communicator& end) { end.all_reduce({at::ones({10})}, ReduceOp::kMax); }, text,
      "all_reduce (max)");
  const auto broadcast = [](int root) {
    return [root](Communicator& end) { end.broadcast({at::ones({10})}, root); };
  };
  expect_disagreement(make, broadcast(0), broadcast(1), "with root 0", "with root 1");
  // Each member's own view is sound, but not all of them together.
  expect_disagreement(
      make,
      [](Communicator& end) {
        std::vector<int64_t> rows(static_cast<size_t>(end.size()), 1);
        end.all_gather(at::ones({1, 2}), at::ones({end.size(), 2}), rows);
      },
      [](Communicator& end) {
        std::vector<int64_t> rows(static_cast<size_t>(end.size()), 1);
        rows[0] = 2;
        end.all_gather(at::ones({1, 2}), at::ones({end.size() + 1, 2}), rows);
      },
      "all_gather of [1, 1", "all_gather of [2, 1");
  expect_disagreement(
      make,
      [](Communicator& end) {
        std::vector<int64_t> rows(static_cast<size_t>(end.size()), 1);
        end.all_to_all(at::ones({end.size(), 2}), at::ones({end.size(), 2}), rows, rows);
      },
      [](Communicator& end) {
        std::vector<int64_t> to(static_cast<size_t>(end.size()), 1), from = to;
        from[0] = 2;
        end.all_to_all(at::ones({end.size(), 2}), at::ones({end.size() + 1, 2}), to, from);
      },
      "member 0: all_to_all of [1, 1", "rows to and [2, 1");
  expect_disagreement(
      make, [](Communicator& end) { end.group({0}); },
      [](Communicator& end) {
        end.group({1, 0});
      },
      "group [0]", "group [1, 0]");

  const Ends ends = make(2);
  const auto errors = disagree(
      ends, [](Communicator& end) { end.send(at::ones({3}), 1, 7); },
      [](Communicator& end) { end.receive(at::ones({2}), 0, 7); });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, ::testing::HasSubstr("member 0: send of 3 Float elements with tag 7"));
    EXPECT_THAT(error, ::testing::HasSubstr("member 1: receive of 2 Float elements with tag 7"));
  }
}

inline void expect_error(const std::function<void()>& call, const std::string& text) {
  try {
    call();
    ADD_FAILURE() << "no error: " << text;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr(text));
  }
}

// Two members, of which one calls what cannot be: the other need not know.
inline void check_bad_arguments(const Ends& ends) {
  Communicator& end = *ends[0];
  const at::Tensor ones = at::ones({4, 2});
  const auto sum = ReduceOp::kSum;
  expect_error([&] { end.all_reduce({ones.to(at::kInt)}, ReduceOp::kMean); },
               "cannot make the mean of Int elements");
  expect_error([&] { end.all_reduce({ones.to(at::kInt)}, ReduceOp::kMean); }, "try:      a sum");
  expect_error([&] { end.all_reduce({ones.to(at::kComplexFloat)}, sum); }, "ComplexFloat");
  expect_error([&] { end.all_reduce({ones, ones.to(at::kInt)}, sum); }, "types Float and Int");
  expect_error([&] { end.all_reduce({ones.t()}, sum); }, "contiguous");
  expect_error([&] { end.all_reduce({at::Tensor()}, sum); }, "undefined");
  expect_error([&] { end.broadcast({ones.to_sparse()}, 0); }, "dense");
  expect_error([&] { end.broadcast({ones}, 2); }, "names member 2; its members are 0 to 1");
  expect_error([&] { end.reduce({ones}, sum, -1); }, "names member -1");
  expect_error([&] { end.all_gather(ones, ones, {4, 1}); }, "the tensors have 4 and 4");
  expect_error([&] { end.all_gather(ones, ones, {4}); }, "each of 2 members, and got 1");
  expect_error([&] { end.all_gather(ones, ones, {5, -1}); }, "negative");
  expect_error([&] { end.all_gather(ones, at::ones({4, 3}), {4, 0}); }, "rows of different sizes");
  expect_error([&] { end.all_gather(at::ones({}), ones, {4, 0}); }, "a scalar has none");
  expect_error([&] { end.reduce_scatter(ones, ones.to(at::kInt), {4, 0}, sum); }, "types");
  expect_error([&] { end.reduce_scatter(ones, at::ones({3, 2}), {4, 0}, sum); }, "ask member 0");
  expect_error(
      [&] {
        end.reduce_scatter_in_place({ones}, {4, 5}, sum);
      },
      "members own [4, 5] elements, 9 in all; the tensors have 8");
  expect_error([&] { end.reduce_scatter_in_place({ones}, {8}, sum); },
               "needs the elements of each of 2 members, and got 1");
  expect_error([&] { end.reduce_scatter_in_place({ones}, {9, -1}, sum); }, "negative");
  expect_error(
      [&] {
        end.reduce_scatter_in_place({ones.to(at::kInt)}, {4, 4}, ReduceOp::kMean);
      },
      "cannot make the mean of Int elements");
  expect_error([&] { end.all_gather_in_place({ones, ones}, {4, 4}); }, "the tensors have 16");
  expect_error(
      [&] {
        end.all_gather_in_place({ones, ones.to(at::kInt)}, {8, 8});
      },
      "types Float and Int");
  expect_error([&] { end.all_gather_in_place({ones.t()}, {4, 4}); }, "contiguous");
  expect_error([&] { end.all_to_all(ones, ones, {2, 2}, {2, 2}); }, "share memory");
  expect_error([&] { end.all_to_all(ones, at::ones({4, 2}), {2, 1}, {2, 2}); }, "3 rows go out");
  expect_error([&] { end.send(ones, 0, 0); }, "the caller itself");
  expect_error([&] { end.receive(ones, 5, 0); }, "names member 5");
  expect_error([&] { end.group({}); }, "no members");
  expect_error([&] { end.group({1, 1}); }, "twice");
}

// The calls in which a member may wait for another one that does not come.
inline std::vector<std::pair<std::string, Body>> waits_for_member_1() {
  return {{"all_reduce", sum_of_floats(10)},
          {"all_reduce", sum_of_floats(1'000'000)},
          {"reduce_scatter_in_place", scatter_in_place({500'000, 500'000})},
          {"all_gather_in_place", gather_in_place({500'000, 500'000})},
          {"barrier", [](Communicator& end) { end.barrier(); }},
          {"send", [](Communicator& end) { end.send(at::ones({1'000'000}), 1, 3); }},
          {"receive", [](Communicator& end) { end.receive(at::ones({10}), 1, 3); }},
          {"group", [](Communicator& end) {
             end.group({1, 0});
           }}};
}

inline void check_deadlines(const MakeEnds& make) {
  for (const auto& [name, call] : waits_for_member_1()) {
    const Ends ends = make(2);
    expect_error([&, &call = call] { call(*ends[0]); }, name);
    // Nobody knows any more where the members are: the other one must not wait in vain.
    expect_error(
        [&] {
          ends[0]->barrier();
          ends[1]->barrier();
        },
        "test");
  }
}

inline void check_failing_watch(const std::function<Ends(int size, Watch& watch)>& make) {
  for (const auto& [name, call] : waits_for_member_1()) {
    Watch watch;
    const Ends ends = make(3, watch);
    const auto errors = run_members(ends, [&, &call = call](Communicator& end) {
      if (end.rank() != 1) return call(end);
      watch.fail(JobFailed("worker 1 is gone"));
    });
    EXPECT_THAT(errors[0], ::testing::HasSubstr("gone")) << name;
    EXPECT_THAT(errors[2], ::testing::HasSubstr("gone")) << name;
    expect_error([&] { ends[0]->barrier(); }, "worker 1 is gone");
  }
}

// What a device throws where another one failed.
class Interrupt : public std::exception {
 public:
  const char* what() const noexcept override { return "interrupted"; }
};

// Member 1 does not come, and once the others wait they are interrupted.
inline void check_interrupts(
    const std::function<Ends(int size, Watch& watch, std::function<void()> meanwhile)>& make) {
  for (const auto& [name, call] : waits_for_member_1()) {
    Watch watch;
    std::atomic<bool> interrupted{false};
    std::atomic<int> looks{0};
    std::atomic<int> ended{0};
    const Ends ends = make(3, watch, [&] {
      ++looks;
      if (interrupted) throw Interrupt();
    });
    looks = 0;
    const auto errors = run_members(ends, [&, &call = call](Communicator& end) {
      if (end.rank() == 1) {
        while (looks < 10) std::this_thread::yield();  // two where the others begin
        interrupted = true;
        return;
      }
      try {
        call(end);
      } catch (const Interrupt&) {
        ++ended;
        throw;
      }
    });
    EXPECT_EQ(ended, 2) << name << ": " << errors[0] << "; " << errors[2];
  }
}

inline void check_leaving(const MakeEnds& make) {
  for (const auto& [name, call] : waits_for_member_1()) {
    Ends ends = make(2);
    const auto errors = run_members(ends, [&, &call = call](Communicator& end) {
      end.barrier();
      if (end.rank() == 0) return call(end);
      ends[1].reset();
    });
    EXPECT_THAT(errors[0], ::testing::HasSubstr("left")) << name;
  }
}

}  // namespace epl::testing

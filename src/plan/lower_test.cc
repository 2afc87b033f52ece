#include "plan/lower.h"

#include <gtest/gtest.h>

#include <regex>

#include "ir/text.h"
#include "plan/program_parts.h"
#include "plan/test_lower.h"
#include "program/text.h"

namespace epl {
namespace {

std::string lowered(const std::string& graph, int micro_batches = 1, int apply_groups = 1) {
  LowerOptions options;
  options.micro_batches = micro_batches;
  options.end.apply_groups = apply_groups;
  return "\n" + print_plan(lower(parse_graph(graph), options), CostText::kLeftOut);
}

const char* const kLinear = R"(graph
  %0: f32[4,2] = input 0
  %1: f32[] = seed
  %2: f32[3,2] = parameter "weight"
  %3: f32[2,3]{1,2} @%2 = aten::t(%2) {forward}
  %4: f32[4,3] = aten::mm(%0, %3) {forward}
  %5: f32[] = aten::sum(%4, none) {forward}
  %6: f32[4,3]{0,0} @%1 = aten::expand(%1, [4, 3], false) {backward}
  %7: f32[3,4]{0,0} @%1 = aten::t(%6) {backward}
  %8: f32[3,2] = aten::mm(%7, %0) {backward}
  return loss %5, metric GLOBAL_SUM "sum" %5, gradient "weight" %8
)";

TEST(Lower, WritesResultsIntoTheArenaAndNeedsNoCallForAView) {
  EXPECT_EQ(lowered(kLinear), R"(
plan: 1 program, 1 micro batches, arena 256 B
program 0
   0  load    micro batch 0
   1  run     step  micro batch 0
   2  report  loss and metrics
   3  check   loss
   4  update  1 parameters  24 B
leaves
    s0 f32[4,2] @0 = input 0
    s1 f32[] @64 = seed
    s2 f32[3,2] = "weight"
views
    s3 f32[2,3]{1,2} of "weight"
    s7 f32[3,4]{0,0} @64
segment step
    s4 f32[4,3] @128 = aten::mm.out(s0, s3)  forward
    s5 f32[] @192 = aten::sum(s4, none)  forward
    s8 f32[3,2] @128 = aten::mm.out(s7, s0)  backward
    return loss s5, GLOBAL_SUM "sum" s5
gradients
    s8 of "weight"
)");
}

TEST(Lower, AddsTheGradientsOfLaterMicroBatches) {
  EXPECT_EQ(lowered(kLinear, 4), R"(
plan: 1 program, 4 micro batches, arena 320 B
program 0
   0  load    micro batch 0
   1  run     step  micro batch 0
   2  load    micro batch 1
   3  run     step and accumulate  micro batch 1
   4  load    micro batch 2
   5  run     step and accumulate  micro batch 2
   6  load    micro batch 3
   7  run     step and accumulate  micro batch 3
   8  report  loss and metrics
   9  check   loss
  10  update  1 parameters  24 B
leaves
    s0 f32[4,2] @0 = input 0
    s1 f32[] @64 = seed
    s2 f32[3,2] = "weight"
views
    s4 f32[2,3]{1,2} of "weight"
    s8 f32[3,4]{0,0} @64
    s10 f32[2,3]{1,2} of "weight"
    s14 f32[3,4]{0,0} @64
segment step
    s5 f32[4,3] @192 = aten::mm.out(s0, s4)  forward
    s6 f32[] @256 = aten::sum(s5, none)  forward
    s9 f32[3,2] @128 = aten::mm.out(s8, s0)  backward
    return loss s6, GLOBAL_SUM "sum" s6
segment step and accumulate
    s11 f32[4,3] @192 = aten::mm.out(s0, s10)  forward
    s12 f32[] @256 = aten::sum(s11, none)  forward
    s15 f32[3,2] @192 = aten::mm.out(s14, s0)  backward
    s3 f32[3,2] @128 = aten::add_.Tensor(s3, s15, 1)  backward
    return loss s12, GLOBAL_SUM "sum" s12
gradients
    s3 of "weight"
)");
}

TEST(Lower, AccumulatesGradientsThatAreViews) {
  EXPECT_EQ(lowered(R"(graph
  %0: f32[2,3] = input 0
  %1: f32[3,2] = parameter "w"
  %2: f32[] = aten::sum(%1, none) {forward}
  %3: f32[2,3] = aten::neg(%0) {backward}
  %4: f32[3,2]{1,3} @%3 = aten::t(%3) {backward}
  return loss %2, gradient "w" %4
)",
                    2),
            R"(
plan: 1 program, 2 micro batches, arena 256 B
program 0
   0  load    micro batch 0
   1  run     step  micro batch 0
   2  load    micro batch 1
   3  run     step and accumulate  micro batch 1
   4  report  loss and metrics
   5  check   loss
   6  update  1 parameters  24 B
leaves
    s0 f32[2,3] @0 = input 0
    s1 f32[3,2] = "w"
views
    s8 f32[3,2]{1,3} @128
segment step
    s3 f32[] @128 = aten::sum(s1, none)  forward
    s4 f32[2,3] @64 = aten::neg.out(s0)  backward
    return loss s3
segment step and accumulate
    s6 f32[] @192 = aten::sum(s1, none)  forward
    s7 f32[2,3] @128 = aten::neg.out(s0)  backward
    s2 f32[3,2]{1,3} @64 = aten::add_.Tensor(s2, s8, 1)  backward
    return loss s6
gradients
    s2 of "w"
)");
}

// Arguments that LibTorch 2 has besides are written out.
TEST(Lower, AccumulatesSparseGradients) {
  const std::string text = lowered(R"(graph
  %0: f32[3,2] = input 0
  %1: f32[3,2] = parameter "w"
  %2: f32[] = aten::sum(%1, none) {forward}
  %3: sparse f32[3,2] = aten::to_sparse(%0) {backward}
  %4: sparse f32[3,2] = aten::neg(%3) {backward}
  return loss %2, gradient "w" %4
)",
                                   2);
  EXPECT_EQ(std::regex_replace(text, std::regex("to_sparse\\(s0[^)]*\\)"), "to_sparse(s0)"), R"(
plan: 1 program, 2 micro batches, arena 128 B
program 0
   0  load    micro batch 0
   1  run     step  micro batch 0
   2  load    micro batch 1
   3  run     step and accumulate  micro batch 1
   4  report  loss and metrics
   5  check   loss
   6  update  1 parameters  24 B
leaves
    s0 f32[3,2] @0 = input 0
    s1 f32[3,2] = "w"
segment step
    s3 f32[] @64 = aten::sum(s1, none)  forward
    s4 sparse f32[3,2] = aten::to_sparse(s0)  backward
    s5 sparse f32[3,2] = aten::neg(s4)  backward  free s4
    s2 sparse f32[3,2] = aten::clone(s5, none)  backward
    return loss s3
segment step and accumulate
    s6 f32[] @64 = aten::sum(s1, none)  forward
    s7 sparse f32[3,2] = aten::to_sparse(s0)  backward
    s8 sparse f32[3,2] = aten::neg(s7)  backward  free s7
    s2 sparse f32[3,2] = aten::add.Tensor(s2, s8, 1)  backward
    return loss s6
gradients
    s2 of "w"
)");
}

TEST(Lower, UpdatesInGroups) {
  const char* const graph = R"(graph
  %0: f32[] = input 0
  %1: f32[8] = parameter "a"
  %2: f32[8] = parameter "b"
  %3: f32[16] = parameter "c"
  %4: f32[8] = aten::neg(%1) {backward}
  %5: f32[8] = aten::neg(%2) {backward}
  %6: f32[16] = aten::neg(%3) {backward}
  return loss %0, gradient "a" %4, gradient "b" %5, gradient "c" %6
)";
  LowerOptions options;
  options.end.apply_groups = 2;
  const Plan plan = lower(parse_graph(graph), options);
  const auto& program = plan.programs[0].instructions;
  ASSERT_EQ(program.size(), 6u);
  EXPECT_EQ(program[4].gradients, (std::vector<int>{0, 1}));
  EXPECT_EQ(program[5].gradients, (std::vector<int>{2}));
}

// An operator writes where its argument was: nobody reads %1 again.
TEST(Lower, PutsAPointwiseResultOverAnArgumentThatDies) {
  const Plan plan = lower(parse_graph(R"(graph
  %0: f32[64] = input 0
  %1: f32[64] = aten::neg(%0) {forward}
  %2: f32[64] = aten::relu(%1) {forward}
  %3: f32[] = aten::sum(%2, none) {forward}
  return loss %3
)"),
                          {});
  const auto& calls = plan.programs[0].segments[0].calls;
  EXPECT_EQ(calls[1].mode, Call::Mode::kInPlace);
  const auto buffer_of = [&](SlotId id) {
    return plan.programs[0].slots[static_cast<size_t>(id)].index;
  };
  EXPECT_EQ(buffer_of(calls[1].results[0]), buffer_of(calls[0].results[0]));
}

TEST(Lower, KeepsAnArgumentApartThatIsReadAgain) {
  const Plan plan = lower(parse_graph(R"(graph
  %0: f32[64] = input 0
  %1: f32[64] = aten::neg(%0) {forward}
  %2: f32[64] = aten::relu(%1) {forward}
  %3: f32[64] = aten::mul.Tensor(%1, %2) {forward}
  %4: f32[] = aten::sum(%3, none) {forward}
  return loss %4
)"),
                          {});
  const auto& calls = plan.programs[0].segments[0].calls;
  EXPECT_EQ(calls[1].mode, Call::Mode::kResult);
}

// Else all that stays would be copied; what the operator reads besides must not lie there.
TEST(Lower, ChangesSomeElementsInPlaceWhereNobodyReadsTheOldOnes) {
  const auto mode_of = [](const std::string& source, const std::string& reader) {
    const Plan plan = lower(parse_graph(R"(graph
  %0: f32[8,5] = input 0
  %1: i64[8,5] = input 1
  %2: f32[8,5] = aten::neg(%0) {forward}
  %3: f32[8,5] = aten::scatter.src(%2, 1, %1, )" +
                                        source + R"() {forward}
  %4: f32[8,5] = aten::mul.Tensor(%3, )" +
                                        reader + R"() {forward}
  %5: f32[] = aten::sum(%4, none) {forward}
  return loss %5
)"),
                            {});
    return plan.programs[0].segments[0].calls[1].mode;
  };
  EXPECT_EQ(mode_of("%0", "%3"), Call::Mode::kInPlace);
  EXPECT_EQ(mode_of("%0", "%2"), Call::Mode::kOut);
  EXPECT_EQ(mode_of("%2", "%3"), Call::Mode::kOut);
}

TEST(Lower, NotesTheStateThatTheStepWrites) {
  const Graph graph = parse_graph(R"(graph
  %0: f32[] = input 0
  %1: f32[4] = state "read"
  %2: f32[4] = state "written"
  %3: f32[2] @%2 = aten::slice.Tensor(%2, 0, 0, 2, 1) {forward}
  %4: f32[2] @%2 = aten::relu_(%3) {forward}
  %5: f32[4] = aten::relu(%1) {forward}
  return loss %0
)");
  EXPECT_EQ(lower(graph, {}).programs[0].written_leaves, (std::vector<int>{2}));
  const auto merges = [&](int replicas) {
    LowerOptions options;
    options.replicas = replicas;
    return print_plan(lower(graph, options)).find("merge   1 states  16 B") != std::string::npos;
  };
  EXPECT_TRUE(merges(2));
  EXPECT_FALSE(merges(1)) << "one device has what the plain loop has";
}

TEST(Lower, NotesThatAStepHasGuards) {
  const std::string head = "%0: f32[] = input 0\n%1: f32[4] = input 1\n";
  const auto has_guards = [&](const std::string& node) {
    return lower(parse_graph(head + node + "\nreturn loss %0"), {}).has_guards();
  };
  EXPECT_FALSE(has_guards("%2: f32[4] = aten::relu(%1) {forward}"));
  EXPECT_TRUE(has_guards("() = aten::_local_scalar_dense(%0) {forward} expects 0.5"));
  EXPECT_TRUE(has_guards("%2: i64[2,1] = aten::nonzero(%1) {forward}"));
}

TEST(Lower, HasNoCallForMemoryWithoutContents) {
  const Plan plan = lower(parse_graph(R"(graph
  %0: f32[] = input 0
  %1: f32[4] = aten::empty.memory_format([4], 6, none, none, false, none) {forward}
  return loss %0, metric m "x" %1
)"),
                          {});
  EXPECT_EQ(plan.programs[0].segments[0].calls[0].mode, Call::Mode::kNothing);
}

// The tensors of slots stay as they are: they serve all steps.
TEST(Lower, HasNoCallForWhatChangesPlacesOnly) {
  const Plan plan = lower(parse_graph(R"(graph
  %0: f32[4,2] = input 0
  %1: f32[] = seed
  %2: f32[4,2] = aten::neg(%0) {forward}
  %3: f32[2,4]{1,2} @%2 = aten::transpose_(%2, 0, 1) {forward}
  %4: f32[2,4]{1,2} @%2 = aten::lt_.Scalar(%3, 0) {forward}
  %5: f32[6] = aten::ones([6], none, none, none, none) {forward}
  %6: f32[4] @%5 = aten::resize_(%5, [4], none) {forward}
  return loss %1, metric m "x" %4, metric m "y" %6
)"),
                          {});
  std::vector<std::string> names;
  for (const auto& call : plan.programs[0].segments[0].calls)
    names.push_back(call.op.operator_name().name);
  EXPECT_EQ(names, (std::vector<std::string>{"aten::neg", "aten::lt_", "aten::ones"}));
}

TEST(Lower, RefusesASparseInput) {
  try {
    lowered("%0: f32[] = input 0\n%1: sparse f32[4] = input 1\nreturn loss %0");
    FAIL() << "no exception";
  } catch (const std::exception& error) {
    EXPECT_STREQ(error.what(),
                 "epl: input 1 of the batch is not a dense tensor\n"
                 "  asked by: epl::Trainer\n"
                 "  try:      to_dense() before the step");
  }
}

TEST(CutIntoGroups, CutsRunsOfAboutEqualBytes) {
  using Groups = std::vector<std::vector<int>>;
  struct Row {
    std::vector<int64_t> bytes;
    int groups;
    Groups result;
  };
  const Row table[] = {
      {{}, 3, {}},
      {{4}, 3, {{0}}},
      {{4, 4, 4, 4}, 1, {{0, 1, 2, 3}}},
      {{4, 4, 4, 4}, 2, {{0, 1}, {2, 3}}},
      {{4, 4, 4, 4}, 4, {{0}, {1}, {2}, {3}}},
      {{4, 4, 4, 4}, 9, {{0}, {1}, {2}, {3}}},
      {{8, 2, 2, 2, 2}, 2, {{0}, {1, 2, 3, 4}}},
      {{2, 2, 2, 2, 8}, 2, {{0, 1, 2, 3}, {4}}},
      {{100, 1, 1, 1}, 2, {{0}, {1, 2, 3}}},
      {{1, 1, 1, 100}, 2, {{0, 1, 2}, {3}}},
      {{0, 0, 0}, 2, {{0, 1, 2}}},
  };
  for (const auto& row : table) {
    EXPECT_EQ(cut_into_groups(row.bytes, row.groups), row.result)
        << testing::PrintToString(row.bytes) << " into " << row.groups;
  }
}

const char* const kTwoLayers = R"(graph
  %0: f32[4,2] = input 0
  %1: f32[] = seed
  %2: f32[3,2] = parameter "first"
  %3: f32[3,2] = parameter "second"
  %4: f32[3,2] = aten::mul.Tensor(%2, %3) {forward}
  %5: f32[] = aten::sum(%4, none) {forward}
  %6: f32[3,2] = aten::mul.Tensor(%2, %1) {backward}
  %7: f32[3,2] = aten::mul.Tensor(%3, %1) {backward}
  %8: f32[3,2] = aten::relu(%0) {backward}
  return loss %5, metric GLOBAL_SUM "rest" %8, gradient "first" %7, gradient "second" %6
)";

std::string program_of(const LowerOptions& options, int devices = 1) {
  const Graph graph = parse_graph(kTwoLayers);
  const Plan plan = lower(graph, {{&graph, devices}}, {}, options);
  const std::string text = print_plan(plan, CostText::kLeftOut);
  return "\n" + text.substr(0, text.find("leaves"));
}

TEST(Lower, ReducesGradientsInTheOrderInWhichTheyBecomeReady) {
  LowerOptions options;
  options.replicas = 4;
  options.most_reductions = 5;
  options.micro_batches = 2;
  EXPECT_EQ(program_of(options), R"(
plan: 1 program, 2 micro batches, 4 replicas, arena 384 B
program 0
mesh      replica 4 x part 1, part 0
   0  load    micro batch 0
   1  run     step  micro batch 0
   2  load    micro batch 1
   3  run     step and accumulate  micro batch 1  calls 0 to 3
   4  reduce  group 0: 1 gradients  24 B  gradients 1
   5  run     step and accumulate  micro batch 1  calls 4 to 5
   6  reduce  group 1: 1 gradients  24 B  gradients 0
   7  run     step and accumulate  micro batch 1  calls 6 to 6
   8  report  loss and metrics
   9  await   reductions
  10  check   loss
  11  update  2 parameters  48 B
)");
}

// The gradient of "second" is read once more for that of "first". Reductions write in place beside
// the run, so it set out while it was read: wrong in half of the steps of two workers.
TEST(Lower, ReducesAGradientAfterItsLastReader) {
  LowerOptions options;
  options.replicas = 2;
  options.most_reductions = 5;
  const std::string text = print_plan(lower(parse_graph(R"(graph
  %0: f32[3,2] = parameter "first"
  %1: f32[3,2] = parameter "second"
  %2: f32[] = seed
  %3: f32[3,2] = aten::mul.Tensor(%0, %1) {forward}
  %4: f32[] = aten::mean(%3, none) {forward}
  %5: f32[3,2] = aten::mul.Tensor(%0, %2) {backward}
  %6: f32[3,2] = aten::mul.Tensor(%5, %1) {backward}
  %7: f32[3,2] = aten::relu(%6) {backward}
  %8: f32[3,2] = aten::relu(%7) {backward}
  return loss %4, metric GLOBAL_SUM "rest" %8, gradient "first" %6, gradient "second" %5
)"),
                                            options),
                                      CostText::kLeftOut);
  EXPECT_EQ("\n" + text.substr(0, text.find("leaves")), R"(
plan: 1 program, 1 micro batches, 2 replicas, arena 320 B
program 0
mesh      replica 2 x part 1, part 0
   0  load    micro batch 0
   1  run     step  micro batch 0  calls 0 to 3
   2  reduce  group 0: 1 gradients  24 B  gradients 1
   3  run     step  micro batch 0  calls 4 to 4
   4  reduce  group 1: 1 gradients  24 B  gradients 0
   5  run     step  micro batch 0  calls 5 to 5
   6  report  loss and metrics
   7  await   reductions
   8  check   loss
   9  update  2 parameters  48 B
)");
}

TEST(Lower, ReducesAtTheEndWhereGradientsAreClippedFirst) {
  LowerOptions options;
  options.end.clips_each_replica = true;
  EXPECT_EQ(program_of(options, 2), R"(
plan: 1 program, 1 micro batches, 1 replica of 2 devices, arena 384 B
program 0
mesh      replica 1 x part 2, parts 0 to 1
   0  load    micro batch 0
   1  run     step  micro batch 0
   2  report  loss and metrics
   3  clip    each replica: 2 gradients  48 B
   4  reduce  group 0: 2 gradients  48 B  gradients 1, 0
   5  await   reductions
   6  check   loss
   7  update  2 parameters  48 B
)");
}

}  // namespace
}  // namespace epl

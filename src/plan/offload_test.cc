#include "plan/offload.h"

#include <gtest/gtest.h>

#include <sstream>
#include <vector>

#include "base/check.h"
#include "ir/text.h"
#include "plan/test_lower.h"
#include "plan/window_leaves.h"
#include "program/near_bytes.h"
#include "program/parse.h"
#include "program/text.h"
#include "program/verify.h"

namespace epl {
namespace {

// Four square layers of four pages each, one behind the other.
class LayersGraph {
 public:
  std::string text() {
    out_ << "graph\n";
    const int input = add("f32[2,64]", "input 0");
    const int seed = add("f32[]", "seed");
    std::vector<int> weights;
    for (int i = 0; i < 4; ++i) {
      weights.push_back(add("f32[64,64]", "parameter \"w" + std::to_string(i) + "\""));
    }
    std::vector<int> values = {input};
    for (int weight : weights) {
      values.push_back(add(
          "f32[2,64]", "aten::mm(" + name(values.back()) + ", " + name(weight) + ") {forward}"));
    }
    const int loss = add("f32[]", "aten::sum(" + name(values.back()) + ", none) {forward}");
    int gradient = add("f32[2,64]{0,0} @" + name(seed),
                       "aten::expand(" + name(seed) + ", [2, 64], false) {backward}");
    std::vector<int> gradients(4);
    for (size_t i = 4; i-- > 0;) {
      const int x = transposed(values[i], "f32[64,2]{1,64}");
      gradients[i] = product("f32[64,64]", x, gradient);
      if (i == 0) break;
      gradient = product("f32[2,64]", gradient, transposed(weights[i], "f32[64,64]{1,64}"));
    }
    out_ << "  return loss " << name(loss);
    for (size_t i = 0; i < 4; ++i) out_ << ", gradient \"w" << i << "\" " << name(gradients[i]);
    return out_.str() + "\n";
  }

 private:
  static std::string name(int id) { return "%" + std::to_string(id); }
  int add(const std::string& type, const std::string& what) {
    out_ << "  " << name(next_) << ": " << type << " = " << what << "\n";
    return next_++;
  }
  int transposed(int id, const std::string& type) {
    return add(type + " @" + name(id), "aten::t(" + name(id) + ") {backward}");
  }
  int product(const std::string& type, int a, int b) {
    return add(type, "aten::mm(" + name(a) + ", " + name(b) + ") {backward}");
  }

  std::ostringstream out_;
  int next_ = 0;
};

OffloadOptions all_layers(int ahead, int states) {
  OffloadOptions offload;
  for (int i = 0; i < 4; ++i) {
    offload.parameters.insert("w" + std::to_string(i));
    if (states > 0) offload.states["w" + std::to_string(i)] = states;
  }
  offload.ahead = ahead;
  offload.visits = 4;
  return offload;
}

Plan offloaded(const OffloadOptions& offload, int micro_batches = 1) {
  LowerOptions options;
  options.micro_batches = micro_batches;
  options.offload = offload;
  options.end.apply_groups = 4;
  return lower(parse_graph(LayersGraph().text()), options);
}

std::string instructions_of(const Plan& plan) {
  const std::string text = print_plan(plan, CostText::kLeftOut);
  const size_t begin = text.find("program 0\n");
  return "\n" + text.substr(begin, text.find("leaves\n") - begin);
}

TEST(Offload, FetchesAheadAndStoresBehindTheLastUse) {
  EXPECT_EQ(instructions_of(offloaded(all_layers(1, 0))), R"(
program 0
   0  fetch   2 parameters  32.0 KiB  leaves 2, 3
   1  load    micro batch 0
   2  wait    1 parameters  16.0 KiB  leaves 2
   3  run     step  micro batch 0  calls 0 to 0
   4  store   1 parameters  16.0 KiB  leaves 2
   5  fetch   1 parameters  16.0 KiB  leaves 4
   6  wait    1 parameters  16.0 KiB  leaves 3
   7  run     step  micro batch 0  calls 1 to 1
   8  store   1 parameters  16.0 KiB  leaves 3
   9  fetch   1 parameters  16.0 KiB  leaves 5
  10  wait    1 parameters  16.0 KiB  leaves 4
  11  run     step  micro batch 0  calls 2 to 2
  12  wait    1 parameters  16.0 KiB  leaves 5
  13  run     step  micro batch 0  calls 3 to 7
  14  store   1 parameters  16.0 KiB  leaves 5
  15  fetch   1 parameters  16.0 KiB  leaves 3
  16  run     step  micro batch 0  calls 8 to 9
  17  store   1 parameters  16.0 KiB  leaves 4
  18  fetch   1 parameters  16.0 KiB  leaves 2
  19  wait    1 parameters  16.0 KiB  leaves 3
  20  run     step  micro batch 0  calls 10 to 11
  21  report  loss and metrics
  22  check   loss
  23  wait    1 parameters  16.0 KiB  leaves 2
  24  update  1 parameters  16.0 KiB
  25  store   1 parameters  16.0 KiB  leaves 2
  26  fetch   1 parameters  16.0 KiB  leaves 4
  27  update  1 parameters  16.0 KiB
  28  store   1 parameters  16.0 KiB  leaves 3
  29  fetch   1 parameters  16.0 KiB  leaves 5
  30  wait    1 parameters  16.0 KiB  leaves 4
  31  update  1 parameters  16.0 KiB
  32  store   1 parameters  16.0 KiB  leaves 4
  33  wait    1 parameters  16.0 KiB  leaves 5
  34  update  1 parameters  16.0 KiB
  35  store   1 parameters  16.0 KiB  leaves 5
)");
}

TEST(Offload, BringsStatesForTheUpdateAlone) {
  EXPECT_EQ(instructions_of(offloaded(all_layers(1, 2))), R"(
program 0
   0  fetch   2 parameters  32.0 KiB  leaves 2, 3
   1  load    micro batch 0
   2  wait    1 parameters  16.0 KiB  leaves 2
   3  run     step  micro batch 0  calls 0 to 0
   4  store   1 parameters  16.0 KiB  leaves 2
   5  fetch   1 parameters  16.0 KiB  leaves 4
   6  wait    1 parameters  16.0 KiB  leaves 3
   7  run     step  micro batch 0  calls 1 to 1
   8  store   1 parameters  16.0 KiB  leaves 3
   9  fetch   1 parameters  16.0 KiB  leaves 5
  10  wait    1 parameters  16.0 KiB  leaves 4
  11  run     step  micro batch 0  calls 2 to 2
  12  wait    1 parameters  16.0 KiB  leaves 5
  13  run     step  micro batch 0  calls 3 to 7
  14  store   1 parameters  16.0 KiB  leaves 5
  15  fetch   1 parameters  16.0 KiB  leaves 3
  16  run     step  micro batch 0  calls 8 to 9
  17  store   1 parameters  16.0 KiB  leaves 4
  18  fetch   1 parameters  16.0 KiB  leaves 2
  19  fetch   states of 1 parameters  32.0 KiB  leaves 2
  20  wait    1 parameters  16.0 KiB  leaves 3
  21  run     step  micro batch 0  calls 10 to 11
  22  fetch   states of 1 parameters  32.0 KiB  leaves 3
  23  report  loss and metrics
  24  check   loss
  25  wait    1 parameters  16.0 KiB  leaves 2
  26  wait    states of 1 parameters  32.0 KiB  leaves 2
  27  update  1 parameters  16.0 KiB
  28  store   1 parameters  16.0 KiB  leaves 2
  29  store   states of 1 parameters  32.0 KiB  leaves 2
  30  fetch   1 parameters  16.0 KiB  leaves 4
  31  fetch   states of 1 parameters  32.0 KiB  leaves 4
  32  wait    states of 1 parameters  32.0 KiB  leaves 3
  33  update  1 parameters  16.0 KiB
  34  store   1 parameters  16.0 KiB  leaves 3
  35  store   states of 1 parameters  32.0 KiB  leaves 3
  36  fetch   1 parameters  16.0 KiB  leaves 5
  37  fetch   states of 1 parameters  32.0 KiB  leaves 5
  38  wait    1 parameters  16.0 KiB  leaves 4
  39  wait    states of 1 parameters  32.0 KiB  leaves 4
  40  update  1 parameters  16.0 KiB
  41  store   1 parameters  16.0 KiB  leaves 4
  42  store   states of 1 parameters  32.0 KiB  leaves 4
  43  wait    1 parameters  16.0 KiB  leaves 5
  44  wait    states of 1 parameters  32.0 KiB  leaves 5
  45  update  1 parameters  16.0 KiB
  46  store   1 parameters  16.0 KiB  leaves 5
  47  store   states of 1 parameters  32.0 KiB  leaves 5
)");
}

TEST(Offload, TextIsReadBackAsItIs) {
  for (const int states : {0, 2}) {
    const Plan plan = offloaded(all_layers(2, states), 2);
    const std::string text = print_plan(plan);
    const Plan parsed = parse_plan(text);
    EXPECT_EQ(print_plan(parsed), text);
    EXPECT_NO_THROW(verify_plan(parsed));
  }
}

TEST(Offload, KeepsFewParametersNear) {
  constexpr int64_t kLayer = 64 * 64 * 4;
  // The layer that is used, and as many as are fetched ahead; one that goes.
  EXPECT_EQ(most_near(offloaded(all_layers(1, 0)).programs[0]), 3 * kLayer);
  EXPECT_EQ(most_near(offloaded(all_layers(1, 2)).programs[0]), 3 * 3 * kLayer);
  EXPECT_EQ(most_near(offloaded({}).programs[0]), 0);
}

TEST(Offload, LeavesParametersThatAreNotNamedInMemory) {
  OffloadOptions offload = all_layers(1, 2);
  offload.parameters = {"w1"};
  const Plan plan = offloaded(offload);
  const auto& leaves = plan.programs[0].leaves;
  for (const PlanLeaf& leaf : leaves) EXPECT_EQ(leaf.offloaded, leaf.name == "w1") << leaf.name;
}

Plan with_windows(const OffloadOptions& given, const std::string& graph) {
  LowerOptions options;
  options.offload = given;
  options.offload.medium = OffloadOptions::Medium::kHost;
  options.end.apply_groups = 4;
  return lower(parse_graph(graph), options);
}

TEST(Offload, PlansWindowsAsItPlansAFile) {
  const OffloadOptions all = all_layers(1, 2);
  EXPECT_EQ(print_plan(with_windows(all, LayersGraph().text())), print_plan(offloaded(all)));
}

// The four layers, each of them reached by something that a window cannot serve.
TEST(WindowLeaves, AreReadByOperatorsAlone) {
  Plan plan = offloaded({});
  EXPECT_TRUE(leaves_without_window(plan).empty());
  Program& program = plan.programs[0];
  program.written_leaves = {2};
  program.leaves[3].shard = {0, {0, 32}, 64};
  Call& third = program.segments[0].calls[2];
  program.slots[static_cast<size_t>(third.results[0])].where = Slot::Where::kMadeByOperator;
  Instruction send;
  send.kind = Instruction::Kind::kSend;
  send.slots = {program.leaves[5].slot};
  program.instructions.push_back(send);
  const std::map<std::string, std::string> expected = {
      {"w0", "the step itself writes it"},
      {"w1", "its operators are cut over devices, and it with them"},
      {"w2", "what aten::mm makes may lie in it"},
      {"w3", "it travels between stages"}};
  EXPECT_EQ(leaves_without_window(plan), expected);
}

TEST(Offload, SaysWhatHasNoWindow) {
  OffloadOptions some = all_layers(1, 2);
  some.parameters.erase("w1");
  some.staying = {{"w1", "another tensor of the step lies in its memory"}};
  const Plan plan = with_windows(some, LayersGraph().text());
  EXPECT_EQ(plan.remarks,
            std::vector<std::string>{
                "`w1` stays in memory: another tensor of the step lies in its memory"});
  for (const PlanLeaf& leaf : plan.programs[0].leaves) {
    EXPECT_EQ(leaf.offloaded, leaf.name[0] == 'w' && leaf.name != "w1") << leaf.name;
  }
}

// Takes one instruction out, of each kind that brings or lets go, and looks what is said.
TEST(VerifyPlan, FindsWhatIsUsedWhileItIsAway) {
  const Plan good = offloaded(all_layers(1, 1));
  const auto& instructions = good.programs[0].instructions;
  int taken_out = 0;
  for (size_t i = 0; i < instructions.size(); ++i) {
    if (!is_of_offload(instructions[i].kind)) continue;
    Plan bad = good;
    bad.programs[0].instructions.erase(bad.programs[0].instructions.begin() +
                                       static_cast<std::ptrdiff_t>(i));
    EXPECT_THROW(verify_plan(bad), InternalError) << i;
    ++taken_out;
  }
  EXPECT_GT(taken_out, 20);
  Plan bad = good;
  for (PlanLeaf& leaf : bad.programs[0].leaves) leaf.offloaded = false;
  EXPECT_THROW(verify_plan(bad), InternalError);
}

// Of parameters that are spread over workers the runs alone need what others keep.
Plan spread_over_two(int micro_batches = 1) {
  LowerOptions options;
  options.micro_batches = micro_batches;
  options.replicas = 2;
  options.zero.shares = {{1, 1}};
  options.zero.spreads = true;
  options.zero.fetches = {int64_t{64} << 20, 4, 1};
  options.end.gathers_from_owners = true;
  for (int i = 0; i < 4; ++i) {
    const std::string name = "w" + std::to_string(i);
    options.zero.spread.insert(name);
    options.zero.settled[name] = {Owners::Kind::kRanges, 0};
  }
  return lower(parse_graph(LayersGraph().text()), options);
}

TEST(SpreadPlan, FetchesForRunsAndNotForUpdates) {
  const Plan plan = spread_over_two(2);
  const Program& program = plan.programs[0];
  EXPECT_EQ(program.leaves[2].others, 64 * 64 * 4 / 2);
  EXPECT_LT(most_near(program), 4 * program.leaves[2].others);
  bool updates = false;
  for (const Instruction& each : program.instructions) {
    updates |= each.kind == Instruction::Kind::kUpdate;
    EXPECT_FALSE(updates && is_of_offload(each.kind));
    if (each.kind == Instruction::Kind::kGather) {
      EXPECT_TRUE(each.leaves.empty());
    }
  }
  EXPECT_EQ(print_plan(parse_plan(print_plan(plan))), print_plan(plan));
}

TEST(SpreadPlan, IsVerified) {
  const Plan good = spread_over_two();
  verify_plan(good);
  int taken_out = 0;
  for (size_t i = 0; i < good.programs[0].instructions.size(); ++i) {
    if (!is_of_offload(good.programs[0].instructions[i].kind)) continue;
    Plan bad = good;
    auto& instructions = bad.programs[0].instructions;
    instructions.erase(instructions.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_THROW(verify_plan(bad), InternalError) << i;
    ++taken_out;
  }
  EXPECT_GT(taken_out, 10);
  Plan bad = good;
  for (PlanLeaf& leaf : bad.programs[0].leaves) leaf.others = 0;
  EXPECT_THROW(verify_plan(bad), InternalError);
}

}  // namespace
}  // namespace epl

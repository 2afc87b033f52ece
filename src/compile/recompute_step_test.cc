// What the chooser of gradient checkpointing expects of a step against the step that is lowered.
#include "compile/recompute_step.h"

#include <gmock/gmock.h>

#include "base/check.h"
#include "config/test_environment.h"
#include "cost/recompute_units.h"
#include "plan/memory.h"
#include "tests/models/steps.h"

namespace epl {
namespace {

CompiledStep compiled(const models::ModelStep& model, std::initializer_list<Setting> settings) {
  return compile(model.capture(), Cluster(), Config(settings));
}

RecomputeOutcome measured(const Graph& graph) {
  const RecomputeModel model = recompute_model({graph});
  return RecomputeMemory(model).measure(Again(model.operations.size(), false));
}

int64_t bytes_of_inputs(const Graph& graph) {
  int64_t bytes = 0;
  for (const auto& leaf : graph.leaves) {
    const bool inside = leaf.kind == Leaf::Kind::kInput || leaf.kind == Leaf::Kind::kSeed;
    if (inside) bytes += align_up(graph.value(leaf.value).type.extent_bytes());
  }
  return bytes;
}

// Lifetimes are those of the Plan: its arena holds them, and loses little between them.
TEST(RecomputeModel, HasTheMemoryOfThePlan) {
  for (const auto& model : models::all_steps()) {
    for (const char* type : {"", "auto"}) {
      const CompiledStep step = compiled(model, {{"gradient_checkpoint.type", type}});
      const int64_t peak = measured(step.graph).peak;
      const int64_t arena = step.plan.programs[0].arena_bytes - bytes_of_inputs(step.graph);
      EXPECT_GE(arena, peak) << model.name << " " << type;
      EXPECT_LE(arena, peak + peak / 5 + 2048) << model.name << " " << type;
    }
  }
}

// The pass does what the chooser has measured: the rewritten graph, with all kept, has that peak.
TEST(RecomputeModel, SaysWhatThePassMakes) {
  for (const auto& model : models::all_steps()) {
    const CompiledStep step = compiled(model, {{"gradient_checkpoint.type", "auto"}});
    if (step.run_again == 0) continue;
    const std::string& remark = step.plan.remarks.at(0);
    const int64_t expected = std::stoll(remark.substr(remark.find("values take ") + 12));
    // Nodes of forward that nobody reads any more are gone.
    EXPECT_LE(measured(step.graph).peak, expected) << model.name;
    EXPECT_GE(measured(step.graph).peak, expected * 98 / 100) << model.name;
  }
}

TEST(MemoryLimit, IsKeptByTheArenaAndAllElseThatADeviceHolds) {
  for (const auto& model : models::all_steps()) {
    const CompiledStep kept = compiled(model, {});
    const std::string text = error_of([&] { compiled(model, {{"memory.limit", 1}}); });
    ASSERT_THAT(text, testing::HasSubstr("needs at least")) << model.name;
    const int64_t least = std::stoll(text.substr(text.find("at least ") + 9));
    int64_t most = kept.plan.programs[0].arena_bytes;
    for (const auto& leaf : kept.graph.leaves) {
      const bool inside = leaf.kind == Leaf::Kind::kInput || leaf.kind == Leaf::Kind::kSeed;
      if (!inside) most += kept.graph.value(leaf.value).type.extent_bytes();
    }
    for (int part = 0; part <= 4; ++part) {
      const int64_t limit = least + (most - least) * part / 4;
      const CompiledStep step = compiled(model, {{"memory.limit", limit}});
      EXPECT_LE(step.plan.programs[0].arena_bytes, limit) << model.name;
      EXPECT_TRUE(part < 4 || step.run_again == 0) << model.name;
    }
    EXPECT_THAT(error_of([&] {
                  compiled(model, {{"memory.limit", least * 9 / 10}});
                }),
                testing::HasSubstr("memory.limit"))
        << model.name;
  }
}

// Whoever asks for the least memory has the least that a limit can enforce.
TEST(MemoryLimit, CanBeKeptDownToWhatAutoNeeds) {
  for (const auto& model : models::all_steps()) {
    const int64_t least = compiled(model, {{"gradient_checkpoint.type", "auto"}}).device_bytes;
    EXPECT_EQ(compiled(model, {{"memory.limit", least}}).device_bytes, least) << model.name;
    for (const int64_t below : {least - 1, least * 99 / 100, least * 95 / 100}) {
      const std::string text = error_of([&] { compiled(model, {{"memory.limit", below}}); });
      EXPECT_THAT(text, testing::HasSubstr(concat("needs at least ", least, " bytes")))
          << model.name << ", " << below;
    }
  }
}

TEST(MemoryLimit, OfAMillionMillionBytesChangesNothing) {
  const auto model = models::all_steps()[0];
  EXPECT_EQ(compiled(model, {{"memory.limit", "1TiB"}}).run_again, 0);
}

}  // namespace
}  // namespace epl

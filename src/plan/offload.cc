#include "plan/offload.h"

#include <algorithm>

#include "base/text.h"
#include "plan/window_leaves.h"
#include "program/near_bytes.h"

namespace epl {
namespace {

// What a step writes itself is in memory from its first use on. `in_memory`: the names of such
// parameters are added.
void mark_leaves(const OffloadOptions& options, Program& program,
                 std::set<std::string>& in_memory) {
  const std::set<int> written(program.written_leaves.begin(), program.written_leaves.end());
  for (size_t i = 0; i < program.leaves.size(); ++i) {
    PlanLeaf& leaf = program.leaves[i];
    const bool named = leaf.kind == PlanLeaf::Kind::kTensor && leaf.slot != kNoSlot &&
                       options.parameters.count(leaf.name) != 0;
    leaf.offloaded = named && written.count(static_cast<int>(i)) == 0;
    if (named && !leaf.offloaded) in_memory.insert(leaf.name);
    const auto states = options.states.find(leaf.name);
    if (leaf.offloaded && states != options.states.end()) leaf.states = states->second;
  }
}

}  // namespace

int update_groups(const OffloadOptions& options, const Program& program) {
  int64_t bytes = 0;
  for (const PlanGradient& gradient : program.gradients) {
    const std::string& name = program.leaves[static_cast<size_t>(gradient.leaf)].name;
    const auto states = options.states.find(name);
    const int64_t tensors = 1 + (states == options.states.end() ? 0 : states->second);
    bytes += tensors * near_bytes(program, gradient.leaf, /*states=*/false);
  }
  return std::max(options.visits, static_cast<int>(bytes / options.most_bytes) + 1);
}

void add_offload(const OffloadOptions& given, Plan& plan) {
  OffloadOptions options = given;
  if (options.medium == OffloadOptions::Medium::kHost) {
    for (const auto& [name, why] : leaves_without_window(plan)) {
      if (options.parameters.erase(name) != 0) options.staying.emplace(name, why);
    }
  }
  for (const auto& [name, why] : options.staying) {
    plan.remarks.push_back(concat("`", name, "` stays in memory: ", why));
  }
  if (!options.any()) return;
  std::set<std::string> written;
  for (Program& program : plan.programs) {
    mark_leaves(options, program, written);
    add_fetches(options, program);
  }
  for (const std::string& name : written) {
    plan.remarks.push_back(
        concat("`", name, "` is in memory throughout the step, which writes it itself"));
  }
}

}  // namespace epl

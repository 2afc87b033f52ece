#include "compile/device_bytes.h"

#include <set>

namespace epl {
namespace {

// Leaves that some call reads or a gradient belongs to, by index.
std::set<int> leaves_in_use(const Program& program) {
  std::set<int> used;
  const auto note = [&](SlotId slot) {
    const Slot& place = program.slots[static_cast<size_t>(slot)];
    if (place.where == Slot::Where::kLeaf) used.insert(place.index);
  };
  for (const auto& segment : program.segments) {
    for (const auto& call : segment.calls) {
      for_each_operand(call, note);
      for_each_result(call, note);
    }
  }
  for (const auto& gradient : program.gradients) used.insert(gradient.leaf);
  return used;
}

}  // namespace

int64_t bytes_of_device(const Graph& graph, const Plan& plan, size_t role,
                        const CompileOptions& options) {
  const Program& program = plan.program_of(role);
  int64_t bytes = program.arena_bytes;
  const auto bytes_of = [&](int leaf) {
    return graph.value(graph.leaves[static_cast<size_t>(leaf)].value).type.extent_bytes();
  };
  for (int leaf : leaves_in_use(program)) bytes += bytes_of(leaf);
  for (const auto& gradient : program.gradients) {
    const auto states =
        options.states_of.find(graph.leaves[static_cast<size_t>(gradient.leaf)].name);
    if (states != options.states_of.end()) bytes += bytes_of(gradient.leaf) * states->second;
  }
  return bytes;
}

}  // namespace epl

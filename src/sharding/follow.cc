#include "sharding/follow.h"

#include <map>
#include <set>

namespace epl {
namespace {

// The dimension of each value that is the index of the experts.
using ExpertDims = std::map<ValueId, int>;

// The letter that stands for a known dimension of one of the node's tensors; 0: none.
char letter_of(const std::vector<ValueId>& values, const std::vector<std::string>& words,
               const ExpertDims& dims) {
  for (size_t i = 0; i < values.size() && i < words.size(); ++i) {
    const auto known = dims.find(values[i]);
    if (known == dims.end() || known->second >= static_cast<int>(words[i].size())) continue;
    const char letter = words[i][static_cast<size_t>(known->second)];
    if (letter != '1') return letter;
  }
  return 0;
}

bool note(const std::vector<ValueId>& values, const std::vector<std::string>& words, char letter,
          ExpertDims& dims) {
  bool changed = false;
  for (size_t i = 0; i < values.size() && i < words.size(); ++i) {
    const size_t at = words[i].find(letter);
    if (at != std::string::npos) changed |= dims.emplace(values[i], static_cast<int>(at)).second;
  }
  return changed;
}

// Forward nodes that compute with what the experts gave, and the backward nodes of these: not the
// gating, whose tensors have an index of experts as well.
std::vector<bool> nodes_after_experts(const Graph& graph, const ExpertDims& experts) {
  std::set<ValueId> after;
  for (const auto& [id, dim] : experts) after.insert(id);
  std::set<int> calls;
  std::vector<bool> found(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.phase == Phase::kForward) {
      for_each_input(node, [&](ValueId id) { found[i] = found[i] || after.count(id) != 0; });
      if (!found[i]) continue;
      for_each_output(node, [&](ValueId id) { after.insert(id); });
      calls.insert(node.origin.call);
    } else {
      found[i] = calls.count(node.origin.call) != 0;
    }
  }
  return found;
}

}  // namespace

std::vector<bool> nodes_that_follow(const ShardingRequest& request) {
  const Graph& graph = request.graph;
  std::vector<bool> follows(graph.nodes.size(), false);
  ExpertDims dims;
  for (size_t i = 0; i < request.made_cut.size(); ++i) {
    if (request.made_cut[i]) dims[graph.leaves[i].value] = 0;
  }
  if (dims.empty()) return follows;
  const std::vector<bool> may_follow = nodes_after_experts(graph, dims);
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      if (!may_follow[i]) continue;
      const auto pattern = pattern_of(graph, graph.nodes[i]);
      if (!pattern) continue;
      std::vector<ValueId> inputs;
      std::vector<ValueId> outputs;
      for_each_input(graph.nodes[i], [&](ValueId id) { inputs.push_back(id); });
      for_each_output(graph.nodes[i], [&](ValueId id) { outputs.push_back(id); });
      char letter = letter_of(inputs, pattern->inputs, dims);
      if (letter == 0) letter = letter_of(outputs, pattern->outputs, dims);
      const bool may_be_cut = letter != 0 && pattern->whole.find(letter) == std::string::npos;
      if (!may_be_cut) continue;
      follows[i] = true;
      changed |= note(inputs, pattern->inputs, letter, dims);
      changed |= note(outputs, pattern->outputs, letter, dims);
    }
  }
  return follows;
}

}  // namespace epl

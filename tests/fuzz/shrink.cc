#include <algorithm>

#include "tests/fuzz/outcome.h"

namespace epl::fuzz {
namespace {

bool names(const std::vector<int>& list, int value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// Without node `at` and all that needs what it gives.
Case without_node(Case smaller, size_t at) {
  Recipe& recipe = smaller.recipe;
  std::vector<int> gone = recipe.nodes[at].out;
  std::vector<Node> kept;
  std::vector<Scope> scopes = recipe.scopes;
  for (size_t i = 0; i < recipe.nodes.size(); ++i) {
    const Node& node = recipe.nodes[i];
    const bool needs =
        std::any_of(node.in.begin(), node.in.end(), [&](int id) { return names(gone, id); });
    for (size_t s = 0; s < scopes.size(); ++s) {
      if (recipe.scopes[s].first == i) scopes[s].first = kept.size();
    }
    if (i == at || needs) {
      gone.insert(gone.end(), node.out.begin(), node.out.end());
    } else {
      kept.push_back(node);
    }
  }
  recipe.nodes = kept;
  recipe.scopes = scopes;
  const auto lost = [&](const LossTerm& term) {
    return std::any_of(term.in.begin(), term.in.end(), [&](int id) { return names(gone, id); });
  };
  recipe.loss.erase(std::remove_if(recipe.loss.begin(), recipe.loss.end(), lost),
                    recipe.loss.end());
  recipe.metrics.erase(
      std::remove_if(recipe.metrics.begin(), recipe.metrics.end(),
                     [&](const Metric& metric) { return names(gone, metric.value); }),
      recipe.metrics.end());
  return smaller;
}

// Who needs what node `at` gives reads its first input instead.
Case past_node(Case smaller, size_t at) {
  Recipe& recipe = smaller.recipe;
  const Node node = recipe.nodes[at];
  if (node.in.empty()) return smaller;
  const auto redirect = [&](int& id) {
    if (names(node.out, id)) id = node.in[0];
  };
  for (Node& other : recipe.nodes) std::for_each(other.in.begin(), other.in.end(), redirect);
  for (LossTerm& term : recipe.loss) std::for_each(term.in.begin(), term.in.end(), redirect);
  for (Metric& metric : recipe.metrics) redirect(metric.value);
  recipe.nodes.erase(recipe.nodes.begin() + static_cast<std::ptrdiff_t>(at));
  for (Scope& scope : recipe.scopes) {
    if (scope.first > at) --scope.first;
  }
  return smaller;
}

// Leaves that nothing reads any more.
Case without_leaf(Case smaller, size_t at) {
  smaller.recipe.leaves.erase(smaller.recipe.leaves.begin() + static_cast<std::ptrdiff_t>(at));
  return smaller;
}

bool still_fails(const Case& one) {
  const size_t scopes = one.recipe.scopes.size();
  if (one.recipe.loss.empty() || one.recipe.nodes.size() < std::max<size_t>(scopes, 1)) {
    return false;
  }
  for (size_t i = 1; i < scopes; ++i) {
    if (one.recipe.scopes[i].first <= one.recipe.scopes[i - 1].first) return false;
  }
  if (one.recipe.loss.size() < static_cast<size_t>(one.recipe.training.turns)) return false;
  return judge_apart([&] { return one; }).verdict == Verdict::kFailed;
}

bool shrink_once(Case& failing) {
  const auto keep = [&](const Case& smaller) {
    const bool fails = still_fails(smaller);
    if (fails) failing = smaller;
    return fails;
  };
  bool changed = false;
  for (size_t i = failing.recipe.nodes.size(); i-- > 0;) {
    if (i >= failing.recipe.nodes.size()) continue;
    changed |= keep(without_node(failing, i)) || keep(past_node(failing, i));
  }
  for (size_t i = failing.recipe.loss.size(); i-- > 0 && failing.recipe.loss.size() > 1;) {
    Case smaller = failing;
    smaller.recipe.loss.erase(smaller.recipe.loss.begin() + static_cast<std::ptrdiff_t>(i));
    changed |= keep(smaller);
  }
  for (size_t i = failing.recipe.leaves.size(); i-- > 0;) {
    changed |= keep(without_leaf(failing, i));
  }
  return changed;
}

}  // namespace

Case shrink(Case failing) {
  const auto try_with = [&](auto change) {
    Case smaller = failing;
    change(smaller);
    if (still_fails(smaller)) failing = smaller;
  };
  try_with([](Case& one) { one.recipe.metrics.clear(); });
  try_with([](Case& one) { one.recipe.training.events.clear(); });
  try_with([](Case& one) { one.recipe.training.turns = 1; });
  try_with([](Case& one) { one.recipe.training.optimizer = "sgd"; });
  try_with([](Case& one) { one.recipe.training.weight_decay = 0; });
  try_with([](Case& one) { one.recipe.training.two_groups = false; });
  try_with([](Case& one) { one.recipe.training.rows.resize(1); });
  try_with([](Case& one) { one.variant.clip_norm(0).clip_value(0); });
  try_with([](Case& one) { one.variant.steps(1); });
  for (int round = 0; round < 4 && shrink_once(failing); ++round) {
  }
  return failing;
}

}  // namespace epl::fuzz

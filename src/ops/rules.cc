#include "ops/rules.h"

#include <map>

#include "base/check.h"

namespace epl {
namespace {

constexpr Rules (*kFamilies[])() = {
    product_rules,    view_rules,      pointwise_rules, reduction_rules,   softmax_rules,
    class_loss_rules, pair_loss_rules, norm_rules,      convolution_rules, embedding_rules,
    gather_rules,     index_rules,     gating_rules,    join_rules,        random_rules,
    creation_rules,   attention_rules,
};

std::map<std::string, const OpRule*> rules_by_name() {
  std::map<std::string, const OpRule*> by_name;
  for (const OpRule* rule : all_rules()) {
    const bool first = by_name.emplace(rule->op, rule).second;
    EPL_ASSERT(first, concat(rule->op, " has two rows"));
  }
  return by_name;
}

}  // namespace

std::vector<const OpRule*> all_rules() {
  std::vector<const OpRule*> rules;
  for (const auto& family : kFamilies) {
    for (const OpRule& rule : family()) rules.push_back(&rule);
  }
  return rules;
}

const OpRule* find_rule(const c10::OperatorHandle& op) {
  static const auto* const by_name =
      new std::map<std::string, const OpRule*>(rules_by_name());  // never destroyed
  const auto found = by_name->find(c10::toString(op.operator_name()));
  return found == by_name->end() ? nullptr : found->second;
}

}  // namespace epl

#include "ops/rules.h"

#include <map>

#include "base/check.h"

namespace epl {
namespace {

constexpr Rules (*kFamilies[])() = {
    product_rules,    view_rules,      pointwise_rules, reduction_rules,   softmax_rules,
    class_loss_rules, pair_loss_rules, norm_rules,      convolution_rules, image_rules,
    recurrent_rules,  matrix_rules,    embedding_rules, gather_rules,      index_rules,
    gating_rules,     join_rules,      random_rules,    creation_rules,    attention_rules,
    whole_rules,
};

using RowsByName = std::map<std::string, const OperatorRow*>;

const RowsByName& rows_by_name() {
  static const auto* const rows = [] {
    auto* by_name = new RowsByName();  // never destroyed
    for (const OperatorRow* row : all_rows()) {
      const bool first = by_name->emplace(row->op, row).second;
      EPL_ASSERT(first, concat(row->op, " has two rows"));
    }
    return by_name;
  }();
  return *rows;
}

// The first row of each name, whatever its overload.
const RowsByName& first_rows() {
  static const auto* const rows = [] {
    auto* by_name = new RowsByName();  // never destroyed
    for (const OperatorRow* row : all_rows()) {
      const std::string full = row->op;
      by_name->emplace(full.substr(0, full.find('.')), row);
    }
    return by_name;
  }();
  return *rows;
}

const OperatorRow* look_up(const RowsByName& rows, const std::string& name) {
  const auto found = rows.find(name);
  return found == rows.end() ? nullptr : found->second;
}

}  // namespace

std::vector<const OperatorRow*> all_rows() {
  std::vector<const OperatorRow*> rows;
  for (const auto& family : kFamilies) {
    for (const OperatorRow& row : family()) rows.push_back(&row);
  }
  return rows;
}

std::vector<const OperatorRow*> all_rules() {
  std::vector<const OperatorRow*> rules;
  for (const OperatorRow* row : all_rows()) {
    if (row->has_rule()) rules.push_back(row);
  }
  return rules;
}

const OperatorRow* find_row(const c10::OperatorHandle& op) {
  return look_up(rows_by_name(), c10::toString(op.operator_name()));
}

const OperatorRow* find_rule(const c10::OperatorHandle& op) {
  const OperatorRow* row = find_row(op);
  return row != nullptr && row->has_rule() ? row : nullptr;
}

const OperatorFacts* find_facts(const c10::OperatorHandle& op) {
  const OperatorRow* row = find_row(op);
  if (row == nullptr) {
    std::string name = op.operator_name().name;
    if (name.back() == '_') name.pop_back();
    row = look_up(first_rows(), name);
  }
  return row == nullptr ? nullptr : &row->facts;
}

}  // namespace epl

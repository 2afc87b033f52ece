#include <gtest/gtest.h>

#include <algorithm>

#include "ir/text.h"
#include "ops/facts.h"
#include "ops/rule.h"

namespace epl {
namespace {

auto known_operator(const std::string& full) {
  const size_t dot = full.find('.');
  const std::string overload = dot == std::string::npos ? "" : full.substr(dot + 1);
  return c10::Dispatcher::singleton().findSchema({full.substr(0, dot), overload});
}

const OperatorFacts& facts_of(const std::string& full) {
  return *find_facts(known_operator(full).value());
}

Graph step_with(const std::string& node) {
  return parse_graph("%0: f32[2,3] = input 0\n%1: f32[3] = state \"s\"\n" + node +
                     " {forward}\nreturn loss %0\n");
}

TEST(OperatorRows, SayTheirPrecision) {
  for (const OperatorRow* row : all_rows()) {
    EXPECT_NE(row->facts.precision, Precision::kUnsaid) << row->op;
  }
}

// A row and the schema say the same of a generator.
TEST(OperatorRows, DrawByAnArgumentWhereTheOperatorHasOne) {
  for (const OperatorRow* row : all_rows()) {
    const auto op = known_operator(row->op);
    if (!op) continue;  // another LibTorch has it, or the row is for all overloads
    const auto& arguments = op->schema().arguments();
    const bool takes = std::any_of(arguments.begin(), arguments.end(),
                                   [](const auto& each) { return each.name() == "generator"; });
    EXPECT_EQ(row->facts.drawn.kind == Draws::Kind::kArgument, takes) << row->op;
  }
}

// What a schema calls a view costs nothing.
TEST(OperatorRows, CallViewsWhatTheSchemaCallsSo) {
  for (const OperatorRow* row : all_rows()) {
    const auto op = known_operator(row->op);
    if (!op || op->schema().returns().empty()) continue;
    const auto* alias = op->schema().returns()[0].alias_info();
    const bool shows = alias != nullptr && !alias->isWrite();
    EXPECT_TRUE(!shows || row->facts.has(OperatorTrait::kView)) << row->op;
  }
}

TEST(OperatorRows, ServeOverloadsAndWritesInPlaceOfTheirName) {
  EXPECT_EQ(facts_of("aten::add_.Tensor").precision, Precision::kWidest);
  EXPECT_EQ(facts_of("aten::addmm_").cost.kind, OperatorCost::Kind::kProduct);
  EXPECT_EQ(facts_of("aten::sum.IntList_out").precision, Precision::kFloat32);
  EXPECT_EQ(facts_of("aten::empty.out").cost.kind, OperatorCost::Kind::kFree);
  EXPECT_EQ(find_facts(known_operator("aten::histc").value()), nullptr);
}

TEST(OperatorRows, WithoutARuleAreNotCut) {
  const auto equal = known_operator("aten::equal").value();
  EXPECT_NE(find_row(equal), nullptr);
  EXPECT_EQ(find_rule(equal), nullptr);
}

TEST(IsRepeatable, WhatGivesTheSameAgainAndDoesNothingElse) {
  const std::string norm = "%2: f32[2,3], %3: f32[3], %4: f32[3] = aten::native_batch_norm";
  const std::pair<std::string, bool> table[] = {
      {"%2: f32[2,3] = aten::relu(%0)", true},
      {"%2: f32[2,3] @%0 = aten::relu_(%0)", false},
      {"%2: f32[2,3] = aten::bernoulli.p(%0, 0.5, none)", false},
      {norm + "(%0, _, _, %1, %1, true, 0.1, 1e-05)", true},  // without its running statistics
      {norm + "(%0, _, _, %1, %1, false, 0.1, 1e-05)", true},
      {"%2: f32[2,3] = epl::all_reduce(%0, \"sum\", \"part\")", false},
      {"%2: f32[2,3] = aten::empty_like(%0, none, none, none, none, none)", false},
      {"%2: i64[2,2] = aten::nonzero(%0)", false},
      {"%2: f32[3,2]{1,3} @%0 = aten::t(%0)", false},  // it has no memory of its own
  };
  for (const auto& [node, repeatable] : table) {
    const Graph graph = step_with(node);
    EXPECT_EQ(is_repeatable(graph, graph.nodes[0]), repeatable) << node;
  }
}

TEST(RepeatedForm, OfBatchNormWritesNoStatistics) {
  const Graph graph = step_with(
      "%2: f32[2,3], %3: f32[3], %4: f32[3] = "
      "aten::native_batch_norm(%0, _, _, %1, %1, true, 0.1, 1e-05)");
  EXPECT_EQ(written_arguments(graph.nodes[0]).size(), 2);
  EXPECT_TRUE(written_arguments(repeated_form(graph.nodes[0])).empty());
}

TEST(IsView, WhatOnlyShowsMemory) {
  const std::pair<std::string, bool> table[] = {
      {"%2: f32[3,2]{1,3} @%0 = aten::t(%0)", true},
      {"%2: f32[3,2]{1,3} @%0 = aten::t_(%0)", true},
      {"%2: f32[2,3] @%0 = aten::relu_(%0)", false},
      {"%2: f32[2,3] = aten::relu(%0)", false},
  };
  for (const auto& [node, view] : table) {
    const Graph graph = step_with(node);
    EXPECT_EQ(is_view(graph, graph.nodes[0]), view) << node;
  }
}

}  // namespace
}  // namespace epl

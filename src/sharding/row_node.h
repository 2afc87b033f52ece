// What one operator makes of rows: for rows.cc alone.
//
//   %0: f32[8,4] = input 0                  rows in dim 0
//   %1: f32[2,4] = parameter "weight"       the same for all rows
//   %2 = aten::t(%1)                        the same
//   %3 = aten::mm(%0, %2)                   rows in dim 0: the index m of mk, kn -> mn
//   %4 = aten::sum(%3)                      a sum over rows
//   %5 = aten::div.Scalar(%4, 8)            a mean: 8 is the number of rows
//
// With W what the whole batch of n rows gives and s_1 ... s_n what each row alone would give:
//   same .... W = n^power * s_i        power 1: the number of rows
//   rows .... W is the s_i one behind the other in `dim`, each times n^power
//   sum ..... W = n^power * (s_1 + ... + s_n)      power 0: a sum over rows, -1: a mean
//   mixed ... nothing of that: rows look at each other, or nobody knows
// Batch norm in training mode counts as rows (it normalises over what its device sees), and so do
// operators that draw random numbers: both are documented exceptions.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ops/rule.h"

namespace epl {

struct RowKind {
  enum class Kind : uint8_t {
    kSame,
    kRows,
    kNumbers,  // 0, 1, 2, ... for the rows: of use as an index only
    kSum,
    kMixed,
  };

  Kind kind = Kind::kSame;
  int power = 0;
  int dim = 0;          // kRows
  int64_t outer = 1;    // kRows: the dimension is [outer, rows, inner]; 0: all rows are alike
  int reason = -1;      // kMixed: index into the reasons of the step
  bool zero = false;    // kSame: 0, which is any sum of nothing
  int64_t terms = 0;    // kSum: elements that were added up
  bool square = false;  // kSum: they had as many columns as rows, or another such dimension

  static RowKind same(int power = 0) { return {Kind::kSame, power}; }
  static RowKind rows(int dim, int64_t outer = 1, int power = 0) {
    return {Kind::kRows, power, dim, outer};
  }
  static RowKind sum(int power = 0, int64_t terms = 0, bool square = false) {
    return {Kind::kSum, power, 0, 1, -1, false, terms, square};
  }
  static RowKind numbers() { return {Kind::kNumbers}; }
  static RowKind mixed(int reason) { return {Kind::kMixed, 0, 0, 1, reason}; }

  bool is_same() const { return kind == Kind::kSame; }
  bool is_rows() const { return kind == Kind::kRows; }
  bool is_sum() const { return kind == Kind::kSum; }
  bool is_mixed() const { return kind == Kind::kMixed; }
};

// A node with what it reads.
struct RowNode {
  const Graph& graph;
  const Node& node;             // its pure variant
  int64_t rows;                 // of the batch
  std::vector<RowKind> inputs;  // in the order of for_each_input
  int parts = 0;                // how many such batches a step has; 0: it does not matter
};

// Of each output, in the order of for_each_output; or why it is none of that, as the end of a
// sentence that starts with the operator.
using RowOutcome = std::variant<std::vector<RowKind>, std::string>;

// By the rules of ops/rule.h.
RowOutcome rows_by_rule(const RowNode& at);

// Of operators whose rules speak of cutting, which is less than what rows can go through: views
// that merge rows with other dimensions, halves of a batch put together, tensors made for so many
// rows. None: rows_by_rule() has the word.
std::optional<RowOutcome> rows_of_shape(const RowNode& at);

// Of losses and norms, and of operators without a rule that keep rows apart.
std::optional<RowOutcome> rows_of_layer(const RowNode& at);

// --- what they share ---------------------------------------------------------------------------

// The first dimension with as many elements as the batch has rows, or kNone. It stands for the rows
// in what is made from sizes alone; that another dimension is as long by chance cannot be told.
constexpr int kNone = -1;
int dim_of_rows(const RowNode& at, ValueId id);

std::vector<RowKind> for_all_outputs(const RowNode& at, RowKind kind);

}  // namespace epl

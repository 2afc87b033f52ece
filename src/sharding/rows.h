// What it means for each value of a step that the rows of its batch are cut into slices, one a
// device: read from the graph, by the rules of its operators (ops/rule.h), never from numbers.
//
//   %0: f32[8,4] = input 0                  rows in dim 0
//   %1: f32[2,4] = parameter "weight"       the same on all slices
//   %2 = aten::t(%1)                        the same
//   %3 = aten::mm(%0, %2)                   rows in dim 0: the index m of mk, kn -> mn
//   %4 = aten::sum(%3)                      a sum over rows
//   %5 = aten::div.Scalar(%4, 8)            a mean: recorded with half of the rows it says 4
//
// With W what the whole batch gives and s_1 ... s_k what the slices give:
//   same .... W = k^power * s_i        power 1: the number of rows
//   rows .... W is the s_i one behind the other in `dim`, each times k^power
//   sum ..... W = k^power * (s_1 + ... + s_k)      power 0: a sum over rows, -1: a mean
//   mixed ... nothing of that: rows look at each other, or nobody knows
// Batch norm in training mode counts as rows (it normalises over what its device sees), and so do
// operators that draw random numbers: both are documented exceptions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace epl {

struct RowKind {
  enum class Kind : uint8_t {
    kSame,
    kRows,
    kNumbers,  // 0, 1, 2, ... for the rows of the slice: of use as an index only
    kSum,
    kMixed,
  };

  Kind kind = Kind::kSame;
  int power = 0;
  int dim = 0;          // kRows
  int64_t outer = 1;    // kRows: the dimension is [outer, slices, inner]; 0: all rows are alike
  int reason = -1;      // kMixed: index into RowsOfStep::reasons
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

// One step, pure (passes/purify.h), recorded with all rows and with those of one slice.
struct RowQuestion {
  const Graph& whole;
  // The same nodes with 1/slices of the rows. Null: there is only one recording. Rows are then dim
  // 0 of the batch, `slices` of them, and a sum that is divided by their number is taken for a
  // mean.
  const Graph* slice = nullptr;
  int slices = 2;
  // By node: it runs on slices; others see all rows, whatever they do with them. Empty: all do.
  std::vector<bool> sliced = {};
  // The backward pass is followed as well. LibTorch's own of a forward pass whose rows are apart
  // keeps them apart; a hook or a torch::autograd::Function may do anything.
  bool gradients = false;
  // With one recording: how many such batches a step has. 0: it does not matter.
  int parts = 0;
};

struct RowsOfStep {
  std::vector<RowKind> values;       // by ValueId; what neither result nor state needs is kSame
  std::vector<std::string> reasons;  // why something is mixed
  // Why slices do not read back or write what the whole would: of values read into C++, and of
  // state. Empty: they do.
  std::string wrong_effect;
};

RowsOfStep follow_rows(const RowQuestion& question);

// A loss that divides by the number of targets that count, those that are not its ignore_index.
bool counts_targets(const Node& node);

enum class OverRows : uint8_t {
  kMean,  // or the same on all slices
  kSum,
  kRows,     // a row for each, one behind the other in a dimension
  kNeither,  // `why` says it
};

// What a result of the step is, in terms of its rows.
struct RowResult {
  OverRows kind = OverRows::kMean;
  int dim = -1;     // kRows
  std::string why;  // kNeither
};
RowResult result_over_rows(const RowsOfStep& rows, const Graph& graph, ValueId value);

// Whether the loss of a step is a mean or a sum over the rows of its batch, as far as one recording
// tells. The step has so many parts like it.
RowResult loss_over_rows(const Graph& pure, int parts = 0);

// Metrics of it that have a row for each of the batch.
std::vector<const Metric*> metrics_of_rows(const Graph& pure);

}  // namespace epl

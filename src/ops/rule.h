// What EPL knows of an operator, in one row: its facts (ops/operator_facts.h: precision, cost,
// randomness, what it is to memory), then its rule, along which indices it may be cut over devices.
//
//   {"aten::mm", in_lower().product(0), "mk, kn", "mn", Linear::kOneInput}
//
// A rule has one word for each tensor that an operator reads and makes, in the order of
// for_each_input and for_each_output (an absent optional tensor takes its word away); the same
// letter is the same index.
//   letter in an output ......... may be cut; the output is cut alike
//   letter missing in an output . is summed there; cutting it makes that output a partial sum
//   "o=c" for an output ......... unless c stands behind '=': then it is whole where c is cut
//   letter with '!' ............. stays whole
//   letter with '*' ............. may be cut, but not by the operator alone: the row's `expand`
//                                 says what runs then (softmax over cut classes)
//   "..." ....................... all other dimensions, aligned at the right as broadcasting does;
//                                 dimensions of size 1 that are broadcast have no letter ('1')
// Where the dimensions depend on arguments (sum, transpose, view, cat), `pattern` makes the words.
// `linear`: which inputs may be partial sums and hand that on.
//
// An operator without a rule runs whole on every device. RulesTest.EveryRowHoldsNumerically runs
// each rule cut and whole, and compares; RulesTest.HoldForAllOperatorsOfTheModels fails where a
// model calls an operator without a row.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "layout/layout.h"
#include "ops/emit.h"
#include "ops/operator_facts.h"

namespace epl {

enum class Linear : uint8_t {
  kNo,
  kFirst,     // in its first tensor, the others whole: most backward operators
  kOneInput,  // in each of its tensors, one at a time: products
  kAll,       // in all of them together: sums, views
};

// How the tensors that an operator reads have to lie. A device's piece that lies otherwise, in a
// larger tensor or transposed, is copied first.
enum class Wants : uint8_t {
  kAnyPlaces,
  kDense,      // without gaps: kernels that look at no strides (the statistics of a layer norm)
  kDenseRows,  // the elements of the last dimension side by side: attention
};

// Sets of inputs (counted as for_each_input does) that may be partial sums together.
using InputSets = std::vector<std::vector<size_t>>;

// Among the letters of Pattern::expanded: `expand` is asked as well where nothing is cut.
inline constexpr char kNothingCut = '0';

// The words of one node.
struct Pattern {
  std::vector<std::string> inputs;  // '1' for a dimension that is broadcast and cannot be cut
  std::vector<std::string> outputs;
  std::string whole;     // letters that stay whole
  std::string expanded;  // letters that `expand` cuts

  // For each output the letters that it lacks and that leave it whole where they are cut. Outputs
  // at the end may be left out.
  std::vector<std::string> same = {};

  // Partial sums on the way in make partial sums of all outputs. Where it is left out, the row's
  // `linear` says it.
  std::optional<InputSets> partial = {};
};

// One way to run a node on several devices: how its tensors lie before and after.
struct Cut {
  char letter = 0;              // which index is cut; 0: none (all whole, or partial sums)
  std::vector<Layout> inputs;   // in the order of for_each_input
  std::vector<Layout> outputs;  // in the order of for_each_output
};

// A node as device `part` of `parts` runs it.
struct LocalNode {
  const Graph& graph;  // with whole sizes
  const Node& node;
  const Cut& cut;
  Axis parts = 1;
  int part = 0;
  std::vector<ValueId> inputs;  // what it reads in the graph of the device

  // Sizes of its output number `index` on this device.
  std::vector<int64_t> output_sizes(size_t index) const;
};

struct OperatorRow {
  const char* op;  // "aten::mm", "aten::sum.dim_IntList"
  OperatorFacts facts;
  const char* inputs = "";
  const char* outputs = "";
  Linear linear = Linear::kNo;

  // No words: this node cannot be cut at all.
  using MakePattern = std::optional<Pattern> (*)(const Graph& graph, const Node& node);
  MakePattern pattern = nullptr;

  // Constants that differ on a device (sizes of the result, the number of classes): changes the
  // arguments of `local`, which holds the device's values already.
  using Localize = void (*)(const LocalNode& at, Node& local);
  Localize localize = nullptr;

  // What stands for the node where a letter of Pattern::expanded is cut. Returns the outputs in
  // the order of for_each_output.
  using Expand = std::vector<ValueId> (*)(const LocalNode& at, Emitter& to);
  Expand expand = nullptr;

  Wants wants = Wants::kAnyPlaces;

  bool has_rule() const { return pattern != nullptr || *inputs != 0 || *outputs != 0; }
};

std::vector<const OperatorRow*> all_rows();
std::vector<const OperatorRow*> all_rules();  // the rows that have one

// The row of this very overload. Null: none, or one without a rule.
const OperatorRow* find_row(const c10::OperatorHandle& op);
const OperatorRow* find_rule(const c10::OperatorHandle& op);

// What is known of the operator. An overload without a row, and a variant that writes in place, has
// the facts of the first row of its name: they do the same work. None where no row has the name.
const OperatorFacts* find_facts(const c10::OperatorHandle& op);

// The words of a node, none where it has no rule or cannot be cut.
std::optional<Pattern> pattern_of(const Graph& graph, const Node& node);

// All legal ways to run the node with something cut or partial, in a fixed order: by letters in the
// order of their first appearance, then partial sums. A letter is cut only where each device has an
// element of it, and the same share, in all tensors that have it. That all is whole is always
// legal, too, and not listed.
std::vector<Cut> cuts_of(const Graph& graph, const Node& node, const Axis& parts);

// Appends what the device runs for the node, with the arguments that fit its sizes. Returns the
// outputs in the order of for_each_output.
std::vector<ValueId> emit_local(const LocalNode& at, Emitter& to);

}  // namespace epl

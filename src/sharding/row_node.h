// What one operator makes of rows: for rows.cc alone.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ops/rule.h"
#include "sharding/rows.h"

namespace epl {

// A node with what it reads, in both recordings.
struct RowNode {
  const Graph& whole;
  const Node& node;    // its pure variant
  const Graph* slice;  // null: there is one recording
  const Node* slice_node;
  int slices;
  std::vector<RowKind> inputs;  // in the order of for_each_input
  int parts = 0;                // RowQuestion::parts
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

// The one dimension that is `slices` times as long with all rows. kNone: none, kSeveral: more than
// one, or by another factor. With one recording: the first one with as many elements as rows.
constexpr int kNone = -1;
constexpr int kSeveral = -2;
int grown_dim(const RowNode& at, ValueId id);

// The power of `slices` that two numbers are apart; none where they are not.
std::optional<int> power_between(double whole, double slice, int slices);

// Constants that are other numbers with fewer rows, by argument; lists of sizes do not count.
std::vector<size_t> other_numbers(const RowNode& at);
std::string says_other_numbers(const RowNode& at, size_t argument);

bool same_constant(const RowNode& at, size_t argument);
std::vector<RowKind> for_all_outputs(const RowNode& at, RowKind kind);

}  // namespace epl

// What rows of the table of rules share: reading the arguments of nodes, making words for
// dimensions, and nodes on pieces of an index.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "layout/shard.h"
#include "ops/rule.h"

namespace epl {

using Sizes = std::vector<int64_t>;

// --- arguments by position --------------------------------------------------------------------
bool has_tensor(const Node& node, size_t argument);  // false: an optional one is absent
ValueId tensor_at(const Node& node, size_t argument);
std::optional<size_t> argument_named(const Node& node, const std::string& name);
int64_t int_at(const Node& node, size_t argument);
Sizes ints_at(const Node& node, size_t argument);  // none: no numbers
void set(Node& node, size_t argument, c10::IValue constant);

std::vector<ValueId> inputs_of(const Node& node);   // in the order of for_each_input
std::vector<ValueId> outputs_of(const Node& node);  // in the order of for_each_output
const Sizes& sizes_of(const Graph& graph, ValueId id);
const Sizes& input_sizes(const Graph& graph, const Node& node, size_t argument);

// --- dimensions and words ---------------------------------------------------------------------
size_t wrap_dim(int64_t dim, size_t rank);  // -1 is the last one
std::vector<size_t> wrap_dims(const Sizes& dims, size_t rank);

std::string letters(size_t count, char first = 'a');  // "abc"
inline constexpr char kIndexed = 'D';                 // the dimension that numbers count

// The word of a tensor that is broadcast to one of `word` and `sizes`, aligned at the right.
std::string broadcast_word(const Sizes& from, const std::string& word, const Sizes& sizes);

// One tensor in, one out.
Pattern one_to_one(std::string from, std::string to);

// The words of "...": all tensors broadcast to the output, which has a letter for each dimension.
Pattern pointwise_pattern(const Graph& graph, const Node& node);

// All tensors have the same dimensions but for the last `trailing` ones, which stay whole: what
// works on pictures, or on matrices, by itself.
Pattern leading_dims(const Graph& graph, const Node& node, size_t trailing);

// One word for each tensor argument of the schema; those of absent ones fall out.
void add_input(Pattern& pattern, const Node& node, size_t argument, const std::string& word);

// The word without one of its dimensions; with one that is never cut.
std::string without(std::string word, size_t dim);
std::string with_whole(std::string word, size_t dim);

// --- localize and expand ----------------------------------------------------------------------
// The node with the values of the device and no results.
Node local_copy(const LocalNode& at);

// What this device has of input or output `index` (0-based, for_each_input and for_each_output).
Shard shard_of_input(const LocalNode& at, size_t index);
Shard shard_of_output(const LocalNode& at, size_t index);

// Sizes of input `index` on this device.
Sizes input_sizes_here(const LocalNode& at, size_t index);

// Operators on values, in few words.
class Expression {
 public:
  explicit Expression(Emitter& to) : to_(to) {}

  ValueId unary(const std::string& op, ValueId x) { return to_.call(op, {value_argument(x)}); }
  ValueId binary(const std::string& op, ValueId x, ValueId y) {
    return to_.call(op, {value_argument(x), value_argument(y)});
  }
  ValueId scalar(const std::string& op, ValueId x, c10::IValue y) {
    return to_.call(op, {value_argument(x), constant_argument(std::move(y))});
  }
  ValueId zero_where(ValueId mask, ValueId x);
  ValueId over(const std::string& op, ValueId x, Sizes dims, bool keep_dims);  // sum, amax
  ValueId all_reduce(ValueId x, const char* op);
  ValueId converted(ValueId x, c10::ScalarType dtype);
  c10::ScalarType dtype(ValueId x) { return to_.graph().value(x).type.dtype; }
  const Sizes& sizes(ValueId x) { return sizes_of(to_.graph(), x); }

  // What indices mean: numbers below the whole, else it is an error when the step runs.
  struct Range {
    Shard numbers;                        // those of this device
    std::optional<int64_t> ignored = {};  // falls into no piece
    bool from_end = false;                // numbers below 0 count from the end of the whole
  };
  // Indices of the whole as indices of a piece: which of them fall into it, and those, 0 for
  // others.
  struct Within {
    ValueId inside;
    ValueId index;
  };
  Within within(ValueId index, const Range& range);
  // The same with the number behind the last one for those outside.
  ValueId within_or_behind(ValueId index, const Range& range);
  ValueId one_longer(ValueId x, size_t dim);             // one more element at the end
  ValueId first(ValueId x, size_t dim, int64_t length);  // a view of the first elements
  // A view of rank `rank` with the dimensions of x from `dim` on, and others of size 1.
  ValueId spread(ValueId x, size_t dim, size_t rank);

 private:
  Emitter& to_;
};

}  // namespace epl

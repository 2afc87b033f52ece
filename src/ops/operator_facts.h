// What a row of the table of operators says besides how the operator may be cut: in which precision
// it runs, what it costs, what it draws, and what its result is to its arguments.
//
//   {"aten::mm", in_lower().product(0), "mk, kn", "mn", Linear::kOneInput}
//   {"aten::relu", in_widest().pointwise(), "...", "..."}
//   {"aten::bernoulli.p", in_widest().seconds_each(7e-9).draws(), "...", "..."}
//
// Facts are values: each word gives a copy that says one thing more. What a schema says (which
// arguments are written, whether there is a generator) is read from the schema (ops/facts.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace epl {

// The type that an operator computes in where the step mixes precisions. As LibTorch's autocast has
// it for bfloat16 on CPUs. Where that leaves an operator to kernels that sum in float32 by
// themselves (sum, softmax, the norms) or to its inputs (exp, log, pow), and the lists for other
// devices say float32, so does the row. A backward operator goes with its forward.
enum class Precision : uint8_t {
  kUnsaid,
  kLower,    // products of matrices: the most to gain, and what is summed has the wider type
  kFloat32,  // reductions, losses, exponentials and logarithms: their inputs are widened
  kWidest,   // as the widest of its inputs; one that reads no tensor as its arguments say
  kAsGiven,  // in what it gets: its kernels take several types at a time
};

// What bounds the time of an operator. cost/node_cost.h turns it into seconds. Arithmetic outweighs
// traffic where LibTorch's generator gives one number after another, where exponentials are
// computed, where a tensor is gone through several times, and where indices or masks are followed.
struct OperatorCost {
  enum class Kind : uint8_t {
    kTraffic,      // the bytes that it reads and writes
    kFree,         // nothing is read or written: views, memory without contents
    kGather,       // reads as many elements of its first argument as it gives
    kElements,     // arithmetic for each element of the largest tensor outweighs the traffic
    kProduct,      // of matrices
    kConvolution,  // the weight stands behind the input
    kAttention,    // the key stands behind the query
    kRecurrent,    // the input stands first, its two weights behind it
  };

  Kind kind = Kind::kTraffic;
  // The argument whose last dimension a product sums over, the input of a convolution, the query.
  size_t argument = 0;
  size_t flag = 0;       // the argument `transposed` of a convolution, `is_causal` of an attention
  double products = 1;   // of the size of a forward one
  double slower_by = 1;  // than a large product: those of a batch are small ones
  double seconds_per_element = 0;  // kElements, on a core as DeviceSpeed has it by default
};

// How a random operator comes by a generator that the caller chooses.
struct Draws {
  enum class Kind : uint8_t {
    kNothing,
    kArgument,  // it has one for it
    kOverload,  // the overload `name` has one, at `position`
    // op(self, numbers ..., options of empty_like) is fill(empty_like(self, options), begin,
    // numbers ... or end), and the fill has one.
    kFilling,
    kProcess,  // in no way: it draws from the generator of the process
  };

  Kind kind = Kind::kNothing;
  const char* name = "";  // the overload; of a filling that of `fill`
  size_t position = 0;
  const char* fill = "";
  size_t numbers = 0;  // arguments between `self` and the options
  double begin = 0;
  double end = 0;
};

enum class OperatorTrait : uint8_t {
  kPointwise = 1,      // its result may lie where one of its inputs lies
  kChangesSome = 2,    // gives its first argument with some elements changed
  kUninitialized = 4,  // makes a tensor without contents
  kView = 8,           // its results show memory of its first argument
  kReshapes = 16,      // the elements of its first argument in their order, in other sizes
  kCollective = 32,    // runs on all devices of a group together
  kZeroOrOne = 64,     // each element of its result is 0 or 1
};

struct OperatorFacts {
  Precision precision = Precision::kUnsaid;
  OperatorCost cost = {};
  Draws drawn = {};
  uint8_t traits = 0;

  constexpr bool has(OperatorTrait trait) const {
    return (traits & static_cast<uint8_t>(trait)) != 0;
  }
  constexpr OperatorFacts with(OperatorTrait trait) const {
    OperatorFacts facts = *this;
    facts.traits = static_cast<uint8_t>(facts.traits | static_cast<uint8_t>(trait));
    return facts;
  }
  constexpr OperatorFacts costing(const OperatorCost& given) const {
    OperatorFacts facts = *this;
    facts.cost = given;
    return facts;
  }
  constexpr OperatorFacts drawing(const Draws& given) const {
    OperatorFacts facts = *this;
    facts.drawn = given;
    return facts;
  }

  constexpr OperatorFacts pointwise() const { return with(OperatorTrait::kPointwise); }
  constexpr OperatorFacts changes_some() const { return with(OperatorTrait::kChangesSome); }
  constexpr OperatorFacts zero_or_one() const { return with(OperatorTrait::kZeroOrOne); }
  constexpr OperatorFacts collective() const { return with(OperatorTrait::kCollective); }
  constexpr OperatorFacts reshapes() const { return view().with(OperatorTrait::kReshapes); }
  constexpr OperatorFacts view() const {
    return with(OperatorTrait::kView).costing({OperatorCost::Kind::kFree, 0, 0, 0, 1, 0});
  }
  constexpr OperatorFacts uninitialized() const {
    return with(OperatorTrait::kUninitialized).costing({OperatorCost::Kind::kFree, 0, 0, 0, 1, 0});
  }

  constexpr OperatorFacts gathers() const {
    return costing({OperatorCost::Kind::kGather, 0, 0, 0, 1, 0});
  }
  constexpr OperatorFacts seconds_each(double seconds) const {
    return costing({OperatorCost::Kind::kElements, 0, 0, 0, 1, seconds});
  }
  constexpr OperatorFacts product(size_t left, double slower_by = 1) const {
    return costing({OperatorCost::Kind::kProduct, left, 0, 1, slower_by, 0});
  }
  constexpr OperatorFacts convolves(size_t input, size_t transposed, double products) const {
    return costing({OperatorCost::Kind::kConvolution, input, transposed, products, 1, 0});
  }
  constexpr OperatorFacts attends(size_t query, size_t is_causal, double products) const {
    return costing({OperatorCost::Kind::kAttention, query, is_causal, products, 1, 0});
  }
  constexpr OperatorFacts recurs(double products) const {
    return costing({OperatorCost::Kind::kRecurrent, 0, 0, products, 1, 0});
  }

  constexpr OperatorFacts draws() const {
    return drawing({Draws::Kind::kArgument, "", 0, "", 0, 0, 0});
  }
  constexpr OperatorFacts draws_by_overload(const char* name, size_t position) const {
    return drawing({Draws::Kind::kOverload, name, position, "", 0, 0, 0});
  }
  constexpr OperatorFacts draws_by_filling(const char* fill, const char* overload, size_t numbers,
                                           double begin, double end) const {
    return drawing({Draws::Kind::kFilling, overload, 0, fill, numbers, begin, end});
  }
  constexpr OperatorFacts draws_from_process() const {
    return drawing({Draws::Kind::kProcess, "", 0, "", 0, 0, 0});
  }
};

constexpr OperatorFacts in_lower() { return {Precision::kLower, {}, {}, 0}; }
constexpr OperatorFacts in_float32() { return {Precision::kFloat32, {}, {}, 0}; }
constexpr OperatorFacts in_widest() { return {Precision::kWidest, {}, {}, 0}; }
constexpr OperatorFacts as_given() { return {Precision::kAsGiven, {}, {}, 0}; }

}  // namespace epl

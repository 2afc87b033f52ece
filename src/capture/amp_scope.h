// AmpScope: while it lives, what this thread calls computes in mixed precision (amp.level = "O1").
//
//   {
//     const AmpScope scope(at::kBFloat16);
//     loss = step(batch);  // products in bfloat16, sums and losses in float32
//   }
//   loss.backward();  // autograd casts back: parameters have gradients of their own type
//
// In which type an operator computes stands in its row (Precision, ops/operator_facts.h). Before it
// runs, tensors of another one are cast, above autograd: a cast is an operator of the step like any
// other (aten::_to_copy), with a gradient, and a recorder sees it. What a composite operator is
// made of is seen in turn: so the products inside of an LSTM are. What a kernel calls is not, as a
// recorder does not see it either.
//
// As in LibTorch's autocast, tensors of double precision are left as they are, what is written in
// place keeps its type, and backward runs outside of the scope, in the types of its forward.
// Nothing is remembered from one cast to the next: passes/join_casts.h makes equal ones one.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "ops/operator_facts.h"

namespace epl {

// The casts of one call of the step function, by the operator that they were made for.
class CastLog {
 public:
  struct Kind {
    std::string op;  // "aten::linear"
    c10::ScalarType from = c10::ScalarType::Float;
    c10::ScalarType to = c10::ScalarType::Float;
    Precision list = Precision::kUnsaid;

    bool operator<(const Kind& other) const {
      return std::tie(op, from, to, list) < std::tie(other.op, other.from, other.to, other.list);
    }
  };
  struct Count {
    int64_t casts = 0;
    int64_t bytes = 0;  // that they made
  };

  void add(const Kind& kind, int64_t bytes);
  void clear() { counts_.clear(); }
  const std::map<Kind, Count>& counts() const { return counts_; }

  // A line for each kind, those with most bytes first: "aten::linear  3 casts  float32 ->
  // bfloat16 (lower)  1.5 KiB". `times`: how often a step calls the function.
  std::string str(int64_t times) const;

 private:
  std::map<Kind, Count> counts_;
};

class AmpScope {
 public:
  // `lower`: bfloat16 or float16. The log, where there is one, outlives the scope.
  explicit AmpScope(c10::ScalarType lower, CastLog* log = nullptr);
  ~AmpScope();
  AmpScope(const AmpScope&) = delete;
  AmpScope& operator=(const AmpScope&) = delete;

  c10::ScalarType lower() const { return lower_; }
  CastLog* log() const { return log_; }

 private:
  const c10::ScalarType lower_;
  CastLog* const log_;
  const AmpScope* const outer_;
  const c10::impl::IncludeDispatchKeyGuard include_;
};

}  // namespace epl

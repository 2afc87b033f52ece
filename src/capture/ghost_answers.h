// Operators that ask for contents, given a ghost: answered where the answer does not depend on
// them or the user said what they are to be taken for (plan.read_back), else refused by name.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>

#include "capture/ghost.h"

namespace epl {

// Where in the program an operator is called from.
class CallPlace {
 public:
  virtual ~CallPlace() = default;
  virtual std::string near() const = 0;       // for messages; empty: not known
  virtual bool reads_for_checks() const = 0;  // a number that is read only decides about an error
};

// A call that has a ghost among its arguments.
class GhostAnswers {
 public:
  // `first`: the place of the first argument on the stack.
  GhostAnswers(const c10::OperatorHandle& op, torch::jit::Stack& stack, size_t first,
               const CallPlace* place)
      : op_(op), stack_(stack), first_(first), place_(place) {}

  // The results; none where the operator asks for shapes alone. Masks among indices are changed
  // into numbers of places on the way.
  std::optional<torch::jit::Stack> find();

 private:
  const c10::IValue& argument(size_t index) const { return stack_[first_ + index]; }
  bool is_one() const;
  void assume(const std::string& what) const;
  c10::IValue number() const;
  bool equal() const;
  at::Tensor nonzero() const;
  at::Tensor selection() const;
  void expand_masks();

  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
  const size_t first_;
  const CallPlace* const place_;
};

// The types of all tensors among the arguments.
std::string types_of_arguments(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

// Of this thread's guard, else the defaults.
ShapeOptions current_shape_options();

// The program wants contents, and there are none.
[[noreturn]] void throw_without_contents(const std::string& what, const CallPlace* place);

}  // namespace epl

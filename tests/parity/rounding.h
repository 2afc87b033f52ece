// The undivided plain loop as the reference of programs whose rows EPL cuts.
//
// Parts of a batch are summed in another order, so bits differ. How far that may go depends on the
// program: an optimizer such as Adam makes whole steps of a gradient that is zero but for rounding.
// So the program is asked itself: the plain loop runs again from parameters that differ in their
// last places, and what that moves is what rounding may move.
#pragma once

#include <string>
#include <vector>

#include "tests/parity/parity.h"

namespace epl::parity {

// The same training without devices, micro batches and scopes.
Variant undivided(const Variant& variant);

class Rounding {
 public:
  Rounding(MakeProgram make, MakeBatch batch, const Variant& variant)
      : make_(std::move(make)), batch_(std::move(batch)), variant_(undivided(variant)) {}

  // The first tensor that is further off than rounding explains, or nothing. `except`: a name that
  // is not compared.
  std::string difference(const Trace& plain, const Trace& other, const std::string& except = "");

 private:
  double allowed(size_t step, const std::string& name, const torch::Tensor& tensor);
  void nudge();

  MakeProgram make_;
  MakeBatch batch_;
  Variant variant_;
  std::vector<Trace> nudged_;
};

// What the undivided plain loop gives, for programs whose rows are cut and that are no exception of
// docs/exactness.md: those have state, draw random numbers, sum or clip by parts.
class Undivided {
 public:
  Undivided(const MakeProgram& make, const MakeBatch& batch, const Variant& variant);
  testing::AssertionResult compare(const Trace& epl);

 private:
  Rounding rounding_;
  Trace plain_;  // empty where there is nothing to compare with
};

// All that was seen after a step, by name; the loss and the norm of gradients too.
std::map<std::string, torch::Tensor> by_name(const Snapshot& snapshot);

// max |a - b|; infinity where one is not a number.
double worst_difference(const torch::Tensor& a, const torch::Tensor& b);

}  // namespace epl::parity

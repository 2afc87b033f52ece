// The operators that random programs are made of. A kind proposes a node for the values that there
// are, and computes it. Families are drawn first and kinds within them, so that a family of many
// kinds does not push the others aside.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/fuzz/recipe.h"

namespace epl::fuzz {

class Draft;

enum class Group : uint8_t {
  kApart,      // keeps the rows of the batch apart
  kMixes,      // rows look at each other
  kState,      // writes what outlives the step
  kRandom,     // draws random numbers
  kReadsBack,  // C++ looks at values
  kLeaves,     // hooks on parameters, writes to them, a backward() of its own, shared optimizers
};

struct Kind {
  std::string name;
  Group group = Group::kApart;
  // Fills in inputs and numbers; false where no value fits.
  std::function<bool(Draft&, Node&)> propose;
  std::function<Tensors(const Call&)> compute;
};

using Family = std::vector<Kind>;

Family pointwise_kinds();
Family pair_kinds();
Family mask_kinds();
Family product_kinds();
Family norm_kinds();
Family reduction_kinds();
Family view_kinds();
Family join_kinds();
Family index_kinds();
Family write_kinds();
Family region_kinds();
Family state_kinds();
Family random_kinds();
Family mixing_kinds();
Family reading_kinds();

// All families, made once.
const std::vector<Family>& families();
// What turns values into a scalar that is a mean over rows, and those that sum over rows.
const Family& mean_losses();
const Family& sum_losses();

}  // namespace epl::fuzz

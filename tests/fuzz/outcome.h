// One random program in one mode: trained by the plain loop on whole batches, and by EPL.
#pragma once

#include <string>
#include <vector>

#include "tests/fuzz/recipe.h"
#include "tests/parity/parity.h"

namespace epl::fuzz {

// Ways to spread a program: one device, micro batches, devices with rows of their own, devices that
// share the rows of a micro batch, workers, stages of a pipeline, operators cut over devices.
const std::vector<std::string>& modes();

struct Case {
  std::string mode;
  Recipe recipe;
  parity::Variant variant;  // how EPL runs it
  int parts = 1;            // into which EPL cuts the rows of a batch
  bool sums = false;        // its loss is a sum over rows
  bool recomputes = false;  // once more with gradient checkpointing, to the same bits
  std::string str() const;
};

struct CaseOptions {
  std::string mode = "one";
  uint64_t seed = 0;
  int steps = 3;
  bool leaves = false;                          // with Group::kLeaves
  std::optional<torch::ScalarType> dtype = {};  // instead of the one that the seed gives
  bool recomputes = false;
};

Case make_case(const CaseOptions& options);

enum class Verdict : uint8_t {
  kEqual,
  kRefused,  // by an epl::Error
  kMixes,  // the plain loop itself gives something else where it cuts the rows: nothing to compare
  kIllegal,  // the plain loop throws or leaves the numbers
  kFailed,
};

struct Outcome {
  Verdict verdict = Verdict::kFailed;
  std::string text;  // why; of a refusal the whole message
};

Outcome judge(const Case& one);

// The same in a process of its own, so that a crash or a hang is an outcome too.
Outcome judge_apart(const std::function<Case()>& make);

// A smaller case that still fails, by dropping what it does not need.
Case shrink(Case failing);

}  // namespace epl::fuzz

// Strategies: how a part of the model is spread over devices, said by a scope around that part.
//
//   torch::Tensor forward(torch::Tensor x) {
//     { epl::With stage(epl::replicate(1, "stage_0")); x = part1->forward(x); }
//     { epl::With stage(epl::replicate(1, "stage_1")); x = part2->forward(x); }
//     return x;
//   }
//
// Each scope makes a TaskGraph: 0, 1, ... in the order in which a step enters them. A scope that is
// entered again with the same kind, device count and (not empty) name goes on with its TaskGraph,
// so that a module may be called twice. What stands in no scope follows the default strategy, if
// one is set. Scopes do not nest.
//
// While a step is recorded, scopes shape the plan. At any other time they change nothing, with or
// without epl::init(): an annotated model runs, evaluates and saves as plain LibTorch. Scopes and
// default strategy belong to the thread that made them.
#pragma once

#include <epl/source_location.h>

#include <cstdint>
#include <string>

namespace epl {

struct Strategy {
  enum class Kind : uint8_t { kReplicate, kSplit };

  Kind kind = Kind::kReplicate;
  int device_count = 1;  // devices that one model replica uses for the TaskGraph
  std::string name;
  SourceLocation where;

  std::string str() const;       // epl::split(8, "classifier")
  std::string asked_by() const;  // epl::split(8, "classifier") at net.cc:12
};

// The part is copied; with device_count k > 1 each copy's micro batch is cut evenly over k devices.
Strategy replicate(int device_count = 1, std::string name = "",
                   SourceLocation where = SourceLocation::current());

// Operators and parameters of the part are cut over device_count devices.
Strategy split(int device_count = 1, std::string name = "",
               SourceLocation where = SourceLocation::current());

// A scope: from here to the end of the block. Replaces the default strategy for its duration.
class With {
 public:
  [[nodiscard]] explicit With(Strategy strategy);
  ~With();
  With(const With&) = delete;
  With& operator=(const With&) = delete;
};

// The strategy of all that stands in no scope. Each call starts a new TaskGraph, so that two calls
// in one forward pass cut the model in two. One made while a step is recorded ends with the
// recording. Inside of a scope it is an error.
void set_default_strategy(Strategy strategy);

}  // namespace epl

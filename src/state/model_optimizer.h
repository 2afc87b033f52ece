// An optimizer of a model as EPL sees it: a rule, groups of parameters with options, states.
//
// What makes models (LibTorch's modules, another front end) implements it: nothing outside of
// model/torch_*.{h,cc} says torch::optim.
//
//   if (const OptimizerRow* row = optimizer.row()) {          // EPL does the arithmetic
//     const size_t group = optimizer.listed()[number].group;
//     const OptionValues options = optimizer.options(group);
//     ParameterState state = optimizer.state(number);         // its tensors, to be written
//   } else {
//     optimizer.step();                                       // by the .grad() of its parameters
//   }
//
// Options and states are the front end's own, which the user may change, load or clear between
// steps: nothing that is handed out here is kept over the end of a step. A parameter is known by
// its number in listed(), so that a step looks nothing up by name.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "state/optimizer_table.h"

namespace epl {

// What an optimizer keeps for one parameter. Tensors in the order of the row: null where the state
// is none of its rule, undefined where it was not made.
struct ParameterState {
  bool exists = false;
  std::array<at::Tensor*, kMostStateTensors> tensors = {};
  int64_t* step = nullptr;            // null where the state counts none
  const OptimizerRow* row = nullptr;  // that it follows; null where it is not known
};

class ModelOptimizer {
 public:
  virtual ~ModelOptimizer() = default;

  virtual std::string name() const = 0;  // "AdamW", "my::Lion": for messages
  // The rule that its steps follow; null for one that has to run its own step().
  virtual const OptimizerRow* row() const = 0;

  // Looks through the groups and lists their parameters anew where they hold others than they did:
  // some were added, exchanged, or moved from group to group. Counts up then. In every step, so
  // that it costs a comparison a parameter where nothing has changed.
  virtual int64_t look() = 0;

  // As of the last look, group by group. One that is in several groups is listed as often.
  struct Listed {
    at::Tensor parameter;
    size_t group = 0;
  };
  const std::vector<Listed>& listed() const { return listed_; }

  // The options of a group as they are now, and the row that names them, which an optimizer that
  // has a step() of its own may have; null, and no options, where there is none.
  virtual size_t groups() const = 0;
  virtual const OptimizerRow* options_row(size_t group) const = 0;
  virtual OptionValues options(size_t group) const = 0;

  // The state of a parameter. make_state() leaves its tensors undefined, for the caller to fill.
  virtual ParameterState state(size_t number) = 0;
  virtual ParameterState make_state(size_t number) = 0;
  virtual void drop_state(size_t number) = 0;

  // Says that a state is not all there is of it, or that it is: other workers keep the rest, or all
  // of it, and here it is made without tensors then. While it is partial the front end's own way
  // to save it throws epl::Error, so that no file has zeros where others have numbers.
  virtual void set_partial(size_t /*number*/, bool /*partial*/) {}
  virtual bool is_partial(size_t /*number*/) const { return false; }

  // Of the parameters that have a .grad(): one step by the front end's own code.
  virtual void step() = 0;

  // The states of some parameters as text, to be sent to another worker, where they replace those
  // of the same parameters; all else of either optimizer stays.
  virtual std::string saved_states(const std::vector<size_t>& numbers) = 0;
  virtual void add_saved_states(const std::string& text, const std::vector<size_t>& numbers) = 0;

 protected:
  std::vector<Listed> listed_;
};

}  // namespace epl

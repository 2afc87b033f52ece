// A step as a row of positions at which it can be cut into stages, and what any part of it would
// take.
//
// A position is a forward operator together with its backward operators, in the order of recording;
// a part is a run of positions [begin, end). A part knows without its neighbours
//   seconds      of its operators
//   received     bytes of tensors that come from other parts, forward and backward: made elsewhere,
//                read here. Each comes once, straight from where it is made, however many parts lie
//                between and however often it is read; views count as the memory that they show.
//   parameters, state   that it reads; what two parts read counts in both
//   saved        bytes that were made forward and that its backward reads
// so the best cut of the whole row is found part by part.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cost/node_cost.h"
#include "ir/graph.h"

namespace epl {

// Parts that begin at [first_begin, last_begin] take so many bytes more when they grow to contain
// `position`; less where a tensor that they received is now made inside of them.
struct Growth {
  int position = 0;
  int first_begin = 0;
  int last_begin = 0;
  int64_t bytes = 0;
};

// Ordered by position.
using Growths = std::vector<Growth>;

struct StageModel {
  std::vector<int> calls;       // by position: Origin::call of its forward operator
  std::vector<double> seconds;  // by position
  std::vector<int> operators;   // by position: forward nodes; more than one only after passes
  // By position: whether a cut before it divides one operator that the user called, and the
  // innermost module that it divides, "" for none but the model.
  std::vector<bool> inside;
  std::vector<std::string> divided_modules;
  std::vector<std::string> ops;  // by position: the name of its operator, "" for a view
  // By position: the first parameter or buffer that its forward operator reads, or nothing.
  std::vector<std::string> parameter_names;
  Growths received;
  Growths parameters;  // trained
  Growths state;       // everything else that the step reads but does not make or get
  Growths saved;

  int positions() const { return static_cast<int>(seconds.size()); }

  // How hard it is to say a cut before a position by scopes: 0 between the parts of the model, 1
  // inside of one of them, 2 inside of a part of that, ...; most inside of one operator.
  int awkwardness(int position) const;
};

// "layers.0.weight" -> "layers.0": the module that a parameter belongs to.
std::string module_of(const std::string& parameter);

StageModel make_stage_model(const Graph& graph, const NodeCosts& costs);

// What the part [begin, end) takes of one kind.
int64_t bytes_of_part(const Growths& growths, int begin, int end);

// The same for all parts that end at one position, which moves on.
class PartBytes {
 public:
  PartBytes(const Growths& growths, int positions);

  // Now of the parts that end behind one more position.
  void extend();
  int64_t operator[](int begin) const { return bytes_[static_cast<size_t>(begin)]; }

 private:
  const Growths& growths_;
  size_t next_ = 0;
  int end_ = 0;
  std::vector<int64_t> bytes_;
};

}  // namespace epl

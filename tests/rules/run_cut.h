// Runs one operator whole and cut over devices, on real tensors.
#pragma once

#include <string>
#include <vector>

#include "ops/rule.h"
#include "tests/rules/examples.h"

namespace epl::testing {

// An operator called once: its node, the tensors that it read and those that it made.
class WholeCall {
 public:
  explicit WholeCall(const Example& example);

  const Graph& graph() const { return graph_; }
  const Node& node() const { return graph_.nodes[0]; }
  const std::vector<at::Tensor>& inputs() const { return inputs_; }  // as for_each_input
  // As for_each_output, then the inputs that it wrote.
  const std::vector<at::Tensor>& outputs() const { return outputs_; }

 private:
  Argument add_argument(const c10::IValue& value);
  ValueId add_input(const at::Tensor& tensor);
  void take_results(const std::vector<c10::IValue>& stack);
  ValueId add_output(const at::Tensor& tensor);

  Graph graph_;
  std::vector<at::Tensor> inputs_;
  std::vector<ValueId> ids_;  // of the inputs
  std::vector<at::Tensor> outputs_;
};

// How the inputs of a device lie in memory. Kernels that LibTorch itself calls with dense tensors
// alone may read others wrongly.
enum class Places : uint8_t {
  kPieces,   // views of the whole, as pieces of a parameter are
  kRowGaps,  // in larger tensors, with gaps behind each row
  kGaps,     // with gaps behind each element of the first dimension but one
};

// What the devices made, put together as the layouts of the cut say: as WholeCall::outputs().
std::vector<at::Tensor> run_cut(const WholeCall& call, const Cut& cut, const Axis& parts,
                                Places places = Places::kPieces);

// Whether an output is the same in each call of the operator: no workspace, and not the largest
// numbers of bags whose mode asks for none.
bool has_contents(const Node& node, size_t output);

std::string print_cut(const Cut& cut);  // "k: S(1) S(0) -> P"

}  // namespace epl::testing

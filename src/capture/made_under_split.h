// Tensors that were made inside of a split scope, outside of any step: the parameters of a mixture
// of experts, say, which operators outside of the scope use.
//
//   { epl::With scope(epl::split(4)); experts = register_parameter("experts", torch::randn(...)); }
//
// They are known by their storage. The scope itself changes nothing: the tensors are ordinary ones.
#pragma once

#include <ATen/core/Tensor.h>
#include <epl/strategy.h>

#include <map>
#include <optional>

#include "ir/graph.h"

namespace epl {

// The scope that the tensor was made in; none for most tensors.
std::optional<Strategy> made_under_split(const at::Tensor& tensor);

// The parameters of a recorded step that were made in one, by the values of their leaves.
std::map<ValueId, Strategy> leaves_under_split(const Graph& graph);

// While a scope stands: notes what operators make. Called by the dispatcher's hook (handler.cc).
class CreationWatch {
 public:
  explicit CreationWatch(const Strategy& scope);
  ~CreationWatch();
  CreationWatch(const CreationWatch&) = delete;
  CreationWatch& operator=(const CreationWatch&) = delete;

  static CreationWatch* current();  // on this thread; null: none
  void note(const at::Tensor& made) const;

 private:
  const Strategy scope_;
  const c10::impl::IncludeDispatchKeyGuard include_;
  CreationWatch* const outer_;
};

}  // namespace epl

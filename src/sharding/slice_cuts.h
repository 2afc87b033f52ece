// The ways in which a node may run on slices of the rows, given how what it reads lies.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "ops/rule.h"

namespace epl {

// Of all that a rule allows (cuts_of), those that follow the rows: the index that is cut is one
// that is cut already in something that the node reads, in as many runs. Each is the same for all
// devices: nothing that it emits depends on which part a device is.
class SliceCuts {
 public:
  // The letter of cuts that no word of a rule has.
  static constexpr char kRows = '#';

  SliceCuts(const Graph& graph, int parts, bool runs) : graph_(graph), parts_(parts), runs_(runs) {}

  // `read`: how its inputs lie, as for_each_input counts; not all of them whole.
  std::vector<Cut> along(const Node& node, const std::vector<Layout>& read) const;

  // The layout of an input whose rows an output has in the same dimension, by its size; whole where
  // there is none.
  Layout like_inputs(const Node& node, const std::vector<Layout>& read, ValueId output) const;

  // Batch norm in training mode and its derivative, each on the rows of its device. None for other
  // nodes, and where no rows are cut. `own`: statistics of which each device has its own.
  std::optional<Cut> of_batch_norm(const Node& node, const std::vector<Layout>& read,
                                   const std::set<ValueId>& own) const;
  static bool trains_batch_norm(const Node& node);

  // A node that reads whole values alone, cut so that its outputs lie as `wanted` says (partial:
  // however they do).
  std::optional<Cut> that_makes(const Node& node,
                                const std::vector<std::optional<Layout>>& wanted) const;

 private:
  bool in_even_runs(ValueId id, Layout layout) const;
  bool with_runs(const Node& node, int64_t runs, Cut& cut) const;
  std::optional<int64_t> runs_of(const Node& node, const std::vector<Layout>& read,
                                 const Cut& cut) const;
  bool same_on_all_parts(const Node& node, const Cut& cut) const;
  std::vector<Cut> of_view(const Node& node, const Layout& read) const;

  const Graph& graph_;
  const int parts_;
  const bool runs_;
};

}  // namespace epl

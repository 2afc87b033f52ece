// What EPL knows of operators beyond their kernels: which arguments they write, what they draw,
// what stands for them in a pure graph. Most of it is read from the schema. What the schema does
// not say of an operator of a graph stands in its row (ops/rule.h); of those that only a recording
// sees, since they are made of others or write in place, in the tables of facts.cc.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace epl {

// Arguments that the node writes in place, by position: those that the schema marks, and the
// running statistics that a batch norm in training mode writes without saying so.
std::vector<size_t> written_arguments(const Node& node);

// Where a batch norm has the running statistics that it writes in training mode, mean and variance
// side by side, and the argument that says whether it does.
struct RunningStatistics {
  const char* op;
  size_t mean;
  size_t training;
};
std::optional<RunningStatistics> running_statistics(const c10::OperatorHandle& op);

// The operator that makes a new tensor where `op` writes in place or into out= (relu_ -> relu,
// bernoulli_.float -> bernoulli.p), reading the same arguments but the out= ones. None where
// LibTorch has none.
std::optional<c10::OperatorHandle> functional_variant(const c10::OperatorHandle& op);

// The operator that writes the results of `op` into given tensors by a kernel of its own for
// `backend`; it takes the arguments of `op`, then the results. None where LibTorch would compute
// into fresh memory and copy.
std::optional<c10::OperatorHandle> out_variant(const c10::OperatorHandle& op,
                                               c10::DispatchKey backend);

// The operator that writes the result of `op` over its first argument (relu -> relu_), with the
// same arguments. None where LibTorch has none.
std::optional<c10::OperatorHandle> in_place_variant(const c10::OperatorHandle& op);

// Whether the caller wanted result number `result`: a mask (output_mask) leaves it out. A kernel
// may make it all the same, in a shape that nobody promised, or not, depending on sizes and
// threads.
bool asked_for(const Node& node, size_t result);

// A result that is there for the operator's own backward alone: how many bytes it has and what they
// mean is the kernel's own.
bool is_workspace(const Node& node, size_t result);

// Draws random numbers: never removed, never moved past another one.
bool is_random(const c10::OperatorHandle& op);
bool draws_random_numbers(const Graph& graph);  // some operator of it

// Each element of what it gives is 0 or 1, of whatever type.
bool gives_zero_or_one(const c10::OperatorHandle& op);

// Whether a batch norm of the graph takes its statistics from the batch.
bool takes_batch_statistics(const Graph& graph);

// Gives nothing and writes nothing: it throws where its arguments are not as they should be
// (_linalg_check_errors, _assert_async).
bool only_checks(const c10::OperatorHandle& op);

// Composite operators, by their full name ("aten::ctc_loss.Tensor"), are made of others as the step
// runs. The arguments whose contents such a one reads by their address meanwhile: they decide which
// operators it calls, and no operator shows it.
const std::vector<size_t>& contents_read_while_composing(const std::string& op);

// A composite operator that computes its result by itself, in memory that it makes: the operators
// that it calls do not show how.
bool computes_unseen(const std::string& op);

// Makes a tensor without giving it contents (empty, empty_like, new_empty, ...).
bool makes_uninitialized(const c10::OperatorHandle& op);

// Gives its first argument another size (resize_, resize_as_): where it grows, memory without
// contents.
bool resizes(const c10::OperatorHandle& op);

// Writes its first argument without reading it (copy_, fill_, uniform_, ...).
bool overwrites(const c10::OperatorHandle& op);

// How many elements of its first argument an operator writes at places that others give, without
// reading what was there (scatter_, index_copy_, index_put_ that does not accumulate); 0 for all
// other operators. A place that is given twice counts twice.
int64_t places_filled(const Graph& graph, const Node& node);

// Writes truth values in place, as 0 and 1 of whatever type its first argument has (lt_, eq_, ...).
// The pure variant gives a tensor of truth values instead.
bool gives_truth(const c10::OperatorHandle& op);

// Changes which memory its first argument shows, and how, but no contents (transpose_, resize_,
// ...).
bool changes_place_only(const c10::OperatorHandle& op);

// The result is a fact about shapes or types, not about contents (is_same_size, sparse_dim, ...).
bool reads_metadata_only(const c10::OperatorHandle& op);

// The values whose contents decide the shape of the result: the argument of nonzero, the mask of
// masked_select, a mask among indices, the sparse tensor whose values are asked for, ... None for
// nearly all operators.
std::vector<ValueId> values_that_decide_shape(const Graph& graph, const Node& node);

// The same, for whatever it is called with; indices may be masks, which are not asked for here.
bool contents_decide_shape(const c10::OperatorHandle& op);

// Element by element over inputs of one shape, by a kernel that allows its result to lie where one
// of the inputs lies.
bool is_pointwise(const c10::OperatorHandle& op);

// Gives its first argument with some elements changed (scatter, index_put, ...): in place it writes
// those alone, else it copies all of them.
bool changes_some(const c10::OperatorHandle& op);

// Gives the elements of its first argument in their order, in other sizes (view, reshape, ...).
bool reshapes(const c10::OperatorHandle& op);

// Runs on all devices of a group together (epl::all_reduce, ...).
bool is_collective(const c10::OperatorHandle& op);

// Whether the node only changes how memory is seen: a Plan needs no call for it, and it costs
// nothing.
bool is_view(const Graph& graph, const Node& node);

// Whether the node may run once more, later in the step and as repeated_form() gives it, to the
// same bits: it draws no numbers, writes and checks nothing, its results are dense tensors with
// contents and memory of their own, in a shape that does not depend on contents. A collective may
// not, as the other devices would have to run it again as well. What it reads must be as it was.
bool is_repeatable(const Graph& graph, const Node& node);

// The node without what it does besides making its results: batch norm without the running
// statistics that it would write. All other nodes as they are.
Node repeated_form(const Node& node);

}  // namespace epl

// Cuts the step into the chunks of a pipeline, by its TaskGraphs.
//
//   %3 = aten::mul(%0, %2) {forward 0}         chunk 0
//   %4 = aten::mul(%3, %2) {forward 1}         chunk 1
//   %5 = aten::sum(%4) {forward}               chunk 1: where its input comes from
//   %6 = aten::mul(%8, %3) {backward 1}        chunk 1
//
// With T TaskGraphs the chunks are 0, 1, ..., T - 1; a micro batch goes forward through them in
// this order and backward in reverse. Where a later TaskGraph hands a value back to an earlier one
// (a scope that is entered again after another one) the model goes round once more: chunk T is the
// second part of TaskGraph 0, and so on.
//
// Code outside of any scope joins the chunk that its inputs come from; what reads parameters,
// constants and the batch alone, the first chunk that reads it. Backward nodes in no scope join the
// chunk of the values that their forward saved, or of the gradient that they read.
//
// Needs   TaskGraphs, of scopes or by AssignTaskGraphs; Purify.
// Leaves  every node with its chunk. Values go only to the same or a later chunk within forward, to
//         the same or an earlier one within backward, and from forward to any chunk's backward.
//         Throws epl::Error where autograd takes a gradient against that order.
// Keeps   nodes, values and their order. It may run again, for nodes that came since.
#pragma once

#include "ir/pass.h"

namespace epl {

class AssignChunks final : public Pass {
 public:
  std::string name() const override { return "AssignChunks"; }
  bool run(Graph& graph) override;
};

// Chunks of a graph that went through the pass: a multiple of the number of its TaskGraphs.
int chunk_count(const Graph& graph);

}  // namespace epl

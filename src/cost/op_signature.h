// OpSignature: what an operator is asked to do, without what does not change its time.
//
//   op_signature(graph, node).text;
//   // aten::mm f32[64,256] f32[256,1024]{1,256} -> f32[64,1024]
//
// Two nodes with the same text do the same work: the operator, the types that a device really has
// (after cutting) with their strides, and constants that are sizes, dimensions or switches. Where a
// value lies in its storage, and numbers that are only calculated with, are left out.
#pragma once

#include <string>

#include "cost/node_work.h"

namespace epl {

struct OpSignature {
  std::string text;
  std::string op;  // "aten::mm"
  NodeWork work;
};

OpSignature op_signature(const Graph& graph, const Node& node);

}  // namespace epl

// What a node does, whatever machine it runs on: arithmetic, traffic, sizes of products. Read from
// its types and from the row of its operator (ops/operator_facts.h).
#pragma once

#include "ir/graph.h"
#include "ops/operator_facts.h"

namespace epl {

// `batch` products of [m, k] by [k, n].
struct ProductSizes {
  int64_t batch = 0;  // 0: no product of matrices
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
};

struct NodeWork {
  OperatorCost::Kind kind = OperatorCost::Kind::kFree;  // kFree: views, memory without contents
  c10::ScalarType dtype = c10::ScalarType::Float;       // of the first result
  double flops = 0;                // of products, convolutions, attention and recurrent layers
  double bytes = 0;                // read and written
  double elements = 0;             // of the largest tensor
  double slower_by = 1;            // than a large product, on cores
  double seconds_per_element = 0;  // kElements: on a core as DeviceSpeed has it by default
  ProductSizes product;
};

NodeWork work_of(const Graph& graph, const Node& node);

}  // namespace epl

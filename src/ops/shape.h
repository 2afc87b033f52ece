// Rows: what an operator makes of shapes, where LibTorch's Meta device has no kernel for it, has
// one that fails inside, or one whose result lies in memory otherwise than that of the CPU.
//
//   {"aten::relu", dense_like_first}
//
// A row is a function over tensors of the Meta device, which have no memory; it gives the results,
// undefined ones where the operator leaves them out. ShapesTest.EveryRowGivesWhatTheKernelGives
// runs examples of all operators both ways and compares sizes, strides, types and shared storage.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

namespace epl {

using ShapeArguments = c10::ArrayRef<c10::IValue>;
using ShapeResults = std::vector<c10::IValue>;
using ShapeFunction = ShapeResults (*)(ShapeArguments);

// In the place of a function: the kernel only calls other operators, so it runs, and those are
// asked.
ShapeResults runs_in_parts(ShapeArguments arguments);

struct ShapeRow {
  const char* op;  // "aten::relu", "aten::sum.dim_IntList"
  ShapeFunction function;
};

using ShapeRows = std::vector<ShapeRow>;

ShapeFunction find_shape_row(const c10::OperatorHandle& op);  // null: none
std::vector<std::string> operators_with_shape_rows();

}  // namespace epl

#include "ops/shape.h"

#include <map>

#include "base/check.h"
#include "ops/shape_rows.h"

namespace epl {
namespace {

using FunctionsByName = std::map<std::string, ShapeFunction>;

const FunctionsByName& functions_by_name() {
  static const auto* const functions = [] {
    auto* by_name = new FunctionsByName();  // never destroyed
    for (const auto& family : {shape_rows_of_elements, shape_rows_of_layers, shape_rows_of_images,
                               shape_rows_of_matrices, shape_rows_of_versions}) {
      for (const ShapeRow& row : family()) {
        const bool first = by_name->emplace(row.op, row.function).second;
        EPL_ASSERT(first, concat(row.op, " has two shape rows"));
      }
    }
    return by_name;
  }();
  return *functions;
}

}  // namespace

ShapeResults runs_in_parts(ShapeArguments) {
  throw InternalError("an operator that runs in parts has no shape function");
}

ShapeFunction find_shape_row(const c10::OperatorHandle& op) {
  const auto found = functions_by_name().find(c10::toString(op.operator_name()));
  return found == functions_by_name().end() ? nullptr : found->second;
}

std::vector<std::string> operators_with_shape_rows() {
  std::vector<std::string> names;
  for (const auto& [name, function] : functions_by_name()) names.push_back(name);
  return names;
}

}  // namespace epl

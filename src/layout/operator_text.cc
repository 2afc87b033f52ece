#include "layout/operator_text.h"

namespace epl {

c10::OperatorHandle find_operator(const TextLine& line, const std::string& name) {
  const size_t colons = name.find("::");
  if (colons == std::string::npos) line.fail("expected an operator, not " + name);
  const size_t dot = name.find('.', colons + 2);
  const c10::OperatorName key = dot == std::string::npos
                                    ? c10::OperatorName(name, "")
                                    : c10::OperatorName(name.substr(0, dot), name.substr(dot + 1));
  const auto op = c10::Dispatcher::singleton().findSchema(key);
  if (!op) line.fail("LibTorch has no operator " + name);
  return *op;
}

ArgumentForm form_of(const c10::Argument& argument) {
  c10::TypePtr type = argument.type();
  if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  const auto list = type->cast<c10::ListType>();
  if (!list) return {};
  const auto kind = list->getElementType()->kind();
  const bool of_tensors = kind == c10::TypeKind::TensorType || kind == c10::TypeKind::OptionalType;
  return {of_tensors, list->getElementType()};
}

}  // namespace epl

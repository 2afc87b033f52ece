#include "cost/op_signature.h"

#include "base/text.h"

namespace epl {
namespace {

std::string text_of_type(TensorType type) {
  type.offset = 0;
  return print_type(type);
}

// Sizes, dimensions and switches. A number of the user's (`Scalar`) is multiplied or added alike
// whatever it is.
std::string text_of_constant(const c10::IValue& constant, const c10::Argument& argument) {
  if (argument.type()->kind() == c10::TypeKind::NumberType) return "";
  if (constant.isBool()) return constant.toBool() ? " true" : " false";
  if (constant.isInt()) return concat(" ", constant.toInt());
  if (constant.isIntList()) return concat(" [", join(constant.toIntVector(), ","), "]");
  if (constant.isBoolList()) return concat(" [", join(constant.toBoolList().vec(), ","), "]");
  return "";
}

}  // namespace

OpSignature op_signature(const Graph& graph, const Node& node) {
  OpSignature signature;
  signature.op = op_name(node);
  signature.work = work_of(graph, node);
  signature.text = signature.op;
  for_each_input(node,
                 [&](ValueId id) { signature.text += " " + text_of_type(graph.value(id).type); });
  const auto& arguments = node.op.schema().arguments();
  for (size_t i = 0; i < node.arguments.size() && i < arguments.size(); ++i) {
    const Argument& argument = node.arguments[i];
    if (argument.kind != Argument::Kind::kConstant) continue;
    signature.text += text_of_constant(argument.constant, arguments[i]);
  }
  signature.text += " ->";
  for_each_output(node,
                  [&](ValueId id) { signature.text += " " + text_of_type(graph.value(id).type); });
  return signature;
}

}  // namespace epl

#include "layout/constant_text.h"

#include <cmath>
#include <cstdio>

#include "base/check.h"

namespace epl {
namespace {

std::string print_double(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  std::string result = text;
  double shorter = 0;
  std::snprintf(text, sizeof text, "%.15g", value);
  if (std::sscanf(text, "%lf", &shorter) == 1 && shorter == value) result = text;
  if (result.find_first_of(".e") == std::string::npos) result += ".0";
  return result;
}

}  // namespace

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\' || c == '\n') result += '\\';
    result += c == '\n' ? 'n' : c;
  }
  return result + "\"";
}

std::string print_constant(const c10::IValue& value) {
  if (value.isNone()) return "none";
  if (value.isBool()) return value.toBool() ? "true" : "false";
  if (value.isInt()) return std::to_string(value.toInt());
  if (value.isDouble()) return print_double(value.toDouble());
  if (value.isComplexDouble()) {
    const auto number = value.toComplexDouble();
    return concat("complex(", print_double(number.real()), ", ", print_double(number.imag()), ")");
  }
  if (value.isString()) return quoted(value.toStringRef());
  if (value.isDevice()) return "device(" + quoted(value.toDevice().str()) + ")";
  if (value.isGenerator()) return "generator";
  if (value.isList()) {
    std::vector<std::string> items;
    for (const auto& item : value.toListRef()) items.push_back(print_constant(item));
    return "[" + join(items, ", ") + "]";
  }
  throw InternalError("epl internal error: no text form for an argument of type " +
                      value.tagKind());
}

}  // namespace epl

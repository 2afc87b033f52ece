#include "layout/constant_text.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cctype>
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

constexpr int kDeepest = 4;  // lists in lists

c10::IValue parse_item(TextLine& line, const c10::TypePtr& element, int depth);

c10::IValue parse_number(TextLine& line) {
  const TextLine::Number number = line.number();
  if (number.is_integer) return number.integer;
  return number.real;
}

double parse_real(TextLine& line) { return line.number().real; }

c10::IValue parse_device(TextLine& line) {
  const std::string name = line.string();
  line.expect(")");
  try {
    return c10::Device(name);
  } catch (const c10::Error&) {
    line.fail("unknown device '" + name + "'");
  }
}

c10::TypeKind kind_of(const std::vector<c10::IValue>& items, const c10::TypePtr& element) {
  if (element) return element->kind();
  if (!items.empty() && items[0].isDouble()) return c10::TypeKind::FloatType;
  if (!items.empty() && items[0].isBool()) return c10::TypeKind::BoolType;
  return c10::TypeKind::IntType;
}

template <typename Item, typename Is, typename To>
c10::IValue list_of(const TextLine& line, const std::vector<c10::IValue>& items, Is is, To to) {
  c10::List<Item> list;
  for (const auto& item : items) {
    if (!is(item)) line.fail("a list of other things than its operator takes");
    list.push_back(to(item));
  }
  return list;
}

c10::IValue make_list(const TextLine& line, const std::vector<c10::IValue>& items,
                      const c10::TypePtr& element) {
  switch (kind_of(items, element)) {
    case c10::TypeKind::FloatType:
      return list_of<double>(
          line, items, [](auto& item) { return item.isScalar(); },
          [](auto& item) { return item.toScalar().toDouble(); });
    case c10::TypeKind::BoolType:
      return list_of<bool>(
          line, items, [](auto& item) { return item.isBool(); },
          [](auto& item) { return item.toBool(); });
    case c10::TypeKind::IntType:
      return list_of<int64_t>(
          line, items, [](auto& item) { return item.isInt(); },
          [](auto& item) { return item.toInt(); });
    default:
      break;
  }
  c10::impl::GenericList list(element);
  for (const auto& item : items) list.push_back(item);
  return list;
}

c10::IValue parse_list(TextLine& line, const c10::TypePtr& element, int depth) {
  if (depth == kDeepest) line.fail("lists in lists in lists");
  std::vector<c10::IValue> items;
  while (!line.take("]")) {
    if (!items.empty()) line.expect(",");
    items.push_back(parse_item(line, nullptr, depth + 1));
  }
  return make_list(line, items, element);
}

c10::IValue parse_item(TextLine& line, const c10::TypePtr& element, int depth) {
  if (line.take("none")) return {};
  if (line.take("generator")) return at::detail::getDefaultCPUGenerator();
  if (line.take("true")) return true;
  if (line.take("false")) return false;
  if (line.looking_at("\"")) return line.string();
  if (line.take("device(")) return parse_device(line);
  if (line.take("complex(")) {
    const double real = parse_real(line);
    line.expect(",");
    const double imaginary = parse_real(line);
    line.expect(")");
    return c10::complex<double>(real, imaginary);
  }
  return line.take("[") ? parse_list(line, element, depth) : parse_number(line);
}

}  // namespace

c10::IValue parse_constant(TextLine& line, const c10::TypePtr& element) {
  return parse_item(line, element, 0);
}

std::string word_or_quoted(const std::string& text) {
  const bool is_word = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == ':' || c == '.';
  });
  return is_word ? text : quoted(text);
}

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

#include "layout/dtype_names.h"

namespace epl {
namespace {

struct Row {
  c10::ScalarType dtype;
  const char* name;
};

constexpr Row kRows[] = {
    {c10::ScalarType::Float, "f32"},        {c10::ScalarType::Double, "f64"},
    {c10::ScalarType::Half, "f16"},         {c10::ScalarType::BFloat16, "bf16"},
    {c10::ScalarType::Long, "i64"},         {c10::ScalarType::Int, "i32"},
    {c10::ScalarType::Short, "i16"},        {c10::ScalarType::Char, "i8"},
    {c10::ScalarType::Byte, "u8"},          {c10::ScalarType::Bool, "b8"},
    {c10::ScalarType::ComplexFloat, "c64"}, {c10::ScalarType::ComplexDouble, "c128"},
    {c10::ScalarType::ComplexHalf, "c32"},  {c10::ScalarType::QInt8, "QInt8"},
    {c10::ScalarType::QUInt8, "QUInt8"},    {c10::ScalarType::QInt32, "QInt32"},
};

}  // namespace

std::string dtype_name(c10::ScalarType dtype) {
  for (const auto& row : kRows) {
    if (row.dtype == dtype) return row.name;
  }
  return c10::toString(dtype);
}

std::optional<c10::ScalarType> dtype_from_name(const std::string& name) {
  for (const auto& row : kRows) {
    if (name == row.name) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace epl

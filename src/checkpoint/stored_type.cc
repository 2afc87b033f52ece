#include "checkpoint/stored_type.h"

#include <limits>

#include "base/check.h"

namespace epl {
namespace {

struct StoredRow {
  StoredType type;
  const char* name;
  int64_t bytes;
};

constexpr StoredRow kStoredRows[] = {
    {StoredType::kBool, "BOOL", 1}, {StoredType::kU8, "U8", 1},     {StoredType::kI8, "I8", 1},
    {StoredType::kI16, "I16", 2},   {StoredType::kI32, "I32", 4},   {StoredType::kI64, "I64", 8},
    {StoredType::kF16, "F16", 2},   {StoredType::kBF16, "BF16", 2}, {StoredType::kF32, "F32", 4},
    {StoredType::kF64, "F64", 8},
};
constexpr int64_t kMostBytesOfAnElement = 8;

const StoredRow& stored_row(StoredType type) {
  for (const StoredRow& row : kStoredRows) {
    if (row.type == type) return row;
  }
  throw InternalError("epl internal error: an element type without a row");
}

}  // namespace

const char* name_of(StoredType type) { return stored_row(type).name; }
int64_t bytes_of(StoredType type) { return stored_row(type).bytes; }

std::optional<StoredType> stored_type(const std::string& name) {
  for (const StoredRow& row : kStoredRows) {
    if (name == row.name) return row.type;
  }
  return std::nullopt;
}

std::optional<int64_t> element_count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  bool is_empty = false;
  for (const int64_t size : shape) {
    if (size < 0) return std::nullopt;
    // The others are multiplied as if there were no 0, so that no product of some of them overflows
    // wherever the 0 stands.
    if (size == 0) is_empty = true;
    if (size > 0 && __builtin_mul_overflow(count, size, &count)) return std::nullopt;
  }
  if (count > std::numeric_limits<int64_t>::max() / kMostBytesOfAnElement) return std::nullopt;
  return is_empty ? 0 : count;
}

std::string print_shape(const std::vector<int64_t>& shape) {
  return concat("[", join(shape, ", "), "]");
}

}  // namespace epl

// epl-checkpoint diff.
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cmath>
#include <cstring>
#include <ostream>
#include <set>

#include "base/check.h"
#include "checkpoint_tool/commands.h"
#include "checkpoint_tool/one_step.h"

namespace epl {
namespace {

template <typename Number>
Number number_at(const char* bytes) {
  Number number;
  std::memcpy(&number, bytes, sizeof number);
  return number;
}

double value_at(const char* bytes, StoredType type) {
  switch (type) {
    case StoredType::kBool:
    case StoredType::kU8:
      return number_at<uint8_t>(bytes);
    case StoredType::kI8:
      return number_at<int8_t>(bytes);
    case StoredType::kI16:
      return number_at<int16_t>(bytes);
    case StoredType::kI32:
      return number_at<int32_t>(bytes);
    case StoredType::kI64:
      return static_cast<double>(number_at<int64_t>(bytes));
    case StoredType::kF16:
      return c10::detail::fp16_ieee_to_fp32_value(number_at<uint16_t>(bytes));
    case StoredType::kBF16:
      return c10::detail::f32_from_bits(number_at<uint16_t>(bytes));
    case StoredType::kF32:
      return number_at<float>(bytes);
    case StoredType::kF64:
      return number_at<double>(bytes);
  }
  throw InternalError("epl internal error: an element type without numbers");
}

struct Difference {
  int64_t count = 0;  // of elements whose bits differ
  int64_t element = 0;
  double largest = 0;  // not a number where one of the two is none

  void add(int64_t at, double by) {
    const bool is_larger = std::isnan(by) ? !std::isnan(largest) : by > largest;
    if (++count == 1 || is_larger) {
      largest = by;
      element = at;
    }
  }
};

// Both are of one type and shape, so that their chunks are alike.
Difference difference(CheckpointReader& a, CheckpointReader& b, const std::string& name) {
  const TensorRecord& tensor = a.manifest().tensors.at(name);
  const auto size = static_cast<size_t>(bytes_of(tensor.type));
  Difference difference;
  std::vector<char> of_b;
  for_chunks(a, name, [&](int64_t first, const std::vector<char>& of_a) {
    of_b.resize(of_a.size());
    const auto count = static_cast<int64_t>(of_a.size() / size);
    b.read({{name, tensor.type, tensor.shape, elements(tensor.shape, first, first + count),
             of_b.data()}});
    if (of_a == of_b) return;
    for (size_t i = 0; i < of_a.size(); i += size) {
      if (std::memcmp(&of_a[i], &of_b[i], size) == 0) continue;
      const double by = std::abs(value_at(&of_a[i], tensor.type) - value_at(&of_b[i], tensor.type));
      difference.add(first + static_cast<int64_t>(i / size), by);
    }
  });
  return difference;
}

std::string type_of(const TensorRecord& tensor) {
  return name_of(tensor.type) + print_shape(tensor.shape);
}

// What is to be said about a tensor; empty where it is the same in both.
std::string diff_of(CheckpointReader& a, CheckpointReader& b, const std::string& name) {
  const auto of_a = a.manifest().tensors.find(name);
  const auto of_b = b.manifest().tensors.find(name);
  if (of_b == b.manifest().tensors.end()) return "in the first alone";
  if (of_a == a.manifest().tensors.end()) return "in the second alone";
  if (type_of(of_a->second) != type_of(of_b->second)) {
    return concat(type_of(of_a->second), " and ", type_of(of_b->second));
  }
  const Difference by = difference(a, b, name);
  if (by.count == 0) return "";
  return concat(type_of(of_a->second), ", ", by.count, " of ", *element_count(of_a->second.shape),
                " elements differ, by at most ", by.largest, " (element ", by.element, ")");
}

// Names of both, in order.
template <typename Keys>
void add_names(std::set<std::string>& names, const Keys& keys) {
  for (const auto& [name, value] : keys) names.insert(name);
}

}  // namespace

int diff_steps(const std::string& path_a, const std::string& path_b, std::ostream& out) {
  const auto a = open_step(path_a);
  const auto b = open_step(path_b);
  out << "steps " << a->manifest().step << " and " << b->manifest().step << "\n";
  std::set<std::string> entries;
  add_names(entries, a->manifest().entries.items());
  add_names(entries, b->manifest().entries.items());
  int64_t different = 0;
  for (const std::string& name : entries) {
    const auto text = [&](CheckpointReader& of) {
      const auto found = of.manifest().entries.find(name);
      return found == of.manifest().entries.end() ? "none" : found->dump();
    };
    if (text(*a) == text(*b)) continue;
    out << "entry " << name << ": " << text(*a) << " and " << text(*b) << "\n";
    ++different;
  }
  std::set<std::string> tensors;
  add_names(tensors, a->manifest().tensors);
  add_names(tensors, b->manifest().tensors);
  for (const std::string& name : tensors) {
    const std::string text = diff_of(*a, *b, name);
    if (text.empty()) continue;
    out << name << ": " << text << "\n";
    ++different;
  }
  if (different == 0) out << "all tensors and entries are the same\n";
  return different == 0 ? 0 : 1;
}

}  // namespace epl

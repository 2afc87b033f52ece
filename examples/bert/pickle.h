// Just enough of Python's pickle format to list the tensors of a file that torch.save() wrote.
//
// A pickle is a program for a machine with a stack. Nothing that it names is ever run here: of the
// functions it calls, those that make a tensor or a dictionary are understood, and any other leaves
// an opaque value. Tensors are described, not read: their bytes stand elsewhere in the file.
#pragma once

#include <cstdint>
#include <istream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace bert {

struct PickledTensor {
  std::string storage;  // key of the bytes
  std::string type;     // "FloatStorage"
  int64_t storage_size = 0;
  int64_t offset = 0;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

struct PickledValue {
  enum class Kind { kOpaque, kNumber, kText, kName, kList, kDictionary, kStorage, kTensor, kMark };
  // A pickle refers to the same list several times, and fills it while others already hold it.
  using Pointer = std::shared_ptr<PickledValue>;

  Kind kind = Kind::kOpaque;
  int64_t number = 0;
  std::string text;                                // of kText and kName ("torch.FloatStorage")
  std::vector<Pointer> items;                      // of kList, which tuples are as well
  std::vector<std::pair<Pointer, Pointer>> pairs;  // of kDictionary
  PickledTensor tensor;                            // of kTensor; of kStorage without its sizes
};

// Reads one pickle and leaves `in` behind it. An unknown instruction is an error.
PickledValue::Pointer read_pickle(std::istream& in);

}  // namespace bert

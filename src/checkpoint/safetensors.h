// Safetensors files: eight bytes with the length of a header, the header in JSON, the tensors.
//
//   {"fc.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
//
// No code stands in such a file, and Python's safetensors package reads it. What is written here:
// data begins at a multiple of 4096 bytes (the header ends in blanks), tensors lie without gaps,
// those of the widest elements first, so that each is aligned to its own elements.
//
// What is read may be a stranger's: every length, offset, type and shape is checked against the
// others and the length of the file before it is used, and tensors that overlap or leave gaps are
// refused, as safetensors' own reader does.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/checked_file.h"
#include "checkpoint/stored_type.h"

namespace epl {

// Of safetensors' own reader.
inline constexpr int64_t kMostHeaderBytes = 100'000'000;

// A tensor of a file, and where it lies in the file.
struct StoredTensor {
  std::string name;
  StoredType type = StoredType::kF32;
  std::vector<int64_t> shape;
  int64_t offset = 0;  // from the file's beginning
  int64_t bytes = 0;
};

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  // in the order of the file
  std::map<std::string, std::string> metadata;
  int64_t data_begin = 0;
};

// Where these tensors come to lie, in the order of the file: fills in offset and bytes. Throws
// Error where two have one name, or a name is no UTF-8.
SafetensorsHeader lay_out(std::vector<StoredTensor> tensors,
                          std::map<std::string, std::string> metadata = {});

// The bytes in front of the data.
std::string print_header(const SafetensorsHeader& header);

// Reads `size` bytes at `offset` of a file; for the parser, which asks only for what is there.
using ByteReader = std::function<void(int64_t offset, int64_t size, void* to)>;

// Throws DamagedCheckpoint; `path` is what its message names.
SafetensorsHeader parse_header(const ByteReader& read, int64_t file_bytes, const std::string& path);
SafetensorsHeader read_header(CheckedFileReader& file);  // verifies its blocks, too

// Writes a file of these tensors. `fill` writes the bytes of a tensor, bytes of them.
FileRecord write_safetensors(
    const std::string& path, const SafetensorsHeader& header,
    const std::function<void(const StoredTensor&, CheckedFileWriter&)>& fill);

}  // namespace epl

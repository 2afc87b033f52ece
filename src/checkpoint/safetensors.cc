#include "checkpoint/safetensors.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "checkpoint/damage.h"
#include "checkpoint/strict_json.h"

namespace epl {
namespace {

using nlohmann::json;

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kDataAlignment = 4096;  // for readers and writers past the page cache
const char* const kMetadata = "__metadata__";

// Without the blanks.
std::string header_text(const SafetensorsHeader& header) {
  json text = json::object();
  if (!header.metadata.empty()) text[kMetadata] = header.metadata;
  for (const StoredTensor& tensor : header.tensors) {
    const int64_t begin = tensor.offset - header.data_begin;
    text[tensor.name] = {{"dtype", name_of(tensor.type)},
                         {"shape", tensor.shape},
                         {"data_offsets", {begin, begin + tensor.bytes}}};
  }
  try {
    return text.dump();
  } catch (const json::exception& error) {
    throw Error(concat("cannot write a header of safetensors: ", error.what()),
                "saving a checkpoint", "names that are UTF-8");
  }
}

int64_t header_length(const ByteReader& read, int64_t file_bytes, const std::string& path) {
  if (file_bytes < kLengthBytes) {
    throw DamagedCheckpoint(path, concat("it has ", file_bytes, " bytes, too few for safetensors"));
  }
  unsigned char bytes[kLengthBytes];
  read(0, kLengthBytes, bytes);
  uint64_t length = 0;
  for (int i = kLengthBytes; i-- > 0;) length = length << 8 | bytes[i];
  const int64_t most = std::min(kMostHeaderBytes, file_bytes - kLengthBytes);
  if (length > static_cast<uint64_t>(most)) {
    throw DamagedCheckpoint(path, concat("its header would have ", length, " bytes, of ", most));
  }
  return static_cast<int64_t>(length);
}

StoredTensor parse_tensor(const std::string& name, const JsonObject& object, int64_t data_begin,
                          int64_t data_bytes) {
  object.expect_only({"dtype", "shape", "data_offsets"});
  StoredTensor tensor;
  tensor.name = name;
  const std::string type = object.text("dtype");
  const auto known = stored_type(type);
  if (!known) object.fail(concat("has elements of ", type, ", which LibTorch does not have"));
  tensor.type = *known;
  tensor.shape = object.numbers("shape");
  const auto elements = element_count(tensor.shape);
  if (!elements) object.fail("has a shape that no memory holds");
  const std::vector<int64_t> offsets = object.numbers("data_offsets");
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data_bytes) {
    object.fail(concat("lies outside of the file, which has ", data_bytes, " bytes of data"));
  }
  tensor.offset = data_begin + offsets[0];
  tensor.bytes = offsets[1] - offsets[0];
  if (tensor.bytes != *elements * bytes_of(tensor.type)) {
    object.fail(concat("has ", tensor.bytes, " bytes, which are not ", type, " of its shape"));
  }
  return tensor;
}

std::map<std::string, std::string> parse_metadata(const JsonObject& object) {
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : object.value().items()) metadata[key] = object.text(key);
  return metadata;
}

// Tensors follow each other up to the end, each byte in one of them.
void check_no_gaps(const SafetensorsHeader& header, int64_t file_bytes, const std::string& path) {
  int64_t next = header.data_begin;
  for (const StoredTensor& tensor : header.tensors) {
    if (tensor.offset != next) {
      throw DamagedCheckpoint(path, concat("its tensors overlap or leave a gap at byte ", next));
    }
    next += tensor.bytes;
  }
  if (next != file_bytes) {
    throw DamagedCheckpoint(path, concat("its tensors end at byte ", next, " of ", file_bytes));
  }
}

}  // namespace

SafetensorsHeader lay_out(std::vector<StoredTensor> tensors,
                          std::map<std::string, std::string> metadata) {
  SafetensorsHeader header{std::move(tensors), std::move(metadata)};
  std::set<std::string> names{kMetadata};
  for (StoredTensor& tensor : header.tensors) {
    EPL_CHECK(names.insert(tensor.name).second,
              concat("cannot write a second tensor `", tensor.name, "` into a file of safetensors"),
              "saving a checkpoint", "another name for one of them");
    const auto elements = element_count(tensor.shape);
    EPL_ASSERT(elements.has_value(), "a tensor has a number of elements");
    tensor.bytes = *elements * bytes_of(tensor.type);
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(), [](const auto& a, const auto& b) {
    return bytes_of(a.type) > bytes_of(b.type);
  });
  int64_t next = 0;
  for (StoredTensor& tensor : header.tensors) {
    tensor.offset = next;
    next += tensor.bytes;
  }
  const auto length = kLengthBytes + static_cast<int64_t>(header_text(header).size());
  EPL_CHECK(length <= kMostHeaderBytes - kDataAlignment,
            concat("cannot write a header of ", length, " bytes: safetensors' readers take ",
                   kMostHeaderBytes),
            "saving a checkpoint", "shorter names, or fewer tensors a file");
  header.data_begin = (length + kDataAlignment - 1) / kDataAlignment * kDataAlignment;
  for (StoredTensor& tensor : header.tensors) tensor.offset += header.data_begin;
  return header;
}

std::string print_header(const SafetensorsHeader& header) {
  std::string text = header_text(header);
  text.resize(static_cast<size_t>(header.data_begin - kLengthBytes), ' ');
  std::string length;
  for (int i = 0; i < kLengthBytes; ++i) {
    length += static_cast<char>(static_cast<uint64_t>(text.size()) >> (8 * i) & 0xff);
  }
  return length + text;
}

SafetensorsHeader parse_header(const ByteReader& read, int64_t file_bytes,
                               const std::string& path) {
  const int64_t length = header_length(read, file_bytes, path);
  std::string text(static_cast<size_t>(length), '\0');
  read(kLengthBytes, length, text.data());
  const json parsed = parse_strict_json(text, path);
  const JsonObject object(parsed, path, "its header");
  SafetensorsHeader header;
  header.data_begin = kLengthBytes + length;
  const int64_t data_bytes = file_bytes - header.data_begin;
  for (const auto& [name, value] : parsed.items()) {
    if (name == kMetadata) {
      header.metadata = parse_metadata(object.object(name));
    } else {
      header.tensors.push_back(
          parse_tensor(name, {value, path, "tensor " + name}, header.data_begin, data_bytes));
    }
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(), [](const auto& a, const auto& b) {
    return std::make_pair(a.offset, a.bytes) < std::make_pair(b.offset, b.bytes);
  });
  check_no_gaps(header, file_bytes, path);
  return header;
}

SafetensorsHeader read_header(CheckedFileReader& file) {
  const auto read = [&](int64_t offset, int64_t size, void* to) {
    file.verify(offset, size);
    file.read(offset, size, to);
  };
  return parse_header(read, file.record().bytes, file.path());
}

FileRecord write_safetensors(
    const std::string& path, const SafetensorsHeader& header,
    const std::function<void(const StoredTensor&, CheckedFileWriter&)>& fill) {
  CheckedFileWriter file(path);
  const std::string head = print_header(header);
  file.write(head.data(), head.size());
  for (const StoredTensor& tensor : header.tensors) fill(tensor, file);
  FileRecord record = file.finish();
  const int64_t end = header.tensors.empty()
                          ? header.data_begin
                          : header.tensors.back().offset + header.tensors.back().bytes;
  EPL_ASSERT(record.bytes == end, "each tensor wrote all of its bytes");
  return record;
}

}  // namespace epl

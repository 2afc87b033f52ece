#include "checkpoint/manifest.h"

#include <cstdio>
#include <utility>

#include "base/check.h"
#include "checkpoint/crc32c.h"
#include "checkpoint/damage.h"
#include "checkpoint/strict_json.h"

namespace epl {
namespace {

using nlohmann::json;

const char* const kFormat = "epl-checkpoint";
constexpr int64_t kVersion = 1;
const std::string kBeforeSeal = ",\n\"crc32c\":\"";
const std::string kAfterSeal = "\"}\n";
constexpr size_t kCrcDigits = 8;

std::string print_crc(uint32_t crc) {
  char text[kCrcDigits + 1];
  std::snprintf(text, sizeof text, "%08x", crc);
  return text;
}

uint32_t parse_crc(const json& value, const JsonObject& owner) {
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  if (text.size() != kCrcDigits || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    owner.fail("has a checksum that is none");
  return static_cast<uint32_t>(std::stoul(text, nullptr, 16));
}

json piece_to_json(const TensorPiece& piece) {
  json text = {{"file", piece.file},
               {"key", piece.key},
               {"offset", piece.offset},
               {"elements", {piece.part.first, piece.part.last}}};
  if (piece.part.dim >= 0) text["slab"] = {piece.part.dim, piece.part.begin, piece.part.end};
  return text;
}

TensorPiece parse_piece(const JsonObject& object, const TensorRecord& tensor,
                        const std::map<std::string, FileRecord>& files) {
  object.expect_only({"file", "key", "offset", "elements", "slab"});
  TensorPiece piece{object.text("file"), object.text("key"), object.number("offset"), {}};
  const std::vector<int64_t> run = object.numbers("elements");
  if (run.size() != 2) object.fail("has elements that are no first and last");
  piece.part.first = run[0];
  piece.part.last = run[1];
  if (object.value().contains("slab")) {
    const std::vector<int64_t> slab = object.numbers("slab");
    if (slab.size() != 3) object.fail("has a slab that is no dim, begin and end");
    piece.part.dim = slab[0];
    piece.part.begin = slab[1];
    piece.part.end = slab[2];
  }
  if (!is_part_of(piece.part, tensor.shape)) {
    object.fail(concat("has ", print_part(piece.part), ", which is no part of ",
                       print_shape(tensor.shape)));
  }
  const auto file = files.find(piece.file);
  if (file == files.end()) object.fail(concat("lies in ", piece.file, ", which is not listed"));
  const int64_t room = file->second.bytes - piece.offset;
  if (room < 0 || piece.part.count() > room / bytes_of(tensor.type)) {
    object.fail(concat("ends outside of ", piece.file));
  }
  return piece;
}

TensorRecord parse_record(const JsonObject& object, const std::map<std::string, FileRecord>& files,
                          const std::string& path, const std::string& name, Cover cover) {
  object.expect_only({"dtype", "shape", "pieces"});
  TensorRecord tensor;
  const auto type = stored_type(object.text("dtype"));
  if (!type) object.fail(concat("has elements of ", object.text("dtype"), ", which are not known"));
  tensor.type = *type;
  tensor.shape = object.numbers("shape");
  const auto count = element_count(tensor.shape);
  if (!count) object.fail("has a shape that no memory holds");
  const json& pieces = object.at("pieces");
  if (!pieces.is_array()) object.fail("has pieces that are no list");
  int64_t there = 0;
  for (const json& piece : pieces) {
    tensor.pieces.push_back(parse_piece({piece, path, "a piece of " + name}, tensor, files));
    // Each count is at most that of the tensor, so that no sum of those that pass overflows.
    there += tensor.pieces.back().part.count();
    if (there > *count) break;
  }
  if (there > *count || (cover == Cover::kWhole && there < *count))
    object.fail(concat("has pieces of ", there, " elements, of ", *count));
  return tensor;
}

bool is_plain_name(const std::string& name) {
  return !name.empty() && name[0] != '.' && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

FileRecord parse_file(const JsonObject& object) {
  object.expect_only({"bytes", "crc32c"});
  FileRecord record;
  record.bytes = object.number("bytes");
  const json& checksums = object.at("crc32c");
  if (!checksums.is_array() ||
      static_cast<int64_t>(checksums.size()) != block_count(record.bytes)) {
    object.fail("does not have one checksum a block");
  }
  for (const json& checksum : checksums) record.checksums.push_back(parse_crc(checksum, object));
  return record;
}

}  // namespace

std::string seal(std::string object) {
  EPL_ASSERT(!object.empty() && object.back() == '}', "an object of JSON");
  object.pop_back();
  object += kBeforeSeal;
  const uint32_t crc = crc32c(object.data(), object.size());
  return object + print_crc(crc) + kAfterSeal;
}

std::string unseal(const std::string& text, const std::string& path) {
  const size_t tail = kCrcDigits + kAfterSeal.size();
  const bool is_sealed =
      text.size() > tail + kBeforeSeal.size() &&
      text.compare(text.size() - kAfterSeal.size(), kAfterSeal.size(), kAfterSeal) == 0 &&
      text.compare(text.size() - tail - kBeforeSeal.size(), kBeforeSeal.size(), kBeforeSeal) == 0;
  if (!is_sealed) throw DamagedCheckpoint(path, "it does not end with its checksum");
  const size_t size = text.size() - tail;
  if (text.substr(size, kCrcDigits) != print_crc(crc32c(text.data(), size))) {
    throw DamagedCheckpoint(path, "its checksum is not the one that was written");
  }
  return text.substr(0, size - kBeforeSeal.size()) + "}";
}

std::string print_manifest(const Manifest& manifest) {
  json text = {{"format", kFormat},           {"version", kVersion},
               {"step", manifest.step},       {"layout", manifest.layout},
               {"entries", manifest.entries}, {"files", json::object()},
               {"tensors", json::object()}};
  for (const auto& [name, file] : manifest.files) {
    json checksums = json::array();
    for (const uint32_t checksum : file.checksums) checksums.push_back(print_crc(checksum));
    text["files"][name] = {{"bytes", file.bytes}, {"crc32c", std::move(checksums)}};
  }
  for (const auto& [name, tensor] : manifest.tensors) {
    json pieces = json::array();
    for (const TensorPiece& piece : tensor.pieces) pieces.push_back(piece_to_json(piece));
    text["tensors"][name] = {
        {"dtype", name_of(tensor.type)}, {"shape", tensor.shape}, {"pieces", std::move(pieces)}};
  }
  try {
    return seal(text.dump());
  } catch (const json::exception& error) {
    throw Error(concat("cannot write a manifest: ", error.what()), "saving a checkpoint",
                "names and entries that are UTF-8");
  }
}

Manifest parse_manifest(const std::string& text, const std::string& path, Cover cover) {
  const json parsed = parse_strict_json(unseal(text, path), path);
  const JsonObject object(parsed, path, "it");
  if (object.text("format") != kFormat) object.fail("is no manifest of a checkpoint");
  if (object.number("version") != kVersion) {
    object.fail(
        concat("is of version ", object.number("version"), ", and this EPL reads ", kVersion));
  }
  object.expect_only({"format", "version", "step", "layout", "entries", "files", "tensors"});
  Manifest manifest;
  manifest.step = object.number("step");
  manifest.layout = object.object("layout").value();
  manifest.entries = object.object("entries").value();
  for (const auto& [name, value] : object.object("files").value().items()) {
    if (!is_plain_name(name)) object.fail(concat("lists `", name, "`, which is no name of a file"));
    manifest.files[name] = parse_file({value, path, name});
  }
  for (const auto& [name, value] : object.object("tensors").value().items()) {
    manifest.tensors[name] =
        parse_record({value, path, "tensor " + name}, manifest.files, path, name, cover);
  }
  return manifest;
}

void add_manifest(Manifest& manifest, const Manifest& other) {
  for (const auto& [name, file] : other.files) {
    EPL_CHECK(manifest.files.emplace(name, file).second,
              concat("cannot save a checkpoint: two workers wrote ", name), "saving a checkpoint",
              "one job a folder");
  }
  for (const auto& [name, tensor] : other.tensors) {
    TensorRecord& known =
        manifest.tensors.emplace(name, TensorRecord{tensor.type, tensor.shape, {}}).first->second;
    EPL_CHECK(known.type == tensor.type && known.shape == tensor.shape,
              concat("cannot save a checkpoint: `", name, "` is ", name_of(known.type),
                     print_shape(known.shape), " on one worker and ", name_of(tensor.type),
                     print_shape(tensor.shape), " on another"),
              "saving a checkpoint", "the same model on all workers");
    known.pieces.insert(known.pieces.end(), tensor.pieces.begin(), tensor.pieces.end());
  }
}

}  // namespace epl

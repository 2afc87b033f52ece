#include "checkpoint/manifest.h"

#include <gmock/gmock.h>

#include "checkpoint/damage.h"
#include "checkpoint/test_checkpoint.h"

namespace epl {
namespace {

using nlohmann::json;
using testing::HasSubstr;

Manifest some_manifest() {
  Manifest manifest;
  manifest.step = 1200;
  manifest.layout = {{"workers", 2}};
  manifest.entries = {{"sampler", {{"epoch", 3}}}};
  manifest.files = {{"a.safetensors", {4120, {0x1234abcd}}}, {"b.safetensors", {4120, {7}}}};
  const Shape shape{3, 4};
  manifest.tensors["w"] = {StoredType::kF16,
                           shape,
                           {{"a.safetensors", "w[0:2 in dim 1][0:6]", 4096, slab(shape, 1, 0, 2)},
                            {"b.safetensors", "w[2:4 in dim 1][0:6]", 4096, slab(shape, 1, 2, 4)}}};
  return manifest;
}

std::string fault_of_manifest(const std::string& text) {
  try {
    parse_manifest(text, "manifest.json");
    return "none";
  } catch (const DamagedCheckpoint& error) {
    return error.what();
  }
}

// The manifest above with a value replaced, and a checksum that fits.
std::string changed(const std::string& place, const json& value) {
  const std::string text = print_manifest(some_manifest());
  json manifest = json::parse(unseal(text, ""));
  manifest[json::json_pointer(place)] = value;
  return seal(manifest.dump());
}

TEST(Manifest, ParsesToTheSameText) {
  const std::string text = print_manifest(some_manifest());
  EXPECT_EQ(print_manifest(parse_manifest(text, "")), text);
  EXPECT_TRUE(json::accept(text)) << "its checksum is a value of JSON as well";
}

TEST(Manifest, IsCheckedInAllItSays) {
  const std::string piece = "/tensors/w/pieces/0";
  EXPECT_EQ(fault_of_manifest(changed("/step", 3)), "none");
  const std::vector<std::pair<std::string, std::string>> faults = {
      {changed("/format", "other"), "no manifest"},
      {changed("/version", 2), "version 2, and this EPL reads 1"},
      {changed("/step", -1), "no count"},
      {changed("/more", 1), "does not know"},
      {changed("/files/..~1up", json::object()), "no name of a file"},
      {changed("/files/a.safetensors/crc32c", json::array()), "one checksum a block"},
      {changed("/files/a.safetensors/crc32c/0", "1234ABCD"), "checksum that is none"},
      {changed("/files/a.safetensors/bytes", int64_t{1} << 60), "one checksum a block"},
      {changed("/tensors/w/dtype", "C64"), "not known"},
      {changed("/tensors/w/shape", {int64_t{1} << 40, int64_t{1} << 40}), "no memory"},
      {changed("/tensors/w/shape", {3, 5}), "pieces of 12 elements, of 15"},
      {changed(piece + "/file", "c"), "not listed"},
      {changed(piece + "/offset", 4109), "ends outside"},
      {changed(piece + "/offset", INT64_MAX), "ends outside"},
      {changed(piece + "/elements", {0, 7}), "no part of"},
      {changed(piece + "/elements", {0}), "first and last"},
      {changed(piece + "/slab", {1, 0, 5}), "no part of"},
      {changed(piece + "/slab", {2, 0, 1}), "no part of"},
      {changed(piece + "/slab", {1, 0}), "dim, begin and end"},
      {changed("/tensors/w/pieces", 1), "no list"},
      {"{}", "does not end with its checksum"},
      {"", "does not end with its checksum"},
  };
  for (const auto& [text, fault] : faults) {
    EXPECT_THAT(fault_of_manifest(text), HasSubstr(fault)) << text;
  }
}

TEST(Manifest, TellsEveryBitThatIsFlipped) {
  const std::string text = print_manifest(some_manifest());
  for (size_t byte = 0; byte < text.size(); ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bytes = text;
      bytes[byte] = static_cast<char>(bytes[byte] ^ (1 << bit));
      ASSERT_NE(fault_of_manifest(bytes), "none") << "byte " << byte << " bit " << bit;
    }
  }
}

TEST(Manifest, RefusesToJoinWorkersThatWroteDifferentTensors) {
  Manifest one = some_manifest();
  Manifest other = some_manifest();
  EXPECT_THROW(add_manifest(one, other), Error) << "the same files";
  other.files = {{"c.safetensors", {4120, {7}}}};
  other.tensors["w"].shape = {4, 3};
  EXPECT_THROW(add_manifest(one, other), Error);
}

}  // namespace
}  // namespace epl

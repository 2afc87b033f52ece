// What tests of checkpoints share: a folder of their own, and a small checkpoint.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "checkpoint/folder.h"
#include "checkpoint/reader.h"
#include "checkpoint/shard_file.h"

namespace epl {

struct CheckpointFolder : testing::Test {
  CheckpointFolder()
      : folder((std::filesystem::path(testing::TempDir()) /
                (std::string("epl_") +
                 testing::UnitTest::GetInstance()->current_test_info()->test_suite_name() + "_" +
                 testing::UnitTest::GetInstance()->current_test_info()->name()))
                   .string()) {
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
  }
  ~CheckpointFolder() override { std::filesystem::remove_all(folder); }

  const std::string folder;
};

inline std::string bytes_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream contents;
  contents << file.rdbuf();
  return contents.str();
}

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

inline void flip_bit(const std::string& path, size_t byte, int bit) {
  std::string bytes = bytes_of_file(path);
  bytes.at(byte) = static_cast<char>(bytes[byte] ^ (1 << bit));
  write_bytes(path, bytes);
}

// A tensor with its bytes.
struct TestTensor {
  StoredType type = StoredType::kF32;
  Shape shape;
  std::string bytes;
};
using TestTensors = std::map<std::string, TestTensor>;

inline TestTensor random_tensor(StoredType type, const Shape& shape, std::mt19937& random) {
  TestTensor tensor{type, shape, ""};
  const int64_t size = *element_count(shape) * bytes_of(type);
  for (int64_t i = 0; i < size; ++i) tensor.bytes += static_cast<char>(random());
  return tensor;
}

// The bytes of a part, one by one: what readers and writers must agree with.
inline std::string bytes_of_part(const TestTensor& tensor, const TensorPart& part) {
  const int64_t size = bytes_of(tensor.type);
  std::string bytes;
  for (PartRuns of(part, tensor.shape); !of.is_done();) {
    const PartRun run = of.run();
    bytes += tensor.bytes.substr(static_cast<size_t>(run.in_whole * size),
                                 static_cast<size_t>(run.count * size));
    of.skip_to(run.in_whole + run.count);
  }
  return bytes;
}

// Writes these tensors, whole, as one worker.
inline void save_step(const std::string& folder, int64_t step, const TestTensors& tensors) {
  const std::string partial = begin_step(folder, step);
  std::vector<HeldPart> parts;
  for (const auto& [name, tensor] : tensors) {
    parts.push_back({name, tensor.type, tensor.shape, whole(tensor.shape), tensor.bytes.data()});
  }
  Manifest manifest;
  manifest.step = step;
  manifest.layout = {{"workers", 1}};
  manifest.entries = {{"schedule", {{"epoch", 3}, {"rate", 0.1}}}};
  write_shard(manifest, partial, "w00000-model.safetensors", parts);
  commit_step(folder, manifest);
}

inline TestTensors some_tensors(uint32_t seed = 1) {
  std::mt19937 random(seed);
  return {{"fc.weight", random_tensor(StoredType::kF32, {8, 5}, random)},
          {"fc.bias", random_tensor(StoredType::kBF16, {8}, random)},
          {"steps", random_tensor(StoredType::kI64, {}, random)},
          {"mask", random_tensor(StoredType::kBool, {0, 3}, random)}};
}

// Reads all tensors of a checkpoint.
inline TestTensors load_step(const std::string& path) {
  CheckpointReader reader(path);
  TestTensors tensors;
  std::vector<WantedPart> parts;
  for (const auto& [name, record] : reader.manifest().tensors) {
    TestTensor& tensor = tensors[name];
    tensor = {record.type, record.shape, ""};
    tensor.bytes.resize(static_cast<size_t>(*element_count(record.shape) * bytes_of(record.type)),
                        'x');
    parts.push_back({name, record.type, record.shape, whole(record.shape), tensor.bytes.data()});
  }
  reader.read(parts);
  return tensors;
}

inline bool operator==(const TestTensor& a, const TestTensor& b) {
  return a.type == b.type && a.shape == b.shape && a.bytes == b.bytes;
}

}  // namespace epl

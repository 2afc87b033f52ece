#include "checkpoint/reader.h"

#include <epl/error.h>
#include <gmock/gmock.h>

#include "checkpoint/damage.h"
#include "checkpoint/test_checkpoint.h"

namespace epl {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr StoredType kAllTypes[] = {
    StoredType::kBool, StoredType::kU8,  StoredType::kI8,   StoredType::kI16, StoredType::kI32,
    StoredType::kI64,  StoredType::kF16, StoredType::kBF16, StoredType::kF32, StoredType::kF64};

struct RandomCuts {
  int64_t below(int64_t end) { return static_cast<int64_t>(random() % static_cast<uint64_t>(end)); }

  // `first` to `last` in `count` runs, some of them empty.
  std::vector<std::pair<int64_t, int64_t>> runs(int64_t first, int64_t last, int64_t count) {
    std::vector<int64_t> cuts{first, last};
    for (int64_t i = 1; i < count; ++i) cuts.push_back(first + below(last - first + 1));
    std::sort(cuts.begin(), cuts.end());
    std::vector<std::pair<int64_t, int64_t>> runs;
    for (size_t i = 1; i < cuts.size(); ++i) runs.emplace_back(cuts[i - 1], cuts[i]);
    return runs;
  }

  // A part for each of `count`, which together have each element once: runs of elements, slabs, or
  // slabs that are cut into runs once more.
  std::vector<TensorPart> parts(const Shape& shape, int64_t count) {
    std::vector<TensorPart> parts;
    const TensorPart all = whole(shape);
    if (shape.empty() || below(3) == 0) {
      for (const auto& [first, last] : runs(0, all.last, count)) {
        parts.push_back(elements(shape, first, last));
      }
      return parts;
    }
    const int64_t dim = below(static_cast<int64_t>(shape.size()));
    const int64_t slabs = 1 + below(count);
    for (const auto& [begin, end] : runs(0, shape[static_cast<size_t>(dim)], slabs)) {
      TensorPart part = slab(shape, dim, begin, end);
      for (const auto& [first, last] : runs(0, part.last, 1 + below(2))) {
        parts.push_back({dim, begin, end, first, last});
      }
    }
    return parts;
  }

  std::mt19937 random{17};
};

TestTensors random_tensors(RandomCuts& cuts) {
  TestTensors tensors;
  const int64_t count = 1 + cuts.below(5);
  for (int64_t i = 0; i < count; ++i) {
    Shape shape(static_cast<size_t>(cuts.below(4)));
    for (int64_t& size : shape) size = cuts.below(9);
    tensors["t" + std::to_string(i)] = random_tensor(kAllTypes[cuts.below(10)], shape, cuts.random);
  }
  return tensors;
}

// Writes these tensors as so many workers, each a file, every tensor cut at random.
void save_cut(const std::string& folder, const TestTensors& tensors, int64_t workers,
              RandomCuts& cuts) {
  const std::string partial = begin_step(folder, 1);
  std::vector<std::vector<HeldPart>> held(static_cast<size_t>(workers));
  std::vector<std::string> kept;  // the bytes that `held` points to
  kept.reserve(1000);
  for (const auto& [name, tensor] : tensors) {
    for (const TensorPart& part : cuts.parts(tensor.shape, workers)) {
      if (part.count() == 0 && whole(tensor.shape).count() > 0) continue;
      kept.push_back(bytes_of_part(tensor, part));
      held[static_cast<size_t>(cuts.below(workers))].push_back(
          {name, tensor.type, tensor.shape, part, kept.back().data()});
      if (part.count() == 0) break;  // an empty tensor has one piece
    }
  }
  Manifest manifest;
  manifest.step = 1;
  for (size_t i = 0; i < held.size(); ++i) {
    Manifest of_worker;
    write_shard(of_worker, partial, "w" + std::to_string(i), held[i]);
    add_manifest(manifest, parse_manifest(print_manifest(of_worker), "", Cover::kSome));
  }
  commit_step(folder, manifest);
}

using Reader = CheckpointFolder;

TEST_F(Reader, ReadsAnyCutsOfWhatWasWrittenInAnyOtherCuts) {
  RandomCuts cuts;
  for (int round = 0; round < 300; ++round) {
    const TestTensors tensors = random_tensors(cuts);
    save_cut(folder, tensors, 1 + cuts.below(5), cuts);
    const std::string path = saved_steps(folder).back().path;
    ASSERT_THAT(faults_of_step(path), testing::IsEmpty());
    for (int64_t readers = 1 + cuts.below(5); readers > 0; --readers) {
      std::vector<std::pair<std::string, std::string>> memory;  // expected, read
      std::vector<WantedPart> wanted;
      memory.reserve(1000);
      for (const auto& [name, tensor] : tensors) {
        for (const TensorPart& part : cuts.parts(tensor.shape, 1 + cuts.below(5))) {
          const std::string expected = bytes_of_part(tensor, part);
          memory.emplace_back(expected, std::string(expected.size(), '?'));
          wanted.push_back({name, tensor.type, tensor.shape, part, memory.back().second.data()});
        }
      }
      CheckpointReader(path).read(wanted);
      for (const auto& [expected, read] : memory) ASSERT_EQ(read, expected) << "round " << round;
    }
  }
}

// More than a block of a file, and more than what is read at once.
TEST_F(Reader, ReadsOnlyTheBlocksThatItNeeds) {
  std::mt19937 random(1);
  TestTensor tensor{StoredType::kU8, {20, 1 << 20}, std::string(size_t{20} << 20, '\0')};
  for (size_t i = 0; i < tensor.bytes.size(); i += 97) {
    tensor.bytes[i] = static_cast<char>(random());
  }
  save_step(folder, 1, {{"large", tensor}});
  const std::string path = saved_steps(folder).back().path;
  for (const TensorPart& part : {slab(tensor.shape, 1, 5, 1000), rows(tensor.shape, 3, 19)}) {
    std::string read(static_cast<size_t>(part.count()), '?');
    CheckpointReader(path).read({{"large", tensor.type, tensor.shape, part, read.data()}});
    EXPECT_TRUE(read == bytes_of_part(tensor, part));
  }
  flip_bit(path + "/w00000-model.safetensors", size_t{17} << 20, 0);
  const TensorPart first = rows(tensor.shape, 0, 15);
  std::string read(static_cast<size_t>(first.count()), '?');
  CheckpointReader(path).read({{"large", tensor.type, tensor.shape, first, read.data()}});
  EXPECT_TRUE(read == bytes_of_part(tensor, first));
  EXPECT_THAT(faults_of_step(path),
              testing::ElementsAre(HasSubstr("block 1 of 2 (bytes 16777216")));
}

std::string error_of_read(CheckpointReader& reader, const std::vector<WantedPart>& wanted) {
  try {
    reader.read(wanted);
    return "none";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST_F(Reader, WritesNothingWhereOneOfSeveralDoesNotFit) {
  const TestTensors tensors = some_tensors();
  save_step(folder, 1, tensors);
  const std::string path = saved_steps(folder).back().path;
  CheckpointReader reader(path);
  std::string weight(160, '?');
  std::string bias(16, '?');
  const WantedPart good{"fc.weight", StoredType::kF32, {8, 5}, whole({8, 5}), weight.data()};
  EXPECT_THAT(
      error_of_read(reader, {good, {"fc.bias", StoredType::kF16, {8}, whole({8}), bias.data()}}),
      HasSubstr("cannot read `fc.bias` as F16[8]: in the checkpoint"));
  EXPECT_THAT(
      error_of_read(reader, {good, {"fc.bias", StoredType::kBF16, {4}, whole({4}), bias.data()}}),
      HasSubstr("it is BF16[8]"));
  EXPECT_THAT(
      error_of_read(reader, {good, {"other", StoredType::kBF16, {8}, whole({8}), bias.data()}}),
      HasSubstr("does not have it"));
  flip_bit(path + "/w00000-model.safetensors", 4096 + 170, 0);
  EXPECT_THAT(
      error_of_read(reader, {good, {"fc.bias", StoredType::kBF16, {8}, whole({8}), bias.data()}}),
      HasSubstr("block 0 of 1"));
  EXPECT_EQ(weight, std::string(160, '?'));
}

// Mutations that keep the manifest's own checksum right: what is said must not be believed. Either
// an error, or the numbers that were written.
TEST_F(Reader, NeverLoadsWrongNumbersByAManifestThatWasChanged) {
  const TestTensors tensors = some_tensors();
  save_step(folder, 1, tensors);
  const std::string path = saved_steps(folder).back().path;
  const std::string text = unseal(bytes_of_file(path + "/manifest.json"), "");
  std::mt19937 random(23);
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string bytes = text;
    for (uint32_t n = 1 + random() % 2; n > 0; --n) {
      const size_t place = random() % (bytes.size() - 1);
      if (random() % 2 == 0) {
        bytes[place] = "0123456789"[random() % 10];
      } else {
        bytes[place] = static_cast<char>(bytes[place] ^ (1 << random() % 8));
      }
    }
    if (bytes.back() != '}') continue;
    write_bytes(path + "/manifest.json", seal(bytes));
    try {
      for (const auto& [name, tensor] : load_step(path)) {
        // A name may have changed; the bytes of a tensor that is known may not, nor their meaning.
        const auto known = tensors.find(name);
        if (known == tensors.end()) continue;
        ASSERT_TRUE(known->second.bytes == tensor.bytes) << bytes;
      }
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 2000);
}

TEST_F(Reader, NeverCrashesOnAFileThatWasChangedTogetherWithItsChecksum) {
  save_step(folder, 1, some_tensors());
  const std::string path = saved_steps(folder).back().path;
  const std::string file = path + "/w00000-model.safetensors";
  const std::string bytes = bytes_of_file(file);
  const std::string manifest = bytes_of_file(path + "/manifest.json");
  const size_t header = bytes.find_last_of('}', 4095) + 1;
  std::mt19937 random(29);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string changed = bytes;
    changed[random() % header] = static_cast<char>(random());
    std::filesystem::remove(file);
    CheckedFileWriter out(file);
    out.write(changed.data(), changed.size());
    Manifest fitting = parse_manifest(manifest, "");
    fitting.files.begin()->second = out.finish();
    write_bytes(path + "/manifest.json", print_manifest(fitting));
    try {
      ASSERT_EQ(load_step(path), some_tensors());
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 2500);
}

TEST_F(Reader, RefusesPiecesThatDoNotCoverATensor) {
  const TestTensors tensors = some_tensors();
  save_step(folder, 1, tensors);
  const std::string path = saved_steps(folder).back().path;
  json manifest = json::parse(unseal(bytes_of_file(path + "/manifest.json"), ""));
  json& pieces = manifest["tensors"]["fc.weight"]["pieces"];
  pieces[0]["elements"] = {0, 20};
  pieces.push_back(pieces[0]);
  write_bytes(path + "/manifest.json", seal(manifest.dump()));
  EXPECT_THAT(faults_of_step(path), testing::SizeIs(1));
  EXPECT_THROW(load_step(path), DamagedCheckpoint);
}

}  // namespace
}  // namespace epl

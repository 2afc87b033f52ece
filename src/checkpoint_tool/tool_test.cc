// epl-checkpoint as it is built, on checkpoints that are written here.
#include <gmock/gmock.h>

#include "checkpoint/test_checkpoint.h"
#include "tests/launch/launched.h"

namespace epl {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

struct CheckpointTool : CheckpointFolder {
  Outcome run(std::vector<std::string> words) const {
    words.insert(words.begin(), EPL_CHECKPOINT);
    return Running(words, work).wait();
  }
  std::string step(int64_t number) const { return saved_steps(folder).at(number - 1).path; }

  CheckpointTool() : work(folder + "-work") { fs::create_directories(work); }
  ~CheckpointTool() override { fs::remove_all(work); }

  const std::string work;
  const std::string shard = "/w00000-model.safetensors";
};

TEST_F(CheckpointTool, ListsStepsAndWhetherTheyAreGood) {
  save_step(folder, 1, some_tensors());
  save_step(folder, 2, some_tensors());
  const Outcome good = run({"list", folder});
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_EQ(good.out,
            "step 1: good, 4.2 KiB in 1 files, 4 tensors\n"
            "step 2: good, 4.2 KiB in 1 files, 4 tensors\n");
  fs::remove(step(2) + "/manifest.json");
  const Outcome bad = run({"list", folder, "--tensors"});
  EXPECT_EQ(bad.code, 1);
  EXPECT_THAT(bad.out, HasSubstr("\n  fc.weight F32[8, 5]\n"));
  EXPECT_THAT(bad.out, HasSubstr("step 2: damaged, "));
  EXPECT_THAT(bad.out, HasSubstr("manifest.json: No such file"));
}

TEST_F(CheckpointTool, VerifiesAndNamesTheBadBlock) {
  TestTensors tensors = some_tensors();
  tensors["large"] = {StoredType::kU8, {20, 1 << 20}, std::string(size_t{20} << 20, 'a')};
  save_step(folder, 1, tensors);
  EXPECT_EQ(run({"verify", folder}).out, "step 1: good\n");
  flip_bit(step(1) + shard, size_t{17} << 20, 5);
  const Outcome bad = run({"verify", step(1)});
  EXPECT_EQ(bad.code, 1);
  EXPECT_THAT(bad.out, HasSubstr("step 1: w00000-model.safetensors: block 1 of 2 (bytes 16777216"));
}

// What safetensors' own package for Python reads of a file, where there is one, else its format
// by a few lines of Python: a line for each tensor.
const char* const kPythonReader = R"(
import json, struct, sys
data = open(sys.argv[1], 'rb').read()
length, = struct.unpack('<Q', data[:8])
header = json.loads(data[8:8 + length])
metadata = header.pop('__metadata__')
tensors = {name: (t['dtype'], t['shape'], data[8 + length:][slice(*t['data_offsets'])])
           for name, t in header.items()}
assert sum(len(t[2]) for t in tensors.values()) == len(data) - 8 - length
try:
    import safetensors
    theirs = {n: (t['dtype'], list(t['shape']), bytes(t['data'])) for n, t in safetensors.deserialize(data)}
    assert theirs == tensors
except ImportError:
    pass
print(metadata['step'])
for name in sorted(tensors):
    dtype, shape, data = tensors[name]
    print(name, dtype, shape, data.hex())
)";

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) {
    text += "0123456789abcdef"[static_cast<unsigned char>(byte) >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

TEST_F(CheckpointTool, ExportsAFileThatPythonReads) {
  const TestTensors tensors = some_tensors();
  const std::string partial = begin_step(folder, 7);
  Manifest manifest;
  manifest.step = 7;
  const TestTensor& weight = tensors.at("fc.weight");
  // Columns by two workers, all else by a third.
  std::vector<HeldPart> rest;
  std::vector<std::string> columns;
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 2}, {2, 5}}) {
    const TensorPart part = slab(weight.shape, 1, begin, end);
    columns.push_back(bytes_of_part(weight, part));
    write_shard(manifest, partial, "w" + std::to_string(begin),
                {{"fc.weight", weight.type, weight.shape, part, columns.back().data()}});
  }
  std::string expected = "7\n";
  for (const auto& [name, tensor] : tensors) {
    expected += name + " " + name_of(tensor.type) + " " + print_shape(tensor.shape) + " " +
                hex(tensor.bytes) + "\n";
    if (name == "fc.weight") continue;
    rest.push_back({name, tensor.type, tensor.shape, whole(tensor.shape), tensor.bytes.data()});
  }
  write_shard(manifest, partial, "w9", rest);
  commit_step(folder, manifest);

  const Outcome exported = run({"export", folder, "all.safetensors"});
  EXPECT_EQ(exported.code, 0) << exported.err;
  write_bytes(work + "/read.py", kPythonReader);
  const Outcome read = Running({"python3", "read.py", "all.safetensors"}, work).wait();
  EXPECT_EQ(read.code, 0) << read.err;
  EXPECT_EQ(read.out, expected);

  const Outcome again = run({"export", folder, "all.safetensors"});
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, HasSubstr("File exists"));
}

TEST_F(CheckpointTool, ExportsNothingThatIsDamaged) {
  save_step(folder, 1, some_tensors());
  flip_bit(step(1) + shard, 4100, 0);
  const Outcome outcome = run({"export", step(1), "all.safetensors"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("block 0 of 1"));
  EXPECT_FALSE(fs::exists(work + "/all.safetensors"));
}

TEST_F(CheckpointTool, TellsWhichTensorsDiffer) {
  TestTensors tensors = some_tensors();
  const float before[] = {1, 2, 3, 4};
  const float after[] = {1, 2.5, 3, 3};
  tensors["numbers"] = {StoredType::kF32, {4}, {reinterpret_cast<const char*>(before), 16}};
  save_step(folder, 1, tensors);
  save_step(folder, 2, tensors);
  const Outcome same = run({"diff", step(1), step(2)});
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_EQ(same.out, "steps 1 and 2\nall tensors and entries are the same\n");

  tensors["numbers"].bytes = {reinterpret_cast<const char*>(after), 16};
  tensors["half"] = {StoredType::kF16, {1}, std::string("\0\x3c", 2)};
  tensors.erase("mask");
  save_step(folder, 3, tensors);
  const Outcome other = run({"diff", step(1), step(3)});
  EXPECT_EQ(other.code, 1);
  EXPECT_EQ(other.out,
            "steps 1 and 3\n"
            "half: in the second alone\n"
            "mask: in the first alone\n"
            "numbers: F32[4], 2 of 4 elements differ, by at most 1 (element 3)\n");
  tensors["half"].bytes = std::string("\0\x40", 2);
  save_step(folder, 4, tensors);
  EXPECT_THAT(run({"diff", step(3), step(4)}).out,
              HasSubstr("half: F16[1], 1 of 1 elements differ, by at most 1 (element 0)"));
}

TEST_F(CheckpointTool, SaysWhatIsWrongWithACommandLine) {
  const Outcome nothing = run({});
  EXPECT_EQ(nothing.code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("asked by: the command line of epl-checkpoint"));
  const Outcome empty = run({"verify", folder});
  EXPECT_EQ(empty.code, 2);
  EXPECT_THAT(empty.err, HasSubstr("there is no checkpoint in "));
  EXPECT_THAT(run({"--help"}).out, HasSubstr("export"));
}

}  // namespace
}  // namespace epl

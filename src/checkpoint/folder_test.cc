#include "checkpoint/folder.h"

#include <epl/error.h>
#include <gmock/gmock.h>

#include "checkpoint/test_checkpoint.h"

namespace epl {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

struct StepFolder : CheckpointFolder {
  std::string path_of(int64_t step) const { return saved_steps(folder).at(index_of(step)).path; }

  size_t index_of(int64_t step) const {
    const std::vector<SavedStep> steps = saved_steps(folder);
    for (size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].step == step) return i;
    }
    return steps.size();
  }

  std::vector<int64_t> steps() const {
    std::vector<int64_t> numbers;
    for (const SavedStep& saved : saved_steps(folder)) numbers.push_back(saved.step);
    return numbers;
  }

  // The step that a job would go on from; what was said about others.
  int64_t resumed(std::string* said = nullptr) const {
    const auto good = newest_good(folder, [&](const SavedStep&, const std::string& fault) {
      if (said != nullptr) *said += fault + "\n";
    });
    return good ? good->step : -1;
  }

  const std::string shard = "/w00000-model.safetensors";
};

TEST_F(StepFolder, HasWhatWasCommitted) {
  EXPECT_EQ(resumed(), -1);
  EXPECT_FALSE(newest_good(folder + "/none", [](auto&&...) {}).has_value());
  save_step(folder, 3, some_tensors(3));
  save_step(folder, 12, some_tensors(12));
  EXPECT_THAT(steps(), ElementsAre(3, 12));
  EXPECT_EQ(resumed(), 12);
  EXPECT_EQ(load_step(path_of(3)), some_tensors(3));
  EXPECT_EQ(load_step(path_of(12)), some_tensors(12));
  EXPECT_EQ(bytes_of_file(folder + "/latest"), "step-00000012\n");
}

TEST_F(StepFolder, ReplacesACheckpointOfTheSameStep) {
  save_step(folder, 3, some_tensors(3));
  save_step(folder, 3, some_tensors(4));
  EXPECT_EQ(load_step(path_of(3)), some_tensors(4));
  EXPECT_FALSE(fs::exists(path_of(3) + ".partial"));
}

TEST_F(StepFolder, DoesNotTakeOneThatIsNotFinished) {
  save_step(folder, 3, some_tensors());
  begin_step(folder, 4);
  fs::create_directory(folder + "/step-5");  // one name a step
  fs::create_directory(folder + "/step-00000006x");
  EXPECT_EQ(resumed(), 3);
  EXPECT_THAT(steps(), ElementsAre(3));
}

TEST_F(StepFolder, FallsBackFromAFlippedBit) {
  save_step(folder, 1, some_tensors());
  save_step(folder, 2, some_tensors());
  flip_bit(path_of(2) + shard, bytes_of_file(path_of(2) + shard).size() - 9, 3);
  std::string said;
  EXPECT_EQ(resumed(&said), 1);
  EXPECT_THAT(said, HasSubstr("w00000-model.safetensors: block 0 of 1"));
}

TEST_F(StepFolder, FallsBackFromAFileThatIsCutShort) {
  save_step(folder, 1, some_tensors());
  save_step(folder, 2, some_tensors());
  fs::resize_file(path_of(2) + shard, 4100);
  std::string said;
  EXPECT_EQ(resumed(&said), 1);
  EXPECT_THAT(said, HasSubstr("w00000-model.safetensors: it has 4100 bytes, and was written with"));
}

TEST_F(StepFolder, FallsBackFromAMissingFile) {
  save_step(folder, 1, some_tensors());
  save_step(folder, 2, some_tensors());
  fs::remove(path_of(2) + shard);
  std::string said;
  EXPECT_EQ(resumed(&said), 1);
  EXPECT_THAT(said, HasSubstr("w00000-model.safetensors: No such file"));
}

TEST_F(StepFolder, FallsBackFromAMissingManifest) {
  save_step(folder, 1, some_tensors());
  save_step(folder, 2, some_tensors());
  fs::remove(path_of(2) + "/manifest.json");
  std::string said;
  EXPECT_EQ(resumed(&said), 1);
  EXPECT_THAT(said, HasSubstr("manifest.json: No such file"));
}

TEST_F(StepFolder, FallsBackFromTheFolderOfAnotherStep) {
  save_step(folder, 1, some_tensors());
  fs::copy(path_of(1), folder + "/step-00000009");
  std::string said;
  EXPECT_EQ(resumed(&said), 1);
  EXPECT_THAT(said, HasSubstr("it is of step 1"));
}

TEST_F(StepFolder, FindsABitThatIsFlippedAnywhere) {
  save_step(folder, 1, some_tensors());
  const std::string path = path_of(1);
  std::mt19937 random(2);
  int found = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::string file = path + (i % 2 == 0 ? shard : "/manifest.json");
    const size_t byte = random() % bytes_of_file(file).size();
    const int bit = static_cast<int>(random() % 8);
    flip_bit(file, byte, bit);
    found += faults_of_step(path).empty() ? 0 : 1;
    flip_bit(file, byte, bit);
  }
  EXPECT_EQ(found, 1000);
  EXPECT_THAT(faults_of_step(path), ElementsAre());
}

TEST_F(StepFolder, KeepsTheLastAndThoseOfEvery) {
  for (const int64_t step : {5, 10, 15, 20, 25}) save_step(folder, step, some_tensors());
  begin_step(folder, 7);   // a killed job's
  begin_step(folder, 30);  // one that is being written
  EXPECT_THAT(remove_old_steps(folder, {0, 0}), ElementsAre());
  EXPECT_THAT(remove_old_steps(folder, {2, 10}), ElementsAre(5, 15));
  EXPECT_THAT(steps(), ElementsAre(10, 20, 25));
  EXPECT_THAT(remove_old_steps(folder, {1, 0}), ElementsAre(10, 20));
  EXPECT_FALSE(fs::exists(folder + "/step-00000007.partial"));
  EXPECT_TRUE(fs::exists(folder + "/step-00000030.partial"));
}

TEST_F(StepFolder, NeverRemovesTheLastGoodOne) {
  for (const int64_t step : {1, 2, 3, 4}) save_step(folder, step, some_tensors());
  fs::remove(path_of(3) + "/manifest.json");
  fs::remove(path_of(4) + "/manifest.json");
  EXPECT_THAT(remove_old_steps(folder, {2, 0}), ElementsAre(1));
  EXPECT_THAT(steps(), ElementsAre(2, 3, 4));
  EXPECT_EQ(resumed(), 2);
}

TEST_F(StepFolder, SaysWhereItCannotWrite) {
  write_bytes(folder + "/file", "");
  try {
    save_step(folder + "/file", 1, some_tensors());
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("\n  asked by: saving a checkpoint\n  try:      "));
  }
}

TEST_F(StepFolder, DoesNotCommitWhatIsNotWhole) {
  const std::string partial = begin_step(folder, 2);
  const TestTensors tensors = some_tensors();
  const TestTensor& weight = tensors.at("fc.weight");
  Manifest manifest;
  manifest.step = 2;
  write_shard(
      manifest, partial, "w00000-model.safetensors",
      {{"fc.weight", weight.type, weight.shape, rows(weight.shape, 0, 3), weight.bytes.data()}});
  EXPECT_THROW(commit_step(folder, manifest), Error);
  EXPECT_THAT(steps(), ElementsAre());
}

}  // namespace
}  // namespace epl

// Trainer::save and load: all of a training in one file, whole or not at all.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "driver/test_trainer.h"

namespace epl {
namespace {

using torch::Tensor;
namespace fs = std::filesystem;

std::string contents_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream contents;
  contents << file.rdbuf();
  return contents.str();
}

struct CheckpointFile : TrainerFixture {
  CheckpointFile() : folder(fs::path(testing::TempDir()) / "epl_checkpoint_file_test") {
    fs::remove_all(folder);
    fs::create_directories(folder);
  }
  ~CheckpointFile() override { fs::remove_all(folder); }

  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  std::string path(const std::string& name) const { return (folder / name).string(); }

  const fs::path folder;
};

using Names = std::vector<std::string>;

TEST_F(CheckpointFile, HoldsParametersBuffersAndOptimizerState) {
  SmallTask task;
  Trainer trainer = task.trainer();
  for (int i = 0; i < 3; ++i) trainer.step(rows(4, i));
  trainer.save(path("saved"));
  EXPECT_EQ(files(), Names{"saved"});

  SmallTask other(/*seed=*/2);
  Trainer from_file = other.trainer();
  from_file.load(path("saved"));
  EXPECT_TRUE(same(other.tensors(), task.tensors()));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(from_file.step(rows(4, i)).loss, trainer.step(rows(4, i)).loss);
  }
  EXPECT_TRUE(same(other.tensors(), task.tensors()));
}

TEST_F(CheckpointFile, HoldsSeveralModulesAndOptimizers) {
  const auto train = [&](uint64_t seed, const std::function<void(Trainer&)>& then) {
    SmallTask a(seed);
    SmallTask b(seed + 10);
    torch::optim::SGD sgd(a.net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    Trainer trainer({{"a", a.net}, {"b", b.net}}, {sgd, *b.optimizer}, [&](const Batch& batch) {
      return a.step()(batch).loss + b.step()(batch).loss;
    });
    trainer.step(rows(4));
    then(trainer);
    trainer.step(rows(4, 2));
    std::vector<Tensor> all = a.tensors();
    for (const Tensor& tensor : b.tensors()) all.push_back(tensor);
    return all;
  };
  const auto first = train(1, [&](Trainer& trainer) { trainer.save(path("both")); });
  const auto second = train(5, [&](Trainer& trainer) { trainer.load(path("both")); });
  EXPECT_TRUE(same(first, second));
}

// An optimizer may train tensors that no module holds, such as an image.
TEST_F(CheckpointFile, HoldsTensorsThatAreInNoModule) {
  const auto train = [&](double start, const std::function<void(Trainer&)>& then) {
    Tensor image = torch::full({2, 3}, start, torch::requires_grad());
    torch::optim::Adam adam(std::vector<Tensor>{image}, 0.1);
    Trainer trainer({}, {adam}, [&](const Batch&) { return image.pow(2).sum(); });
    trainer.step();
    then(trainer);
    trainer.step();
    return std::vector<Tensor>{image.detach().clone()};
  };
  const auto first = train(1, [&](Trainer& trainer) { trainer.save(path("image")); });
  const auto second = train(5, [&](Trainer& trainer) { trainer.load(path("image")); });
  EXPECT_TRUE(same(first, second));
}

TEST_F(CheckpointFile, LoadedBetweenStepsIsWhereTrainingGoesOn) {
  SmallTask task;
  Trainer trainer = task.trainer();
  trainer.step(rows(4));
  trainer.save(path("saved"));
  trainer.step(rows(4));
  const auto two_steps = task.tensors();
  trainer.load(path("saved"));
  trainer.step(rows(4));
  EXPECT_TRUE(same(task.tensors(), two_steps));
}

TEST_F(CheckpointFile, OfAFreshModelBringsBackAnOptimizerWithoutState) {
  SmallTask task;
  Trainer trainer = task.trainer();
  const auto fresh = task.tensors();
  trainer.save(path("fresh"));
  trainer.step(rows(4));
  const auto one_step = task.tensors();
  trainer.load(path("fresh"));
  EXPECT_TRUE(same(task.tensors(), fresh));
  trainer.step(rows(4));
  EXPECT_TRUE(same(task.tensors(), one_step));
}

// --- writing that fails -------------------------------------------------------------------------

TEST_F(CheckpointFile, InAFolderThatDoesNotExistIsAnError) {
  SmallTask task;
  const std::string message = error_of([&] { task.trainer().save(path("nowhere/saved")); });
  EXPECT_EQ(message, "epl: cannot write " + path("nowhere/saved") +
                         ": No such file or directory\n"
                         "  asked by: epl::Trainer::save\n"
                         "  try:      a folder that exists, may be written and has room");
  EXPECT_EQ(files(), Names{});
}

TEST_F(CheckpointFile, StaysWholeWhereTheNextOneCannotBeWritten) {
  SmallTask task;
  Trainer trainer = task.trainer();
  trainer.save(path("saved"));
  const std::string before = contents_of(path("saved"));
  fs::create_directories(path("saved.unfinished/in_the_way"));
  trainer.step(rows(4));
  EXPECT_NE(error_of([&] { trainer.save(path("saved")); }), "no error");
  EXPECT_EQ(contents_of(path("saved")), before);
  fs::remove_all(path("saved.unfinished"));
  trainer.save(path("saved"));
  EXPECT_NE(contents_of(path("saved")), before);
  EXPECT_EQ(files(), Names{"saved"});
}

// LibTorch's writer throws on a full disk and once more in its destructor: that ended the process.
TEST_F(CheckpointFile, OnAFullDiskIsAnErrorAndTheOldOneStaysWhole) {
  SmallTask task;
  Trainer trainer = task.trainer();
  trainer.save(path("saved"));
  const std::string before = contents_of(path("saved"));
  fs::create_symlink("/dev/full", path("saved.unfinished"));
  trainer.step(rows(4));
  EXPECT_EQ(error_of([&] { trainer.save(path("saved")); }),
            "epl: cannot write " + path("saved") +
                ": No space left on device\n"
                "  asked by: epl::Trainer::save\n"
                "  try:      a folder that exists, may be written and has room");
  EXPECT_EQ(contents_of(path("saved")), before);
  EXPECT_EQ(files(), Names{"saved"});
  trainer.step(rows(4));
  trainer.save(path("saved"));
  EXPECT_NE(contents_of(path("saved")), before);
}

TEST_F(CheckpointFile, UnderTheNameOfAFolderIsAnErrorThatLeavesNoFile) {
  SmallTask task;
  fs::create_directories(path("folder/full"));
  EXPECT_EQ(error_of([&] { task.trainer().save(path("folder")); }),
            "epl: cannot write " + path("folder") +
                ": Is a directory\n"
                "  asked by: epl::Trainer::save\n"
                "  try:      a folder that exists, may be written and has room");
  EXPECT_EQ(files(), Names{"folder"});
}

// --- files that do not fit ----------------------------------------------------------------------

struct WrongFile : CheckpointFile {
  // The message of loading `name` into a task that has made a step; nothing has changed, and the
  // next step works.
  std::string error_of_load(const std::string& name) {
    SmallTask task;
    Trainer trainer = task.trainer();
    trainer.step(rows(4));
    const auto before = task.tensors();
    const std::string message = error_of([&] { trainer.load(path(name)); });
    EXPECT_TRUE(same(task.tensors(), before));
    trainer.step(rows(4));
    return message;
  }
};

TEST_F(WrongFile, ThatDoesNotExist) {
  const std::string message = error_of_load("missing");
  EXPECT_EQ(message.find("epl: cannot read " + path("missing") + ": "), 0) << message;
  EXPECT_NE(message.find("\n  asked by: epl::Trainer::load\n"
                         "  try:      a file that epl::Trainer::save wrote"),
            std::string::npos)
      << message;
}

TEST_F(WrongFile, ThatIsNoArchive) {
  std::ofstream(path("text")) << "no checkpoint";
  EXPECT_EQ(error_of_load("text").find("epl: cannot read " + path("text") + ": "), 0);
}

TEST_F(WrongFile, ThatIsCutOff) {
  SmallTask task;
  task.trainer().save(path("saved"));
  fs::resize_file(path("saved"), fs::file_size(path("saved")) / 2);
  EXPECT_EQ(error_of_load("saved").find("epl: cannot read " + path("saved") + ": "), 0);
}

TEST_F(WrongFile, ThatTorchSaveWroteOfTheModuleAlone) {
  SmallTask task;
  torch::save(task.net, path("module"));
  EXPECT_EQ(error_of_load("module").find("epl: cannot read " + path("module") + ": "), 0);
}

TEST_F(WrongFile, OfAnotherOptimizer) {
  SmallTask task;
  torch::optim::SGD sgd(task.net->first->parameters(), 0.1);
  Trainer(task.net, sgd, task.step()).save(path("sgd"));
  EXPECT_EQ(error_of_load("sgd").find("epl: cannot read " + path("sgd") + ": "), 0);
}

TEST_F(WrongFile, OfAnotherWidth) {
  auto wide = std::make_shared<SmallNet>(/*width=*/5);
  torch::optim::Adam optimizer(wide->parameters(), 0.1);
  Trainer(wide, optimizer, [](const Batch&) { return Tensor(); }).save(path("wide"));
  EXPECT_EQ(error_of_load("wide"),
            "epl: cannot read " + path("wide") +
                ": `first.weight` is float[5, 3] in the file and float[4, 3] in the model\n"
                "  asked by: epl::Trainer::load\n"
                "  try:      a file that epl::Trainer::save wrote");
}

}  // namespace
}  // namespace epl

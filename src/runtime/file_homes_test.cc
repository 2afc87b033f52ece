#include "runtime/file_homes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "comm/watch.h"

namespace epl {
namespace {

using Part = FileHomes::Part;

// A folder of its own, so that whatever is left there is seen.
class FileHomesTest : public testing::Test {
 protected:
  FileHomesTest() {
    std::string name = testing::TempDir() + "epl-homes-XXXXXX";
    folder = mkdtemp(name.data());
  }
  ~FileHomesTest() override { std::filesystem::remove_all(folder); }
  bool is_empty() const { return std::filesystem::is_empty(folder); }

  std::string folder;
  comm::Watch watch;
};

// Bytes of this process that lie in pages of files.
int64_t resident_in_files() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("RssFile:", 0) == 0) return std::stoll(line.substr(8)) * 1024;
  }
  return 0;
}

std::string text_of_error(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(FileHomesTest, EverybodyWhoHoldsTheStorageSeesTheSame) {
  FileHomes homes(folder, watch);
  torch::Tensor weight = torch::arange(4096.0).view({64, 64});
  const torch::Tensor view = weight[3];
  const torch::Tensor before = weight.clone();
  const void* const memory = weight.data_ptr();
  EXPECT_FALSE(homes.has(weight));
  homes.take_in({weight});
  EXPECT_TRUE(homes.has(weight));
  EXPECT_NE(weight.data_ptr(), memory);
  EXPECT_TRUE(weight.equal(before));
  weight[3].fill_(7);
  EXPECT_TRUE(view.equal(torch::full({64}, 7.0f)));
  homes.rest();
  EXPECT_EQ(view.sum().item<float>(), 64 * 7);
  EXPECT_TRUE(is_empty());
}

TEST_F(FileHomesTest, WhatIsStoredTakesNoMemoryAndIsNotLost) {
  FileHomes homes(folder, watch);
  constexpr int64_t kBytes = 32 << 20;
  torch::Tensor weight = torch::randn({kBytes / 4});
  const torch::Tensor before = weight.clone();
  homes.take_in({weight});
  homes.settle();
  const int64_t away = resident_in_files();
  for (int round = 0; round < 3; ++round) {
    homes.begin_lap();
    homes.fetch({weight}, Part::kParameter);
    homes.wait({weight}, Part::kParameter);
    EXPECT_EQ(homes.most_near(), kBytes);
    EXPECT_GE(resident_in_files(), away + kBytes * 9 / 10);
    weight.add_(1);
    homes.store({weight}, Part::kParameter);
    homes.settle();
    EXPECT_EQ(homes.near(), 0);
    EXPECT_LE(resident_in_files(), away + kBytes / 10);
  }
  EXPECT_TRUE(weight.equal(before + 1 + 1 + 1));
}

TEST_F(FileHomesTest, WhatSeveralHaveFetchedStaysUntilTheLastHasStored) {
  FileHomes homes(folder, watch);
  torch::Tensor weight = torch::randn({1 << 20});
  homes.take_in({weight});
  homes.fetch({weight}, Part::kParameter);
  homes.fetch({weight}, Part::kParameter);
  homes.wait({weight}, Part::kParameter);
  homes.store({weight}, Part::kParameter);
  homes.settle();
  EXPECT_EQ(homes.near(), 4 << 20);
  homes.store({weight}, Part::kParameter);
  homes.settle();
  EXPECT_EQ(homes.near(), 0);
}

TEST_F(FileHomesTest, StatesBelongToTheirParameter) {
  FileHomes homes(folder, watch);
  torch::Tensor weight = torch::randn({100, 300}).t();
  homes.take_in({weight});
  homes.reserve(HomeFile::rounded(100 * 300 * 4));
  torch::Tensor state = homes.zeros_for(weight);
  EXPECT_TRUE(homes.has(state));
  EXPECT_EQ(state.sizes(), weight.sizes());
  EXPECT_EQ(state.strides(), weight.strides());
  EXPECT_TRUE(state.equal(torch::zeros_like(weight)));
  state.add_(weight);
  homes.rest();
  homes.settle();
  homes.fetch({weight}, Part::kStates);
  homes.wait({weight}, Part::kStates);
  EXPECT_EQ(homes.near(), HomeFile::rounded(100 * 300 * 4));
  homes.store({weight}, Part::kStates);
  homes.settle();
  EXPECT_EQ(homes.near(), 0);
  EXPECT_TRUE(state.equal(weight));
  const torch::Tensor other = torch::randn({100, 300});
  homes.take_in({other});
  homes.set_states(weight, {other});
  homes.fetch({weight}, Part::kStates);
  homes.wait({weight}, Part::kStates);
  EXPECT_EQ(homes.near(), HomeFile::rounded(100 * 300 * 4));
  homes.rest();
}

TEST_F(FileHomesTest, WhatIsReservedIsForStatesAlone) {
  FileHomes homes(folder, watch);
  torch::Tensor weight = torch::randn({1024});
  homes.reserve(2 * 4096);
  homes.take_in({weight, torch::randn({1024})});  // in a file of their own
  const torch::Tensor first = homes.zeros_for(weight);
  homes.reserve(4096);  // which is still there
  const torch::Tensor second = homes.zeros_for(weight);
  const torch::Tensor third = homes.zeros_for(weight);
  EXPECT_TRUE(homes.has(first));
  EXPECT_TRUE(homes.has(second));
  EXPECT_FALSE(homes.has(third));  // no file is made while an update runs
  EXPECT_TRUE(third.equal(torch::zeros({1024})));
  const torch::Tensor with_gaps = torch::randn({32, 64}).slice(1, 0, 32);
  homes.reserve(4096);
  EXPECT_FALSE(homes.has(homes.zeros_for(with_gaps)));
}

TEST_F(FileHomesTest, AChildThatFreesItsTensorsLeavesThoseOfItsParent) {
  FileHomes homes(folder, watch);
  torch::Tensor weight = torch::randn({1 << 16});
  const torch::Tensor before = weight.clone();
  homes.take_in({weight});
  homes.settle();
  const pid_t child = fork();
  if (child == 0) {
    weight.reset();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(weight.equal(before));
}

// The descriptor of the one file in a folder.
int descriptor_in(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.rfind(folder, 0) == 0) return std::stoi(entry.path().filename().string());
  }
  return -1;
}

// By a descriptor through which nothing can be written.
TEST_F(FileHomesTest, WhatCannotBeWrittenStaysInMemoryAndIsAnErrorFromThenOn) {
  FileHomes homes(folder, watch);
  torch::Tensor weight = torch::randn({1 << 16});
  const torch::Tensor before = weight.clone();
  homes.take_in({weight});
  homes.settle();
  homes.rest();
  homes.settle();
  const int descriptor = descriptor_in(folder);
  const int path = open(folder.c_str(), O_PATH | O_CLOEXEC);
  ASSERT_GE(descriptor, 0);
  ASSERT_EQ(dup2(path, descriptor), descriptor);
  close(path);
  homes.fetch({weight}, Part::kParameter);
  homes.wait({weight}, Part::kParameter);
  weight.add_(1);
  homes.store({weight}, Part::kParameter);
  homes.settle();
  const std::string complaint = "cannot write what is offloaded: ";
  for (int i = 0; i < 2; ++i) {
    EXPECT_NE(text_of_error([&] { homes.rest(); }).find(complaint), std::string::npos) << i;
    EXPECT_NE(text_of_error([&] { homes.check_written(); }).find(complaint), std::string::npos);
    EXPECT_NE(text_of_error([&] { homes.wait({weight}, Part::kParameter); }).find(complaint),
              std::string::npos);
  }
  EXPECT_EQ(
      text_of_error([&] { homes.wait({weight}, Part::kParameter, FileHomes::Access::kWrite); }),
      "no error");
  EXPECT_TRUE(weight.equal(before + 1));
}

TEST_F(FileHomesTest, FilesAreGoneWithTheirTensors) {
  torch::Tensor weight = torch::randn({1 << 20});
  {
    FileHomes homes(folder, watch);
    homes.take_in({weight});
  }
  EXPECT_EQ(weight.sum().item<float>(), weight.clone().sum().item<float>());
  EXPECT_TRUE(is_empty());
}

TEST_F(FileHomesTest, AProcessThatIsKilledLeavesNoFile) {
  const pid_t child = fork();
  if (child == 0) {
    const auto file = HomeFile::make(folder, 1 << 20);
    const c10::DataPtr memory = file->take(1 << 20);
    static_cast<char*>(memory.get())[0] = 1;
    raise(SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(is_empty());
}

TEST_F(FileHomesTest, AFolderThatIsNotThereIsAnError) {
  EXPECT_EQ(text_of_error([&] { FileHomes(folder + "/none", watch); }),
            "epl: there is no folder \"" + folder + "/none\"\n  asked by: offload.path = \"" +
                folder + "/none\"\n  try:      a folder that exists");
  std::ofstream(folder + "/file") << "text";
  EXPECT_NE(text_of_error([&] { FileHomes(folder + "/file", watch); }).find("there is no folder"),
            std::string::npos);
  std::filesystem::remove(folder + "/file");
}

// Root may write wherever it likes, but not to what the kernel shows.
TEST_F(FileHomesTest, AFolderThatCannotBeWrittenToIsAnError) {
  EXPECT_NE(text_of_error([&] { FileHomes("/proc", watch); }).find("cannot write to the folder"),
            std::string::npos);
}

// By a limit on the size of files: the same call fails, with another number. A disk that is full
// has it from its own.
TEST_F(FileHomesTest, NoRoomIsAnErrorAtTheBeginningAndLeavesAllAsItWas) {
  signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  FileHomes homes(folder, watch);
  torch::Tensor weight = torch::randn({1 << 20});
  const torch::Tensor copy = weight.clone();
  const void* const memory = weight.data_ptr();
  rlimit small = before;
  small.rlim_cur = 1 << 20;
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string text = text_of_error([&] { homes.take_in({weight}); });
  const std::string states = text_of_error([&] { homes.reserve(4 << 20); });
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_NE(text.find("no room for 4.0 MiB in \"" + folder), std::string::npos) << text;
  EXPECT_NE(states.find("no room for 4.0 MiB"), std::string::npos) << states;
  EXPECT_EQ(weight.data_ptr(), memory);
  EXPECT_TRUE(weight.equal(copy));
  EXPECT_TRUE(is_empty());
}

}  // namespace
}  // namespace epl

// What the account of memory says, and what the system says.
//
// States of an optimizer are pages of their own, which the account once left out: it said 0.45 of
// the plain loop's memory where the system said 0.81.
#include <fstream>

#include "driver/test_trainer.h"
#include "runtime/device_memory.h"
#include "runtime/pages.h"

namespace epl {
namespace {

using torch::Tensor;

constexpr double kMegabyte = 1 << 20;

double megabytes_of_process(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name + ":", 0) == 0) return std::stod(line.substr(name.size() + 1)) / 1024;
  }
  return 0;
}

struct Peaks {
  double account = 0;
  double system = 0;
  double mapped = 0;
};

// Of three steps of a net with 16 MB of parameters, so of 32 MB of Adam's states.
template <typename Step>
Peaks peaks_of(const Step& train) {
  std::ofstream("/proc/self/clear_refs") << "5";  // VmHWM begins anew
  const double before = megabytes_of_process("VmRSS");
  DeviceMemory memory;
  DeviceMemory::Use use(memory);
  torch::manual_seed(0);
  torch::nn::Sequential net(torch::nn::Linear(1024, 2048), torch::nn::ReLU(),
                            torch::nn::Linear(2048, 1024));
  torch::optim::Adam optimizer(net->parameters(), 1e-3);
  const Tensor x = torch::randn({64, 1024});
  train(net, optimizer, x);
  const auto account = memory.account();
  return {static_cast<double>(account.peak) / kMegabyte, megabytes_of_process("VmHWM") - before,
          static_cast<double>(account.mapped) / kMegabyte};
}

void train_by_epl(torch::nn::Sequential& net, torch::optim::Adam& optimizer, const Tensor& x) {
  Trainer trainer(net, optimizer, [&](const Batch& batch) {
    return (net->forward(batch[0]) - batch[0]).square().mean();
  });
  for (int i = 0; i < 3; ++i) trainer.step({x});
}

void train_plainly(torch::nn::Sequential& net, torch::optim::Adam& optimizer, const Tensor& x) {
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    (net->forward(x) - x).square().mean().backward();
    optimizer.step();
  }
}

using MemoryAccount = TrainerFixture;

TEST_F(MemoryAccount, IsNearTheSystemsFigure) {
  peaks_of(train_by_epl);  // libraries and kernels come into memory
  peaks_of(train_plainly);
  const Peaks plain = peaks_of(train_plainly);
  const Peaks epl = peaks_of(train_by_epl);
  if (plain.system < 32) GTEST_SKIP() << "this system does not reset VmHWM";
  EXPECT_NEAR(epl.mapped, 32, 1) << "the states of Adam";
  // Huge pages at the ends of segments, and what libraries keep for themselves: on both sides
  // alike.
  EXPECT_NEAR(epl.account, epl.system, 0.1 * epl.system + 20);
  EXPECT_NEAR(plain.account, plain.system, 0.1 * plain.system + 20);
  EXPECT_NEAR(epl.account / plain.account, epl.system / plain.system, 0.1);
}

TEST_F(MemoryAccount, CountsWrittenPagesAloneAndForgetsThemWithTheirTensor) {
  DeviceMemory memory;
  DeviceMemory::Use use(memory);
  Tensor like = torch::empty({4096, 1024});
  const int64_t before = memory.account().in_use;
  Tensor zeros = zeros_by_page(like);
  EXPECT_EQ(memory.account().mapped, 0);
  zeros.narrow(0, 1024, 1024).fill_(1);
  DeviceMemory::note_changed_pages();
  EXPECT_NEAR(static_cast<double>(memory.account().mapped) / kMegabyte, 4, 2.1);  // huge pages
  EXPECT_EQ(memory.account().in_use, before + memory.account().mapped);
  const int64_t peak = memory.account().peak;
  EXPECT_EQ(peak, memory.account().in_use);
  zeros = Tensor();
  EXPECT_EQ(memory.account().mapped, 0);
  EXPECT_EQ(memory.account().in_use, before);
  EXPECT_EQ(memory.account().peak, peak);
}

}  // namespace
}  // namespace epl

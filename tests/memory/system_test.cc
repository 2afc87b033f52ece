// What a plan says it needs of memory is what the system gives to the process, less its libraries.
// A process of its own, so that it holds nothing of other tests.
#include <epl/epl.h>
#include <gtest/gtest.h>

#include <fstream>

namespace epl {
namespace {

constexpr double kMegabyte = 1 << 20;

double megabytes_of_process(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name + ":", 0) == 0) return std::stod(line.substr(name.size() + 1)) / 1024;
  }
  return 0;
}

// Begins VmHWM anew; false where the system does not let it.
bool reset_peak() {
  std::ofstream refs("/proc/self/clear_refs");
  return static_cast<bool>(refs << "5" << std::flush);
}

// Kernels and their buffers come into memory, which are none of EPL's.
void warm_up() {
  const torch::Tensor x = torch::randn({256, 256}, torch::requires_grad());
  torch::mm(x, x).relu().square().mean().backward();
}

TEST(Forecast, IsWhatTheSystemGives) {
  if (megabytes_of_process("VmHWM") == 0 || !reset_peak()) {
    GTEST_SKIP() << "this system does not tell the peak of a process (/proc/self/clear_refs)";
  }
  init();
  torch::set_num_threads(1);
  warm_up();
  const double before = megabytes_of_process("RssAnon");
  torch::nn::Sequential net;  // of 112 MB
  for (int i = 0; i < 7; ++i) {
    net->push_back(torch::nn::Linear(2048, 2048));
    net->push_back(torch::nn::GELU());
  }
  torch::optim::AdamW optimizer(net->parameters(), 1e-4);
  Trainer trainer(net, optimizer,
                  [&](const Batch& batch) { return net->forward(batch[0]).square().mean(); });
  const Batch batch = {torch::randn({128, 2048})};
  const MemoryReport forecast = trainer.forecast(batch);
  for (int step = 0; step < 3; ++step) trainer.step(batch);
  reset_peak();
  for (int step = 0; step < 2; ++step) trainer.step(batch);
  const double system = megabytes_of_process("VmHWM") - megabytes_of_process("RssFile") - before;
  const MemoryReport memory = trainer.memory();
  const double planned = static_cast<double>(forecast.workers.at(0).peak()) / kMegabyte;
  const double account = static_cast<double>(memory.workers.at(0).measured().value()) / kMegabyte;
  EXPECT_GT(planned, 4 * 112);
  EXPECT_NEAR(planned, system, 0.03 * system) << memory.str();
  EXPECT_NEAR(account, system, 0.03 * system) << memory.str();
}

}  // namespace
}  // namespace epl

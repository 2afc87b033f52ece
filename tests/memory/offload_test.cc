// What a plan says is near of parameters and states that rest in a file is what the system gives to
// the process. A process of its own, so that it holds nothing of other tests.
#include <epl/epl.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

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

// Kernels and their buffers come into memory, which are none of EPL's: with the sizes of the step.
void warm_up() {
  const torch::Tensor x = torch::randn({32, 1024}, torch::requires_grad());
  torch::nn::Linear layer(1024, 1024);
  torch::gelu(layer(x)).square().mean().backward();
}

// What the C library keeps of memory that was freed is none of EPL's either: large blocks go back
// at once, whatever was freed before, and small ones now.
void keep_no_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
  malloc_trim(0);
}

TEST(Offload, HoldsWhatTheForecastSaysIsNear) {
  if (megabytes_of_process("VmHWM") == 0 || !reset_peak()) {
    GTEST_SKIP() << "this system does not tell the peak of a process (/proc/self/clear_refs)";
  }
  init(Config{{"offload.level", "v1"}, {"offload.path", testing::TempDir()}});
  torch::set_num_threads(1);
  keep_no_freed_memory();
  warm_up();
  keep_no_freed_memory();
  const double before = megabytes_of_process("RssAnon");
  torch::nn::Sequential net;  // of 128 MB; 384 MB with its states
  for (int i = 0; i < 32; ++i) {
    net->push_back(torch::nn::Linear(1024, 1024));
    net->push_back(torch::nn::GELU());
  }
  torch::optim::AdamW optimizer(net->parameters(), 1e-4);
  Trainer trainer(net, optimizer,
                  [&](const Batch& batch) { return net->forward(batch[0]).square().mean(); });
  const Batch batch = {torch::randn({32, 1024})};
  const MemoryReport forecast = trainer.forecast(batch);
  for (int step = 0; step < 3; ++step) trainer.step(batch);
  sleep(2);  // until what is written has gone
  const double libraries = megabytes_of_process("RssFile");
  keep_no_freed_memory();
  reset_peak();
  for (int step = 0; step < 2; ++step) trainer.step(batch);
  const double system = megabytes_of_process("VmHWM") - libraries - before;
  const MemoryReport memory = trainer.memory();
  const double planned = static_cast<double>(forecast.workers.at(0).peak()) / kMegabyte;
  const double account = static_cast<double>(memory.workers.at(0).measured().value()) / kMegabyte;
  // Gradients take 128 MB, values little; the rest is what is near of 384 MB.
  EXPECT_LT(planned, 128 + 0.45 * 384) << memory.str();
  EXPECT_LT(system, 1.05 * planned) << memory.str();
  EXPECT_GT(system, 0.8 * planned) << memory.str();
  EXPECT_LT(account, 1.02 * planned) << memory.str();
  EXPECT_GT(account, 0.8 * planned) << memory.str();
}

}  // namespace
}  // namespace epl

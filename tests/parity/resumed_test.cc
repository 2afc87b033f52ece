// A training that is resumed from a file goes on as if it had not stopped, dropout on several
// devices included: the streams of devices other than the first began anew.
#include <ATen/CPUGeneratorImpl.h>

#include "tests/parity/on_devices.h"
#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

struct Training {
  Training() {
    torch::manual_seed(3);
    net = torch::nn::Sequential(torch::nn::Linear(6, 16), torch::nn::Dropout(0.5),
                                torch::nn::Linear(16, 3));
    optimizer = std::make_unique<torch::optim::Adam>(net->parameters(), 0.05);
    trainer = std::make_unique<Trainer>(net, *optimizer, [this](const Batch& batch) {
      return cross_entropy(net->forward(batch[0]), batch[1]);
    });
  }
  void steps(int begin, int end) {
    for (int i = begin; i < end; ++i) {
      const auto own = at::make_generator<at::CPUGeneratorImpl>(100 + i);
      trainer->step({torch::randn({8, 6}, own), torch::randint(3, {8}, own, torch::kLong)});
    }
  }
  torch::nn::Sequential net{nullptr};
  std::unique_ptr<torch::optim::Adam> optimizer;
  std::unique_ptr<Trainer> trainer;
};

TEST(ResumedTraining, DrawsWhatItWouldHaveDrawnOnSeveralDevices) {
  const std::string path = testing::TempDir() + "epl_resumed_test";
  for (int devices : {1, 2, 4}) {
    const OnDevices some(devices);
    epl::init();
    Training through;
    through.steps(0, 6);
    torch::Tensor program;
    {
      Training first;
      first.steps(0, 3);
      first.trainer->save(path);
      program = at::detail::getDefaultCPUGenerator().get_state();
    }
    Training second;
    second.trainer->load(path);
    at::Generator(at::detail::getDefaultCPUGenerator()).set_state(program);
    second.steps(3, 6);
    EXPECT_TRUE(same_modules(*through.net, *second.net, bit_equal())) << devices << " devices";
  }
  std::remove(path.c_str());
}

}  // namespace
}  // namespace epl::parity

// Layouts whose lines stand in docs/split.md: they must run as they are written there.
#include "tests/parity/on_devices.h"
#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

using torch::Tensor;
using torch::nn::Linear;

Batch rows() { return {torch::randn({16, 6}), classes(12, {16})}; }

// "Only some layers": two of four layers are cut, the others are copied.
struct SomeWide : torch::nn::Module {
  SomeWide(int count, std::vector<std::string> scopes) : devices(count), names(std::move(scopes)) {
    register_module("first", first);
    register_module("middle", middle);
    register_module("third", third);
    register_module("classes", classes);
  }

  Tensor forward(Tensor x) {
    x = torch::relu(first->forward(x));
    {
      epl::With wide(epl::split(devices, names[0]));
      x = torch::relu(middle->forward(x));
    }
    x = torch::relu(third->forward(x));
    epl::With wide(epl::split(devices, names[1]));
    return classes->forward(x);
  }

  int devices;
  std::vector<std::string> names;
  Linear first{6, 8}, middle{8, 20}, third{20, 8}, classes{8, 12};
};

// The parameters after some steps by EPL, or by the plain loop.
std::vector<Tensor> train(const std::shared_ptr<SomeWide>& net, bool by_epl) {
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const StepFunction step = classification(net);
  Trainer trainer(net, optimizer, step);
  torch::manual_seed(2);
  for (int i = 0; i < 3; ++i) {
    const Batch batch = rows();
    if (by_epl) {
      trainer.step(batch);
      continue;
    }
    optimizer.zero_grad();
    step(batch).loss.backward();
    optimizer.step();
  }
  return net->parameters();
}

void expect_the_plain_loop(const std::vector<std::string>& scopes) {
  const auto make = [&] {
    torch::manual_seed(1);
    return std::make_shared<SomeWide>(2, scopes);
  };
  const std::vector<Tensor> plain = train(make(), false);
  const std::vector<Tensor> cut = train(make(), true);
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_TRUE(same_tensor("parameter " + std::to_string(i), plain[i].detach(), cut[i].detach(),
                            within(1e-5, "sums over devices in another order")));
  }
}

TEST(DocumentedLayouts, CutOnlySomeLayers) {
  const OnDevices on(2);
  epl::init(epl::Config{{"cluster.colocate_split_and_replicate", true}});
  const int devices = epl::Env::get().cluster.total_gpu_num;
  epl::set_default_strategy(epl::replicate(devices));
  expect_the_plain_loop({"middle", "classes"});
}

TEST(DocumentedLayouts, CutTwoLayersOverTheSameDevicesByOneName) {
  const OnDevices on(2);
  epl::init();
  expect_the_plain_loop({"wide", "wide"});
}

TEST(DocumentedLayouts, TakeTwoScopesOfDifferentNamesForTwoStages) {
  const OnDevices on(2);
  epl::init();
  try {
    expect_the_plain_loop({"middle", "classes"});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(
        std::string(error.what())
            .rfind("epl: 2 devices cannot be shared out over model replicas of 4 devices (2 + 2)",
                   0),
        0U)
        << error.what();
  }
}

}  // namespace
}  // namespace epl::parity

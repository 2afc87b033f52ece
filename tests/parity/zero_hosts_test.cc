// zero.level and early updates on workers of several hosts, which talk by TCP alone.
#include "tests/multiproc/test_hosts.h"
#include "tests/parity/zero_programs.h"

namespace epl::parity {
namespace {

// Worker i is on host places[i]. What the workers have in the end must be what one process has that
// trains on all rows.
void train_on_hosts(const TestHosts& hosts, const std::vector<int>& places, const char* level,
                    bool early) {
  SCOPED_TRACE(std::string(level) + (early ? ", early" : ""));
  run_on_workers(std::vector<int>(places.size(), 1), [&](int worker) {
    hosts.enter(places[static_cast<size_t>(worker)]);
    setenv("EPL_MASTER", (TestHosts::address(places[0]) + ":29400").c_str(), 1);
    epl::init(Config{{"zero.level", level}, {"optimizer.update_early", early}});
    const auto workers = static_cast<int64_t>(places.size());
    torch::manual_seed(3);
    auto net = wide_net();
    torch::manual_seed(3);
    auto plain_net = wide_net();
    torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-3));
    torch::optim::AdamW plain(plain_net->parameters(), torch::optim::AdamWOptions(1e-3));
    Trainer trainer(net, optimizer, classification(net));
    const auto plain_loss = classification(plain_net);
    for (int step = 0; step < 4; ++step) {
      torch::manual_seed(100 + step);
      const Batch batch = {torch::randn({12, 256}), torch::randint(7, {12})};
      Batch own;
      for (const auto& tensor : batch) {
        own.push_back(tensor.narrow(0, worker * 12 / workers, 12 / workers));
      }
      trainer.step(own);
      plain.zero_grad();
      plain_loss(batch).loss.backward();
      plain.step();
    }
    trainer.gather_parameters();
    for (size_t i = 0; i < net->parameters().size(); ++i) {
      EXPECT_TRUE(torch::allclose(net->parameters()[i], plain_net->parameters()[i], 1e-3, 1e-5))
          << net->named_parameters().keys()[i];
    }
  });
}

TEST(ZeroHosts, TrainTogether) {
  TestHosts hosts(3);
  if (!hosts.missing().empty()) GTEST_SKIP() << "this machine lacks " << hosts.missing();
  for (const char* level : {"v0", "v1", "v2"}) {
    train_on_hosts(hosts, {0, 1}, level, false);
    train_on_hosts(hosts, {0, 1, 2}, level, false);
    train_on_hosts(hosts, {0, 0, 1}, level, false);
  }
}

TEST(ZeroHosts, UpdateEarly) {
  TestHosts hosts(2);
  if (!hosts.missing().empty()) GTEST_SKIP() << "this machine lacks " << hosts.missing();
  for (const char* level : {"", "v0", "v1"}) train_on_hosts(hosts, {0, 1}, level, true);
}

}  // namespace
}  // namespace epl::parity

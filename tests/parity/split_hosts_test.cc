// Operators cut over devices of several hosts, which talk by TCP alone.
#include "tests/multiproc/test_hosts.h"
#include "tests/parity/split_pair.h"

namespace epl::parity {
namespace {

// Worker i is on host places[i].
void train_on_hosts(const TestHosts& hosts, const std::vector<int>& places, int devices,
                    bool gathers) {
  run_on_workers(std::vector<int>(places.size(), devices), [&](int worker) {
    hosts.enter(places[static_cast<size_t>(worker)]);
    setenv("EPL_MASTER", concat(TestHosts::address(places[0]), ":29400").c_str(), 1);
    epl::init(Config{{"pipeline.gather_parameters", gathers}});
    const int parts = devices * static_cast<int>(places.size());
    Adam pair(48, 101, parts, torch::optim::AdamOptions(1e-2));
    for (int i = 0; i < 4; ++i) pair.step(batch_of(8, 101, i));
    EXPECT_NE(pair.trainer.plan().find("is cut in dim 0"), std::string::npos);
    pair.trainer.gather_parameters();
    pair.expect_equal();
  });
}

TEST(SplitHosts, TrainTogether) {
  TestHosts hosts(3);
  if (!hosts.missing().empty()) GTEST_SKIP() << "this machine lacks " << hosts.missing();
  train_on_hosts(hosts, {0, 1}, 1, true);
  train_on_hosts(hosts, {0, 1, 2}, 1, false);
  train_on_hosts(hosts, {0, 1}, 2, false);
}

TEST(SplitHosts, TrainTogetherWithSeveralWorkersOnOne) {
  TestHosts hosts(2);
  if (!hosts.missing().empty()) GTEST_SKIP() << "this machine lacks " << hosts.missing();
  train_on_hosts(hosts, {0, 0, 1}, 1, true);
  train_on_hosts(hosts, {0, 1, 0}, 1, false);
}

}  // namespace
}  // namespace epl::parity

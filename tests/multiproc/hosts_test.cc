// Workers on several hosts: they talk, and when a host is cut off or a worker killed, all survivors
// stop in time and name the right one.
#include <ATen/ATen.h>

#include "base/text.h"
#include "comm/membership.h"
#include "comm/test_workers.h"
#include "tests/multiproc/test_hosts.h"

namespace epl {
namespace {

using ::testing::HasSubstr;

// Starts worker i on host places[i].
void start_on_hosts(TestWorkers& workers, const TestHosts& hosts, const std::vector<int>& places,
                    const std::function<void(Membership&, const Say&)>& body) {
  for (size_t index = 0; index < places.size(); ++index) {
    workers.start([=, &hosts](const Say& say) {
      hosts.enter(places[index]);
      JoinRequest request =
          request_for(static_cast<int>(index), static_cast<int>(places.size()), 29400);
      request.master_host = TestHosts::address(places[0]);
      const auto membership = join_job(request);
      body(*membership, say);
    });
  }
}

// Sums until the job fails. Says so once signs of life have told the others of its steps.
void sum_for_ever(Membership& membership, const Say& say) {
  const auto communicator = membership.make_communicator({"gradients"});
  const auto told = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
  bool said = false;
  for (int64_t step = 0;; ++step) {
    membership.watch().doing(step, "reduce", 0);
    communicator->all_reduce({at::ones({100'000})}, ReduceOp::kSum);
    if (said || std::chrono::steady_clock::now() < told) continue;
    said = true;
    say("training ");
  }
}

std::string sum_once(Membership& membership) {
  const auto communicator = membership.make_communicator({"gradients"});
  at::Tensor tensor = at::full({1000}, membership.index() + 1, at::kFloat);
  communicator->all_reduce({tensor}, ReduceOp::kSum);
  at::Tensor message = at::zeros({3});
  if (membership.index() == 0) communicator->send(at::ones({3}), communicator->size() - 1, 7);
  if (membership.index() == communicator->size() - 1) communicator->receive(message, 0, 7);
  communicator->barrier();
  return concat("sum ", tensor.min().item<float>(), " ", tensor.max().item<float>(), ", ",
                membership.workers()[1].host);
}

TEST(Hosts, WorkersOfDifferentHostsTalk) {
  TestHosts hosts(2);
  if (!hosts.missing().empty()) GTEST_SKIP() << "this machine lacks " << hosts.missing();
  TestWorkers workers;
  start_on_hosts(workers, hosts, {0, 1},
                 [](Membership& membership, const Say& say) { say(sum_once(membership)); });
  EXPECT_EQ(workers.words_of(0), "sum 3 3, host-1");
  EXPECT_EQ(workers.words_of(1), "sum 3 3, host-1");
}

TEST(Hosts, SeveralWorkersOfAHostTalkToOthers) {
  TestHosts hosts(2);
  if (!hosts.missing().empty()) GTEST_SKIP() << "this machine lacks " << hosts.missing();
  for (const std::vector<int>& places : {std::vector<int>{0, 0, 1}, {0, 1, 0}, {0, 1, 1}}) {
    TestWorkers workers;
    start_on_hosts(workers, hosts, places,
                   [](Membership& membership, const Say& say) { say(sum_once(membership)); });
    for (size_t index = 0; index < 3; ++index) {
      EXPECT_EQ(workers.words_of(index), concat("sum 6 6, host-", places[1]));
    }
  }
}

TEST(Hosts, AWorkerKilledOnAnotherHostIsNamed) {
  TestHosts hosts(3);
  if (!hosts.missing().empty()) GTEST_SKIP() << "this machine lacks " << hosts.missing();
  TestWorkers workers;
  start_on_hosts(workers, hosts, {0, 1, 2}, sum_for_ever);
  for (size_t index = 0; index < 3; ++index) workers.await(index, "training");
  const auto killed = std::chrono::steady_clock::now();
  workers.send_signal(1, SIGKILL);
  for (const size_t index : {0u, 2u}) {
    const std::string words = workers.words_of(index);
    EXPECT_THAT(words, HasSubstr(concat("worker 1 (pid ", workers.pid_of(1),
                                        " on host host-1) is gone: its process ended")));
    EXPECT_THAT(words, HasSubstr("it was last at about step "));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::seconds(10));
}

TEST(Hosts, AHostThatIsCutOffStopsAllWorkers) {
  for (const int cut : {1, 0}) {
    TestHosts hosts(3);
    if (!hosts.missing().empty()) GTEST_SKIP() << "this machine lacks " << hosts.missing();
    TestWorkers workers;
    start_on_hosts(workers, hosts, {0, 1, 2}, sum_for_ever);
    for (size_t index = 0; index < 3; ++index) workers.await(index, "training");
    const auto begin = std::chrono::steady_clock::now();
    hosts.cut_off(cut);
    const std::string silent = " is gone: it has been silent for 5 s";
    // Worker 0 is the judge: the others miss it, it misses the first of them.
    const std::string first = workers.words_of(0);
    EXPECT_THAT(first,
                HasSubstr(concat("worker 1 (pid ", workers.pid_of(1), " on host host-1)", silent)));
    EXPECT_THAT(workers.words_of(1),
                HasSubstr(concat("worker 0 (pid ", workers.pid_of(0), " on host host-0)", silent)));
    const std::string third = workers.words_of(2);
    EXPECT_THAT(third, HasSubstr(cut == 0 ? concat("on host host-0)", silent)
                                          : concat("on host host-1)", silent)));
    if (cut == 0) {
      EXPECT_THAT(first, HasSubstr("gone too: worker 2"));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  }
}

}  // namespace
}  // namespace epl

#include "cost/collective_cost.h"

#include <gtest/gtest.h>

#include <cmath>

namespace epl {
namespace {

const LinkAlgorithm kAlgorithms[] = {LinkAlgorithm::kThreads, LinkAlgorithm::kSharedMemory,
                                     LinkAlgorithm::kDirect, LinkAlgorithm::kRing};

std::vector<Collective> all_collectives() {
  std::vector<Collective> all;
  for (size_t i = 0; i < collective_names().size(); ++i) all.push_back(static_cast<Collective>(i));
  return all;
}

LinkKind link_with(LinkAlgorithm algorithm) {
  LinkKind link;
  link.name = "wire";
  link.gbps = 2;
  link.us = 10;
  link.message_us = 0.5;
  link.algorithm = algorithm;
  return link;
}

TEST(CollectiveCost, CountsWhatTheAlgorithmsDo) {
  const double mega = 1 << 20;
  // Over sockets: a share to each, the sums back; small tensors all at once.
  const CollectiveSteps direct = steps_of(LinkAlgorithm::kDirect, Collective::kAllReduce, mega, 4);
  EXPECT_EQ(direct.steps, 2);
  EXPECT_EQ(direct.messages, 6);
  EXPECT_EQ(direct.bytes, 1.5 * mega);
  const CollectiveSteps small = steps_of(LinkAlgorithm::kDirect, Collective::kAllReduce, 8192, 4);
  EXPECT_EQ(small.steps, 1);
  EXPECT_EQ(small.bytes, 3 * 8192);
  EXPECT_EQ(steps_of(LinkAlgorithm::kDirect, Collective::kReduceScatter, 9 * mega, 2).steps, 3);
  // Threads sum their share of all tensors and write it to all.
  const CollectiveSteps threads =
      steps_of(LinkAlgorithm::kThreads, Collective::kAllReduce, mega, 4);
  EXPECT_EQ(threads.steps, 1);
  EXPECT_EQ(threads.bytes, 2 * mega);
  // Processes copy chunks of 256 KiB out and sum them up.
  const CollectiveSteps board =
      steps_of(LinkAlgorithm::kSharedMemory, Collective::kAllReduce, mega, 2);
  EXPECT_EQ(board.steps, 1);
  EXPECT_EQ(board.messages, 4);
  EXPECT_EQ(board.bytes, 5 * mega);
  EXPECT_EQ(steps_of(LinkAlgorithm::kRing, Collective::kAllReduce, mega, 4).steps, 6);
}

TEST(CollectiveCost, OfOneMemberIsNothing) {
  for (const LinkAlgorithm algorithm : kAlgorithms) {
    for (const Collective collective : all_collectives()) {
      EXPECT_EQ(link_seconds(link_with(algorithm), collective, 1e6, 1), 0);
    }
  }
}

TEST(CollectiveCost, NeverFallsWithBytesOrMembers) {
  for (const LinkAlgorithm algorithm : kAlgorithms) {
    for (double message_us : {0.0, 0.5}) {
      LinkKind link = link_with(algorithm);
      link.message_us = message_us;
      for (const Collective collective : all_collectives()) {
        const auto name = collective_names()[static_cast<size_t>(collective)];
        for (int64_t members = 2; members < 3000; members += 1 + members / 3) {
          double before = 0;
          for (double bytes = 0; bytes < 1e10; bytes = bytes * 1.07 + 1) {
            const double seconds = link_seconds(link, collective, bytes, members);
            ASSERT_GE(seconds, before) << name << " of " << bytes << " with " << members;
            ASSERT_TRUE(std::isfinite(seconds));
            ASSERT_GE(link_seconds(link, collective, bytes, members + 1) * (1 + 1e-12), seconds)
                << name << " of " << bytes << " with " << members;
            before = seconds;
          }
        }
      }
    }
  }
}

TEST(CollectiveCost, FindsTheLinkThatTimesWereMadeOf) {
  for (const LinkAlgorithm algorithm : kAlgorithms) {
    LinkKind made = link_with(algorithm);
    made.message_us = 0;
    std::vector<CollectiveTime> times;
    for (const Collective collective : {Collective::kAllReduce, Collective::kAllGather}) {
      for (double bytes = 1024; bytes < 1e8; bytes *= 4) {
        CollectiveTime time{collective, 2, bytes, 0};
        time.seconds = seconds_of(steps_of(algorithm, collective, bytes, 2), made);
        times.push_back(time);
      }
    }
    LinkKind named;
    named.name = "wire";
    named.algorithm = algorithm;
    const LinkFit fit = fit_link(named, times);
    EXPECT_NEAR(fit.link.us, 10, 1e-4);
    EXPECT_NEAR(fit.link.gbps, 2, 1e-6);
    EXPECT_LT(fit.error, 1e-6);
    EXPECT_EQ(fit.link.name, "wire");
  }
}

TEST(CollectiveCost, SharesAPortAmongThoseWhoUseIt) {
  LinkKind link = link_with(LinkAlgorithm::kDirect);
  link.us = 1e-6;
  link.message_us = 0;
  const double alone = link_seconds(link, Collective::kAllToAll, 1e9, 4);
  EXPECT_NEAR(link_seconds(link, Collective::kAllToAll, 1e9, 4, 3) / alone, 3, 1e-6);
}

}  // namespace
}  // namespace epl

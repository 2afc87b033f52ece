#include "runtime/spread_tensor.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "runtime/test_pages.h"

namespace epl {
namespace {

constexpr int64_t kElements = 1 << 20;  // 4 MiB of float32: huge pages, where there are some

TEST(SpreadTensor, HoldsWhatTheTensorHeld) {
  NearAccount account;
  const at::Tensor given = at::rand({4, kElements / 4});
  const SpreadTensor spread(given, account);
  EXPECT_TRUE(at::equal(spread.tensor(), given));
  EXPECT_EQ(account.near(), 0);
}

TEST(SpreadTensor, KeepsItsRangeAlone) {
  for (int64_t begin : {int64_t{0}, kElements / 4, kElements / 2}) {
    NearAccount account;
    const at::Tensor given = at::rand({kElements});
    SpreadTensor spread(given, account);
    spread.keep({begin, kElements / 2});
    EXPECT_EQ(account.near(), 2 * kElements);
    spread.drop();
    EXPECT_NEAR(resident_share(spread.tensor()), 0.5, 0.01) << begin;
    EXPECT_EQ(account.near(), 0);
    spread.bring();
    EXPECT_NEAR(resident_share(spread.tensor()), 1, 0.01);
    const auto kept = [&](const at::Tensor& of) { return of.narrow(0, begin, kElements / 2); };
    EXPECT_TRUE(at::equal(kept(spread.tensor()), kept(given)));
    spread.tensor().fill_(1);  // all of it can be written
    spread.drop();
    EXPECT_TRUE(at::equal(kept(spread.tensor()), at::ones({kElements / 2})));
  }
}

TEST(SpreadTensor, OfDoublesAndOddSizesKeepsItsElements) {
  NearAccount account;
  const at::Tensor given = at::rand({3 * 1024 + 17}, at::kDouble);
  SpreadTensor spread(given, account);
  spread.keep({1024, 2 * 1024 + 17});
  spread.drop();
  EXPECT_TRUE(at::equal(spread.tensor().narrow(0, 1024, 2 * 1024 + 17),
                        given.narrow(0, 1024, 2 * 1024 + 17)));
}

TEST(SpreadTensor, OfAWorkerThatOwnsNothingTakesNoMemory) {
  NearAccount account;
  SpreadTensor spread(at::rand({kElements}), account);
  spread.keep({});
  spread.drop();
  EXPECT_EQ(resident_share(spread.tensor()), 0);
}

TEST(SpreadTensorDeathTest, CrashesWhereSomethingReadsWhatIsAway) {
  NearAccount account;
  SpreadTensor spread(at::rand({kElements}), account);
  spread.keep({0, kElements / 2});
  spread.drop();
  volatile const float* const data = spread.tensor().data_ptr<float>();
  EXPECT_EQ(data[0], data[0]);
  EXPECT_DEATH(static_cast<void>(data[kElements - 1]), "");
}

TEST(SpreadTensor, TakesAnotherTensorInItsPlace) {
  NearAccount account;
  SpreadTensor spread(at::rand({kElements}), account);
  const at::Tensor seen = spread.tensor();
  spread.keep({0, kElements / 2});
  const at::Tensor other = at::rand({2, kElements});
  spread.take(other);
  EXPECT_TRUE(at::equal(seen, other));
  EXPECT_EQ(account.near(), 0);
}

}  // namespace
}  // namespace epl

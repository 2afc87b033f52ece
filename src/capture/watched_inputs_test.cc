#include "capture/watched_inputs.h"

#include <gtest/gtest.h>
#include <torch/types.h>

namespace epl {
namespace {

TEST(WatchedInputs, AreCopies) {
  const Batch batch{torch::randn({3, 4}), torch::randn({4, 3}).t(), torch::tensor(2),
                    torch::zeros({0, 5})};
  const WatchedInputs inputs(batch);
  ASSERT_EQ(inputs.batch().size(), batch.size());
  for (size_t i = 0; i < batch.size(); ++i) {
    EXPECT_TRUE(inputs.batch()[i].equal(batch[i]));
    EXPECT_EQ(inputs.batch()[i].strides(), batch[i].strides());
    EXPECT_FALSE(inputs.batch()[i].is_alias_of(batch[i]));
  }
}

TEST(WatchedInputs, TellWhichOneIsReadWhileTheyAreClosed) {
  const Batch batch{torch::randn({3}), torch::randn({3})};
  WatchedInputs inputs(batch);
  inputs.close();
  inputs.open();
  EXPECT_EQ(inputs.batch()[1].data_ptr<float>()[2], batch[1].data_ptr<float>()[2]);
  EXPECT_FALSE(inputs.touched());
  inputs.close();
  EXPECT_EQ(inputs.batch()[1].data_ptr<float>()[2], batch[1].data_ptr<float>()[2]);
  EXPECT_EQ(inputs.touched(), 1U);
  inputs.close();
  EXPECT_EQ(inputs.batch()[0].data_ptr<float>()[0], batch[0].data_ptr<float>()[0]);
  EXPECT_EQ(inputs.touched(), 1U) << "the first one";
}

TEST(WatchedInputs, TellOfWrites) {
  WatchedInputs inputs({torch::zeros({3})});
  inputs.close();
  inputs.batch()[0].data_ptr<float>()[1] = 5;
  EXPECT_EQ(inputs.touched(), 0U);
  EXPECT_TRUE(inputs.batch()[0].equal(torch::tensor({0.0F, 5.0F, 0.0F})));
}

TEST(WatchedInputs, MayBeHeldResizedAndReleasedAsAnyTensor) {
  at::Tensor kept;
  {
    WatchedInputs inputs({torch::ones({3}), torch::ones({3})});
    inputs.close();
    kept = inputs.batch()[0];
    inputs.open();
    at::Tensor other = inputs.batch()[1];
    other.resize_({5000}).fill_(2);
    inputs.close();
    EXPECT_EQ(other.sum().item<float>(), 10000);
    EXPECT_FALSE(inputs.touched());
  }
  EXPECT_EQ(kept.sum().item<float>(), 3);
}

// The address sanitizer's handler reports the fault and ends the process.
bool ended_by_fault(int status) {
#ifdef __SANITIZE_ADDRESS__
  return testing::ExitedWithCode(1)(status);
#else
  return testing::KilledBySignal(SIGSEGV)(status);
#endif
}

TEST(WatchedInputsDeathTest, LeaveOtherFaultsToWhomTheyBelong) {
  EXPECT_EXIT(
      {
        WatchedInputs inputs({torch::ones({3})});
        inputs.close();
        *reinterpret_cast<volatile int*>(8) = 1;
      },
      ended_by_fault, "");
}

}  // namespace
}  // namespace epl

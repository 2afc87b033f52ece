#include "runtime/update_kernels.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace epl {
namespace {

using at::Tensor;

TEST(UpdateKernels, GiveTheSameBitsInAnyRanges) {
  const Tensor start = at::randn({103}), gradient = at::randn({103});
  Tensor whole[4], parts[4];
  for (auto* arrays : {whole, parts}) {
    arrays[0] = start.clone();
    for (int i = 1; i < 4; ++i) arrays[i] = at::full({103}, 0.5 * i);
  }
  const auto step_of = [&](Tensor* arrays) {
    AdamStep step;
    step.parameter = arrays[0].data_ptr();
    step.gradient = gradient.data_ptr();
    step.mean = arrays[1].data_ptr();
    step.mean_square = arrays[2].data_ptr();
    step.max_mean_square = arrays[3].data_ptr();
    step.beta1 = 0.9;
    step.beta2 = 0.99;
    step.step_size = 0.1;
    return step;
  };
  for (Rounding rounding : {Rounding::kSeparate, Rounding::kFused}) {
    AdamStep step = step_of(whole);
    step.rounding = rounding;
    update_range(step, 0, 103);
    step = step_of(parts);
    step.rounding = rounding;
    const int64_t borders[] = {0, 1, 1, 9, 26, 60, 103};
    for (int i = 5; i >= 0; --i) update_range(step, borders[i], borders[i + 1]);
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(whole[i].equal(parts[i]));
  }
}

TEST(UpdateKernels, RoundAProductAndASumAsTold) {
  const Tensor gradient = at::full({9}, 1 + 0x1p-12f);
  for (Rounding rounding : {Rounding::kSeparate, Rounding::kFused}) {
    const Tensor parameter = at::full({9}, 1.0f);
    SgdStep step;
    step.rounding = rounding;
    step.parameter = parameter.data_ptr();
    step.gradient = gradient.data_ptr();
    step.learning_rate = 1 + 0x1p-12;
    update_range(step, 0, 9);
    const float separate = -0x1p-11f, fused = -0x1p-11f - 0x1p-24f;
    const float result = parameter[8].item<float>();
#ifdef __x86_64__
    const bool can_fuse = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    EXPECT_EQ(result, rounding == Rounding::kFused && can_fuse ? fused : separate);
#else
    EXPECT_TRUE(result == fused || result == separate);
#endif
  }
}

}  // namespace
}  // namespace epl

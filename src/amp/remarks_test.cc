#include "amp/remarks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/tile_products.h"

namespace epl {
namespace {

// Before any test: once oneDNN has run something it is too late.
const bool kWithoutTiles = (avoid_tile_products(), true);

TEST(RemarkOnSpeed, SaysWhereItIsNotFaster) {
  EXPECT_EQ(remark_on_speed(at::kBFloat16, 0.4), "");
  EXPECT_EQ(remark_on_speed(at::kHalf, std::nullopt), "");
  EXPECT_THAT(remark_on_speed(at::kBFloat16, 2.63),
              testing::HasSubstr("bfloat16 is about 2.6 times slower on this CPU"));
}

TEST(RelativeProductTime, IsMeasured) {
  const auto time = relative_product_time(at::kBFloat16, at::kCPU);
  ASSERT_TRUE(time.has_value());
  EXPECT_GT(*time, 0);
}

}  // namespace
}  // namespace epl

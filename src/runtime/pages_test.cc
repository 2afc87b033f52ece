#include "runtime/pages.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "runtime/test_pages.h"

namespace epl {
namespace {

at::Tensor counted(at::IntArrayRef sizes) {
  return at::arange(c10::multiply_integers(sizes), at::kFloat).view(sizes);
}

TEST(ZerosByPage, TakeMemoryWhereTheyAreWritten) {
  const at::Tensor x = zeros_by_page(at::empty({4096, 1024}));
  EXPECT_LT(resident_share(x), 0.01);
  x.narrow(0, 1024, 1024).fill_(1);
  EXPECT_NEAR(resident_share(x), 0.25, 0.13);  // the system may give huge pages
  EXPECT_EQ(x.sum().item<double>(), 1024.0 * 1024.0);
}

TEST(ZerosByPage, LieAsTheirModelDoes) {
  for (const at::Tensor& like :
       {at::empty({3, 5}), at::empty({600, 1000}).t(), at::empty({0, 7}), at::empty({}),
        at::empty({8, 64, 64, 64}).to(at::MemoryFormat::ChannelsLast),
        at::empty({1000, 600}, at::kDouble), at::empty({300000}, at::kHalf)}) {
    const at::Tensor zeros = zeros_by_page(like);
    EXPECT_EQ(zeros.sizes(), like.sizes());
    EXPECT_EQ(zeros.strides(), like.strides());
    EXPECT_EQ(zeros.dtype(), like.dtype());
    EXPECT_TRUE(at::equal(zeros, at::zeros_like(like)));
  }
}

TEST(ZerosByPage, ThatHaveGapsInTheirModelAreOrdinary) {
  const at::Tensor like = at::empty({2000, 2000}).narrow(1, 3, 1000);
  EXPECT_TRUE(at::equal(zeros_by_page(like), at::zeros({2000, 1000})));
}

TEST(ReleasePages, KeepsWhatLiesOutside) {
  const at::Tensor x = counted({4096, 1024});
  const at::Tensor before = x.clone();
  const int64_t released = release_pages(x, 0, 1001, 2003);
  EXPECT_GT(released, 2001 * 1024 * 4);
  EXPECT_LE(released, 2003 * 1024 * 4);
  EXPECT_TRUE(at::equal(x.narrow(0, 0, 1001), before.narrow(0, 0, 1001)));
  EXPECT_TRUE(at::equal(x.narrow(0, 3004, 1092), before.narrow(0, 3004, 1092)));
  EXPECT_LT(resident_share(x.narrow(0, 1002, 2001)), 0.01);
  x.copy_(before);  // the memory is still the tensor's
  EXPECT_TRUE(at::equal(x, before));
}

TEST(ReleasePages, OfACutInAnInnerDimensionGivesThePagesOfEachRow) {
  const at::Tensor x = counted({64, 16384});
  const at::Tensor before = x.clone();
  const int64_t released = release_pages(x, 1, 8192, 8192);
  EXPECT_GE(released, 64 * (8192 * 4 - 2 * 4096));
  EXPECT_TRUE(at::equal(x.narrow(1, 0, 8192), before.narrow(1, 0, 8192)));
}

TEST(ReleasePages, OfLessThanAPageGivesNothing) {
  const at::Tensor x = counted({64, 16});
  const at::Tensor before = x.clone();
  EXPECT_EQ(release_pages(x, 1, 8, 8), 0);
  EXPECT_EQ(release_pages(x, 0, 3, 0), 0);
  EXPECT_EQ(release_pages(at::empty({0, 5}), 0, 0, 0), 0);
  EXPECT_TRUE(at::equal(x, before));
}

}  // namespace
}  // namespace epl

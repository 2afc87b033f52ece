#include <ATen/ATen.h>
#include <epl/collectives.h>
#include <epl/env.h>

#include "config/test_environment.h"

namespace epl {
namespace {

using torch::Tensor;

struct Collectives : EnvironmentFixture {
  Collectives() { init(); }
  ~Collectives() override { init(); }
};

TEST_F(Collectives, OfOneWorkerGiveACopy) {
  const Tensor x = torch::arange(6, torch::kFloat).view({2, 3}).t().requires_grad_();
  for (const char* how : {"sum", "mean", "max", "min", "prod"}) {
    const Tensor sum = all_reduce(x, how);
    EXPECT_TRUE(torch::equal(sum, x));
    EXPECT_FALSE(sum.requires_grad());
    EXPECT_NE(sum.data_ptr(), x.data_ptr());
  }
  EXPECT_EQ(all_reduce(torch::tensor(7)).item<int64_t>(), 7);
  barrier();
}

TEST_F(Collectives, RefuseWhatTheyCannotDo) {
  EXPECT_EQ(error_of([] { all_reduce(torch::ones({2}), "average"); }),
            "epl: there is no reduction \"average\"\n"
            "  asked by: epl::all_reduce\n"
            "  try:      \"sum\", \"mean\", \"max\", \"min\" or \"prod\"");
  EXPECT_EQ(error_of([] { all_reduce(torch::tensor(7), "mean"); }),
            "epl: the mean of a tensor of long int would have to be rounded\n"
            "  asked by: epl::all_reduce\n"
            "  try:      its \"sum\", or the tensor as kDouble");
  EXPECT_EQ(error_of([] { all_reduce(Tensor()); }).find("epl: the tensor is undefined"), 0);
}

}  // namespace
}  // namespace epl

#include "tests/rules/examples.h"

#include <ATen/CPUGeneratorImpl.h>

namespace epl::testing {
namespace {

at::Generator& numbers() {
  static at::Generator generator = at::detail::createCPUGenerator(7);
  return generator;
}

}  // namespace

void restart_numbers() { numbers().set_current_seed(7); }

at::Tensor reals(at::IntArrayRef sizes) {
  return at::empty(sizes, at::kDouble).uniform_(-1, 1, numbers());
}

at::Tensor positives(at::IntArrayRef sizes) {
  return at::empty(sizes, at::kDouble).uniform_(0.1, 1, numbers());
}

at::Tensor wholes(int64_t below, at::IntArrayRef sizes) {
  return at::empty(sizes, at::kLong).random_(0, below, numbers());
}

at::Tensor truths(at::IntArrayRef sizes) { return wholes(2, sizes).to(at::kBool); }

at::Tensor complexes(at::IntArrayRef sizes) { return at::complex(reals(sizes), reals(sizes)); }

Examples all_examples() {
  restart_numbers();
  Examples all;
  for (const auto& family :
       {product_examples,      view_examples,        pointwise_examples, reduction_examples,
        softmax_examples,      class_loss_examples,  pair_loss_examples, norm_examples,
        channel_norm_examples, convolution_examples, pool_examples,      resize_examples,
        sampling_examples,     matrix_examples,      complex_examples,   embedding_examples,
        bag_examples,          gather_examples,      index_examples,     gating_examples,
        join_examples,         random_examples,      creation_examples,  libtorch2_examples}) {
    for (auto& example : family()) all.push_back(std::move(example));
  }
  return all;
}

}  // namespace epl::testing

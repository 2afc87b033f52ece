#include "layout/tensor_type.h"

#include <gtest/gtest.h>

namespace epl {
namespace {

TensorType strided(std::vector<int64_t> sizes, std::vector<int64_t> strides, int64_t offset = 0) {
  TensorType type;
  type.sizes = std::move(sizes);
  type.strides = std::move(strides);
  type.offset = offset;
  return type;
}

TensorType sparse(std::vector<int64_t> sizes) {
  TensorType type;
  type.layout = c10::kSparse;
  type.sizes = std::move(sizes);
  return type;
}

struct Facts {
  TensorType type;
  std::string text;
  int64_t numel;
  int64_t extent_bytes;
  bool dense;
};

TEST(TensorType, KnowsWhereItsElementsLie) {
  const Facts table[] = {
      {strided({}, {}), "f32[]", 1, 4, true},
      {strided({}, {}, 5), "f32[]+5", 1, 24, true},
      {strided({4, 8}, {8, 1}), "f32[4,8]", 32, 128, true},
      {strided({4, 8}, {8, 1}, 3), "f32[4,8]+3", 32, 140, true},
      {strided({8, 4}, {1, 8}), "f32[8,4]{1,8}", 32, 128, true},           // transposed
      {strided({2, 3, 4}, {1, 8, 2}), "f32[2,3,4]{1,8,2}", 24, 96, true},  // permuted
      {strided({4, 2}, {8, 1}), "f32[4,2]{8,1}", 8, 104, false},           // columns
      {strided({4, 2}, {2, 2}), "f32[4,2]{2,2}", 8, 36, false},            // overlapping
      {strided({4, 8}, {0, 1}), "f32[4,8]{0,1}", 32, 32, false},           // expanded
      {strided({1, 8}, {99, 1}), "f32[1,8]{99,1}", 8, 32, true},           // no step is taken
      {strided({1, 1}, {7, 7}, 2), "f32[1,1]{7,7}+2", 1, 12, true},
      {strided({4, 0}, {1, 1}), "f32[4,0]", 0, 0, true},
      {strided({0, 4}, {9, 2}, 6), "f32[0,4]{9,2}+6", 0, 0, true},
  };
  for (const auto& row : table) {
    SCOPED_TRACE(row.text);
    EXPECT_EQ(print_type(row.type), row.text);
    EXPECT_EQ(row.type.numel(), row.numel);
    EXPECT_EQ(row.type.extent_bytes(), row.extent_bytes);
    EXPECT_EQ(row.type.dense(), row.dense);
  }
}

TEST(TensorType, OfASparseTensorHasNoPlace) {
  const TensorType type = sparse({5, 2});
  EXPECT_EQ(print_type(type), "sparse f32[5,2]");
  EXPECT_EQ(type.numel(), 10);
  EXPECT_FALSE(type.dense());
}

TEST(TensorType, CountsBytesByItsElements) {
  TensorType type = strided({3}, {2}, 1);
  type.dtype = c10::ScalarType::ComplexDouble;
  EXPECT_EQ(type.item_bytes(), 16);
  EXPECT_EQ(type.extent_bytes(), 6 * 16);
  type.dtype = c10::ScalarType::Bool;
  EXPECT_EQ(type.extent_bytes(), 6);
}

TEST(TensorType, IsAtTheSamePlaceOnlyWhereAllIsEqual) {
  const TensorType type = strided({4, 2}, {2, 1}, 3);
  EXPECT_TRUE(type.same_place(type));
  EXPECT_FALSE(type.same_place(strided({4, 2}, {2, 1}, 4)));
  EXPECT_FALSE(type.same_place(strided({4, 2}, {1, 4}, 3)));
  EXPECT_FALSE(type.same_place(strided({2, 4}, {2, 1}, 3)));
  TensorType integers = type;
  integers.dtype = c10::ScalarType::Int;
  EXPECT_FALSE(type.same_place(integers));
  EXPECT_FALSE(sparse({4}).same_place(strided({4}, {1})));
}

TEST(TypeOf, ReadsATensor) {
  const at::Tensor base = at::zeros({4, 6}, at::kHalf);
  EXPECT_EQ(print_type(type_of(base)), "f16[4,6]");
  EXPECT_EQ(print_type(type_of(base.t())), "f16[6,4]{1,6}");
  EXPECT_EQ(print_type(type_of(base.slice(1, 2, 4))), "f16[4,2]{6,1}+2");
  EXPECT_EQ(print_type(type_of(base.to_sparse())), "sparse f16[4,6]");
}

// A tensor of no elements has the strides that LibTorch itself gives it.
TEST(ContiguousStrides, AreThoseOfLibTorch) {
  const std::vector<std::vector<int64_t>> shapes = {{}, {3}, {2, 3}, {2, 0, 3}, {0}, {1, 1}};
  for (const auto& sizes : shapes) {
    EXPECT_EQ(contiguous_strides(sizes), at::empty(sizes).strides().vec());
  }
}

}  // namespace
}  // namespace epl

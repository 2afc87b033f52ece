// The families of shape rows, joined in shape.cc, and the words that they are written in.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/shape.h"

namespace epl {

const ShapeRows& shape_rows_of_elements();  // element by element, reductions, indices
const ShapeRows& shape_rows_of_layers();    // convolutions, norms, losses, embeddings
const ShapeRows& shape_rows_of_images();    // pools, padding, sampling
const ShapeRows& shape_rows_of_matrices();
const ShapeRows& shape_rows_of_versions();  // of LibTorch, each with its own

namespace shapes {

// Without gaps, dimensions in the order of the strides of `like`.
at::Tensor dense_as(const at::Tensor& like);
at::Tensor dense_as(const at::Tensor& like, at::MemoryFormat format);
// Channels last where `like` is, else rows first.
at::Tensor channels_as(const at::Tensor& like);
at::Tensor channels_as(const at::Tensor& like, at::IntArrayRef sizes);
// Rows first.
at::Tensor plain_as(const at::Tensor& like);
at::Tensor plain_of(const at::Tensor& like, at::IntArrayRef sizes);
at::Tensor plain_of(c10::ScalarType dtype, at::IntArrayRef sizes);

// As LibTorch lays out what a pointwise operator makes of these.
at::Tensor pointwise_of(c10::ScalarType dtype, const std::vector<at::Tensor>& inputs);

// One result, by the shape of the first or the second argument.
ShapeResults dense_like_first(ShapeArguments arguments);
ShapeResults dense_like_second(ShapeArguments arguments);
ShapeResults plain_like_first(ShapeArguments arguments);
ShapeResults plain_like_second(ShapeArguments arguments);
ShapeResults channels_like_second(ShapeArguments arguments);
ShapeResults pointwise_of_two(ShapeArguments arguments);

// (self, padding): of the last dimension first, before and behind.
ShapeResults pad2d(ShapeArguments arguments);

// Results that a mask does not ask for are undefined.
ShapeResults asked_for_by(const c10::IValue& mask, const std::vector<at::Tensor>& results);

// A list of one number stands for all of `count` dimensions.
std::vector<int64_t> numbers_of(const c10::IValue& list, size_t count);

// Sizes of `tensor` with the last ones replaced.
std::vector<int64_t> with_last(const at::Tensor& tensor, at::IntArrayRef last);

}  // namespace shapes
}  // namespace epl

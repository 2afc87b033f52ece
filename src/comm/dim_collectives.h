// Collective operations of tensors that are cut along any dimension and lie in memory in any way.
//
//   all_gather_along(group, piece, whole, /*dim=*/1, {3, 2});   // whole = cat of the pieces, dim 1
//
// A Communicator moves rows of contiguous tensors. Here the pieces of other dimensions are packed
// into rows where members must send them, and not at all where members read each other's memory
// (Communicator::read_each_other): each then copies or sums what it needs straight from the tensors
// of the others into its result.
//
// All members call with the same dimensions and lengths; `pieces` are the lengths along `dim` by
// rank, and may differ or be 0. Results have the right sizes and share no memory with what is read.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "comm/communicator.h"

namespace epl::comm {

// `result` may also lie where `value` lies, on any of the members.
void all_reduce_into(Communicator& group, const at::Tensor& value, const at::Tensor& result,
                     ReduceOp op);
void broadcast_into(Communicator& group, const at::Tensor& value, const at::Tensor& result,
                    int root);

void all_gather_along(Communicator& group, const at::Tensor& piece, const at::Tensor& whole,
                      int64_t dim, at::IntArrayRef pieces);
void reduce_scatter_along(Communicator& group, const at::Tensor& whole, const at::Tensor& piece,
                          int64_t dim, at::IntArrayRef pieces, ReduceOp op);

// `value` has this member's piece of dimension `from` and all of `to`, `result` all of `from` and
// this member's piece of `to`.
void all_to_all_along(Communicator& group, const at::Tensor& value, const at::Tensor& result,
                      int64_t from, int64_t to, at::IntArrayRef from_pieces,
                      at::IntArrayRef to_pieces);

}  // namespace epl::comm

namespace epl {
using comm::all_gather_along;
using comm::all_reduce_into;
using comm::all_to_all_along;
using comm::broadcast_into;
using comm::reduce_scatter_along;
}  // namespace epl

// Parameters of stages that lie on several workers: who has what of them.
#pragma once

#include <functional>
#include <vector>

#include "driver/job.h"
#include "model/model.h"
#include "driver/ready_step.h"

namespace epl {

// The first worker that has one of the stages that change a parameter: it speaks for it.
int first_holder(const ReadyStep& step, const std::vector<int>& stages, const Cluster& cluster);

// Throws epl::Error where an optimizer's own step() would be given pieces of a parameter that is
// cut over workers: it may look at the whole, at a norm for one.
void check_updates_of_pieces(const Job& job, const ReadyStep& step, Model& model);

// Sums the gradients of parameters that stages on several workers use. All workers call it.
void reduce_tied(ReadyStep& step);

// Of each parameter that is cut over devices, brings the pieces of tensors that lie as it does (the
// parameter itself, or states of its optimizer) to the workers that do not have them: to all, or to
// those that have another piece, since only they have such a state. All workers call it.
enum class Among : uint8_t { kAll, kHolders };
using PiecesOf = std::function<std::vector<at::Tensor>(const at::Tensor& parameter)>;
void gather_pieces(Job& job, const ReadyStep& step, Among among, const PiecesOf& pieces_of);

// Bytes of parameters, or pieces of them, that only other workers update and read.
int64_t bytes_of_others(const Job& job, const ReadyStep& step);

// Gives back the memory of what only other workers update and read, of tensors that lie as a
// parameter does.
void release_pieces_of_others(const Job& job, const ReadyStep& step, const PiecesOf& pieces_of);

// Brings the parameters that the step updates to the workers that do not: all of them, or those
// that a stage on such a worker reads. All workers call it.
enum class Gather : uint8_t { kAll, kRead };
void gather_parameters(Job& job, const ReadyStep& step, Gather which);

}  // namespace epl

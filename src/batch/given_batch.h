// What the user handed to a step, for messages.
#pragma once

#include <epl/config.h>
#include <epl/step.h>

#include <string>

#include "model/model.h"

namespace epl {

struct GivenBatch {
  Batch whole;  // this worker's batch, or the first micro batch of a source
  Batch seen;   // what one call of the step function reads of it
};

// "a batch of float[64, 3], long[64], cut into 8 parts (pipeline.num_micro_batch = 4, 2 devices):
// the step function reads float[8, 3], long[8]".
std::string describe(const GivenBatch& given, const Config& config, int devices);

// A batch in which no tensor has a row is an Error: a mean over nothing is no number.
void check_has_rows(const Batch& batch);

// A step reads copies of its batch, which no gradient leaves. Throws epl::Error where in the plain
// loop one would come to a parameter of the model: the batch holds it, or was computed from it.
void check_not_trained(const Batch& batch, const Model& model);
// Whether one of them is a leaf of autograd or was computed from one: of other nets, where
// check_not_trained() passes. The plain loop's backward() brings gradients to those.
bool requires_grad(const Batch& batch);

}  // namespace epl

// The families of operators, an array of rows each. all_rows() joins them.
#pragma once

#include <c10/util/ArrayRef.h>

#include "ops/rule.h"

namespace epl {

using Rules = c10::ArrayRef<OperatorRow>;

Rules product_rules();
Rules view_rules();
Rules pointwise_rules();
Rules reduction_rules();
Rules softmax_rules();
Rules class_loss_rules();
Rules pair_loss_rules();
Rules norm_rules();
Rules convolution_rules();
Rules image_rules();
Rules recurrent_rules();
Rules matrix_rules();
Rules embedding_rules();
Rules gather_rules();
Rules index_rules();
Rules gating_rules();
Rules join_rules();
Rules random_rules();
Rules creation_rules();
Rules attention_rules();
Rules whole_rules();

}  // namespace epl

// The families of rules, an array each. all_rules() joins them.
#pragma once

#include <c10/util/ArrayRef.h>

#include "ops/rule.h"

namespace epl {

using Rules = c10::ArrayRef<OpRule>;

Rules product_rules();
Rules view_rules();
Rules pointwise_rules();
Rules reduction_rules();
Rules softmax_rules();
Rules loss_rules();
Rules norm_rules();
Rules embedding_rules();
Rules creation_rules();

}  // namespace epl

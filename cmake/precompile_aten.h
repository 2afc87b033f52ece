// For the library: tensors and operators. What the compiler reads here it instantiates again in
// every file, so models, optimizers and data loaders are left to the few files that name them.
#pragma once
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/types.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

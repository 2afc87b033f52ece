// For programs that build models: all of LibTorch's C++ interface.
#pragma once
#include <torch/torch.h>

#include "precompile_aten.h"

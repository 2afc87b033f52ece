// For unit tests of folders that know tensors and operators, as the library does.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "precompile_aten.h"

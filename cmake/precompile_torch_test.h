// For tests that build models.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "precompile_torch.h"

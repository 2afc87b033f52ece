// EPL_CHECK is for what users ask for, EPL_ASSERT for our own bugs; both need a message.
#pragma once

#include <epl/error.h>

#include "base/text.h"

// EPL_CHECK(condition, what[, asked_by[, hint]]) throws epl::Error.
#define EPL_CHECK(condition, ...)                      \
  do {                                                 \
    if (!(condition)) throw ::epl::Error(__VA_ARGS__); \
  } while (false)

// EPL_ASSERT(condition, message) throws epl::InternalError with the place of the assertion.
#define EPL_ASSERT(condition, message)                                                            \
  do {                                                                                            \
    if (!(condition))                                                                             \
      throw ::epl::InternalError(::epl::concat("epl internal error: ", message, " (", #condition, \
                                               " at ", __FILE__, ":", __LINE__, ")"));            \
  } while (false)

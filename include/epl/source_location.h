// A place in the user's source. As a default argument, current() names the caller's line.
#pragma once

#include <string>

namespace epl {

struct SourceLocation {
  const char* file = "";
  int line = 0;

  static constexpr SourceLocation current(const char* file = __builtin_FILE(),
                                          int line = __builtin_LINE()) {
    return {file, line};
  }
  std::string str() const { return std::string(file) + ":" + std::to_string(line); }
};

}  // namespace epl

// A place in the user's source. As a default argument, current() names the caller's line. What no
// line asked for has line 0 and says so in place of a file.
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
  std::string str() const {
    return line == 0 ? std::string(file) : std::string(file) + ":" + std::to_string(line);
  }
};

}  // namespace epl

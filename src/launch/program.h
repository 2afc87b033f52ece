// Finds what the user asks to run, as a shell would.
#pragma once

#include <epl/error.h>

#include <string>
#include <vector>

namespace epl {

// The program does not exist (127) or cannot be run (126), as shells number it.
class CannotRun : public Error {
 public:
  CannotRun(int exit_code, const std::string& what, const std::string& asked_by,
            const std::string& hint)
      : Error(what, asked_by, hint), exit_code(exit_code) {}

  int exit_code;
};

// The words to execute: *.sh by bash, *.py by python3, anything else must be executable. A name
// without '/' is looked for in the current folder, then in `path` (folders joined by ':').
// Throws CannotRun.
std::vector<std::string> find_program(const std::vector<std::string>& command,
                                      const std::string& path);

}  // namespace epl

// Starts a worker: a process in a session of its own, its output in a pipe.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace epl {

struct Child {
  pid_t pid = 0;
  int output = -1;  // reads stdout and stderr; does not block
};

// The child's signals are as a program expects them, its input is empty, and it is killed where
// this thread ends. Throws Error where no process can be made, CannotRun where `words` cannot be
// executed.
Child start_child(const std::vector<std::string>& words,
                  const std::map<std::string, std::string>& environment);

}  // namespace epl

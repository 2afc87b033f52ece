// Starts a worker: a process in a session of its own, its output in pipes.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace epl {

// What a process says goes two ways.
enum class Voice : uint8_t { kOut, kErrors };
constexpr std::array<Voice, 2> kVoices = {Voice::kOut, Voice::kErrors};

struct Child {
  pid_t pid = 0;
  // What reads stdout and stderr, without blocking. The second is -1 where the first reads both.
  std::array<int, 2> pipes = {-1, -1};

  int& pipe(Voice voice) { return pipes[static_cast<size_t>(voice)]; }
  int pipe(Voice voice) const { return pipes[static_cast<size_t>(voice)]; }
};

// In one pipe stdout and stderr keep their order, in two they can be told apart.
enum class Pipes { kOne, kTwo };

// The child's signals are as a program expects them, its input is empty, and it is killed where
// this thread ends. Throws Error where no process can be made, CannotRun where `words` cannot be
// executed.
Child start_child(const std::vector<std::string>& words,
                  const std::map<std::string, std::string>& environment, Pipes pipes);

}  // namespace epl

// Which of several workers that failed is the cause, and how a process ended.
//
// Survivors notice that a peer is gone, say so and fail as well, sometimes before the launcher has
// seen the first death. The one to report is the one that blames nobody.
#pragma once

#include <string>
#include <vector>

namespace epl {

// How a process ended: by a signal where that is not 0, else with a code.
struct ProcessEnd {
  int code = 0;
  int signal = 0;

  bool good() const { return code == 0 && signal == 0; }
  // As shells number it: 128 + signal.
  int exit_code() const { return signal != 0 ? 128 + signal : code; }
};

// "was killed by signal 9 (Killed)", "exited with code 3".
std::string end_text(const ProcessEnd& end);

struct Death {
  int worker = 0;
  ProcessEnd end;
  std::vector<std::string> last_lines;
};

// Whether its last lines say "worker 1 (...) is gone", "worker 1 (...) failed;" or "worker 1 (...)
// has finished", as src/comm words it, of another worker than itself.
bool blames_another(const Death& death);

// The place in `deaths`, which are in the order in which they were seen and not empty: the first
// that blames nobody, else the first. A signal other than SIGABRT (by which an exception that
// nobody catches ends a program) is nobody else's doing, whatever was printed before.
size_t find_culprit(const std::vector<Death>& deaths);

}  // namespace epl

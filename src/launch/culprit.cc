#include "launch/culprit.h"

#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/text.h"

namespace epl {
namespace {

// The number of the worker of whom a line says `what`; -1 where it does not.
int worker_that(const std::string& what, const std::string& line) {
  const size_t end_of_name = line.find(what);
  if (end_of_name == std::string::npos) return -1;
  const std::string word = "worker ";
  const size_t at = line.rfind(word, end_of_name);
  if (at == std::string::npos) return -1;
  const char* digits = line.c_str() + at + word.size();
  char* end = nullptr;
  const long number = std::strtol(digits, &end, 10);
  return end == digits ? -1 : static_cast<int>(number);
}

bool says_of_another(const std::string& what, const std::string& line, int self) {
  const int worker = worker_that(what, line);
  return worker >= 0 && worker != self;
}

}  // namespace

std::string end_text(const ProcessEnd& end) {
  if (end.signal == 0) return concat("exited with code ", end.code);
  const char* name = strsignal(end.signal);
  return concat("was killed by signal ", end.signal, " (", name != nullptr ? name : "unknown", ")");
}

bool blames_another(const Death& death) {
  if (death.end.signal != 0 && death.end.signal != SIGABRT) return false;
  return std::any_of(death.last_lines.begin(), death.last_lines.end(),
                     [&](const std::string& line) {
                       return says_of_another(" is gone", line, death.worker) ||
                              says_of_another(" failed;", line, death.worker) ||
                              says_of_another(" has finished", line, death.worker);
                     });
}

size_t find_culprit(const std::vector<Death>& deaths) {
  const auto found = std::find_if_not(deaths.begin(), deaths.end(), blames_another);
  return found == deaths.end() ? 0 : static_cast<size_t>(found - deaths.begin());
}

}  // namespace epl

// In a file of its own, since epl-launch reads the environment too but knows no configuration.
#include <unistd.h>

#include "config/environment.h"

namespace epl {

std::map<std::string, std::string> process_environment() {
  std::map<std::string, std::string> result;
  for (char** line = environ; line != nullptr && *line != nullptr; ++line) {
    const std::string text = *line;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) {
      result.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return result;
}

}  // namespace epl

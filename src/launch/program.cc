#include "launch/program.h"

#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <sstream>

#include "base/text.h"

namespace epl {
namespace {

constexpr int kNotFound = 127;
constexpr int kNotExecutable = 126;

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() > end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

bool is_folder(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::string interpreter_of(const std::string& path) {
  if (ends_with(path, ".sh")) return "bash";
  if (ends_with(path, ".py")) return "python3";
  return "";
}

// A file in PATH counts only where it can be run, as for a shell.
std::optional<std::string> look_in_path(const std::string& name, const std::string& path) {
  std::stringstream folders(path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    const int mode = interpreter_of(name).empty() ? X_OK : R_OK;
    if (!is_folder(candidate) && access(candidate.c_str(), mode) == 0) return candidate;
  }
  return std::nullopt;
}

std::string find_file(const std::string& name, const std::string& path) {
  if (name.find('/') != std::string::npos) {
    if (exists(name)) return name;
  } else {
    if (!name.empty() && exists(name) && !is_folder(name)) return "./" + name;
    if (auto found = look_in_path(name, path)) return *found;
  }
  const bool has_folder = name.find('/') != std::string::npos;
  throw CannotRun(kNotFound, concat("there is no program \"", name, "\""),
                  "the command line of epl-launch",
                  has_folder ? "a path that exists from the current folder"
                             : "its path; it was looked for in the current folder and in PATH");
}

}  // namespace

std::vector<std::string> find_program(const std::vector<std::string>& command,
                                      const std::string& path) {
  std::vector<std::string> words = command;
  words[0] = find_file(command[0], path);
  const std::string& file = words[0];
  const std::string interpreter = interpreter_of(file);
  const bool runs = access(file.c_str(), interpreter.empty() ? X_OK : R_OK) == 0;
  if (is_folder(file) || !runs) {
    throw CannotRun(kNotExecutable,
                    is_folder(file)       ? concat(file, " is a folder, not a program")
                    : interpreter.empty() ? concat(file, " is not executable")
                                          : concat(file, " is not readable"),
                    "the command line of epl-launch",
                    is_folder(file) ? "a program in it" : concat("chmod +x ", file));
  }
  if (!interpreter.empty()) {
    const auto found = look_in_path(interpreter, path);
    if (!found) {
      throw CannotRun(kNotFound, concat("there is no ", interpreter, " in PATH to run ", file),
                      "the command line of epl-launch", concat("install ", interpreter));
    }
    words.insert(words.begin(), *found);
  }
  return words;
}

}  // namespace epl

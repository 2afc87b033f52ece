#include "tests/launch/launched.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace epl {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

bool within(std::chrono::seconds limit, const std::function<bool()>& condition) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace

Running::Running(const std::vector<std::string>& words, const std::string& folder)
    : out_(folder + "/out"), err_(folder + "/err") {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  pid_ = fork();
  if (pid_ != 0) return;
  setpgid(0, 0);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::signal(signal, SIG_DFL);
  if (chdir(folder.c_str()) != 0) _exit(99);
  dup2(open(out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), STDOUT_FILENO);
  dup2(open(err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), STDERR_FILENO);
  execvp(pointers[0], pointers.data());
  _exit(98);
}

Running::~Running() {
  if (pid_ == 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

Outcome Running::wait() {
  int status = 0;
  const bool ended =
      within(std::chrono::seconds(60), [&] { return waitpid(pid_, &status, WNOHANG) == pid_; });
  if (!ended) throw std::runtime_error("epl-launch did not end: " + read_file(err_));
  pid_ = 0;
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(out_), read_file(err_)};
}

LaunchTest::LaunchTest() {
  std::string name = testing::TempDir() + "epl_launch_XXXXXX";
  folder_ = mkdtemp(name.data());
}

LaunchTest::~LaunchTest() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void LaunchTest::script(const std::string& text) {
  std::ofstream(path("job.sh")) << "me=$EPL_WORKER_INDEX\n"
                                   "mark() { echo $BASHPID > $1.new; mv $1.new $1; }\n"
                                   "await() { while [ ! -e $1 ]; do sleep 0.01; done; }\n"
                                << text;
}

std::vector<std::string> LaunchTest::command(const std::vector<std::string>& arguments) const {
  std::vector<std::string> words = {EPL_LAUNCH};
  words.insert(words.end(), arguments.begin(), arguments.end());
  words.insert(words.end(), {"--log_dir", "logs", "job.sh"});
  return words;
}

Outcome LaunchTest::launch(const std::vector<std::string>& arguments) {
  return Running(command(arguments), folder_).wait();
}

std::string LaunchTest::read(const std::string& name) const { return read_file(path(name)); }

bool LaunchTest::eventually(const std::function<bool()>& condition) {
  return within(std::chrono::seconds(30), condition);
}

bool LaunchTest::exists(const std::string& name) const {
  return std::filesystem::exists(path(name));
}

bool LaunchTest::lives(const std::string& name) const {
  std::string pid = read(name);
  while (!pid.empty() && pid.back() == '\n') pid.pop_back();
  const std::string stat = read_file("/proc/" + pid + "/stat");
  const size_t name_end = stat.rfind(')');
  return !pid.empty() && name_end != std::string::npos && stat[name_end + 2] != 'Z';
}

testing::AssertionResult contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "\"" << part << "\" is not in:\n" << text;
}

}  // namespace epl

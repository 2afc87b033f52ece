// epl-launch: starts the workers of an EPL job on this machine and watches over them
// (docs/launch.md).
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <optional>

#include "base/check.h"
#include "base/text.h"
#include "config/environment.h"
#include "launch/job.h"
#include "launch/launcher.h"
#include "launch/options.h"
#include "launch/port.h"
#include "launch/program.h"

namespace epl {
namespace {

constexpr int kWrongUse = 2;

// Whoever started us may have closed some of these; a pipe or a log that takes their numbers would
// be mistaken for them.
void open_standard_files() {
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(file, F_GETFD) < 0) open("/dev/null", O_RDWR);
  }
}

int usable_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

std::string time_text() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", std::localtime(&now));
  return text;
}

// The folder that the user names, or a new one of this job's.
std::string make_log_dir(const LaunchOptions& options) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!options.log_dir.empty()) {
    fs::create_directories(options.log_dir, error);
    EPL_CHECK(!error, concat("cannot make the folder ", options.log_dir, ": ", error.message()),
              "--log_dir " + options.log_dir, "a folder that can be written");
    return options.log_dir;
  }
  const std::string parent = "./epl-logs";
  fs::create_directories(parent, error);
  const std::string name =
      parent + "/" + job_folder_name(options.task_label, options.command[0], time_text());
  std::string folder = name;
  // Another job of the same second has the name already.
  for (int i = 2; !error && !fs::create_directory(folder, error) && !error; ++i) {
    folder = concat(name, "-", i);
  }
  EPL_CHECK(!error, concat("cannot make the folder ", folder, ": ", error.message()),
            "the default of --log_dir", "--log_dir with a folder that can be written");
  return folder;
}

int launch(const std::vector<std::string>& arguments) {
  const LaunchOptions options = parse_options(arguments);
  if (!options.help.empty()) {
    std::cout << options.help;
    return 0;
  }
  const Variables environment = process_environment();
  check_devices_variable(options, environment);
  const auto path = environment.find("PATH");
  LaunchPlan plan;
  plan.command = find_program(
      options.command, path != environment.end() ? path->second : "/usr/local/bin:/usr/bin:/bin");

  HostPort master{"127.0.0.1", 0};
  std::optional<ReservedPort> port;  // kept until the job has ended
  if (!options.machines.empty()) master = options.machines.front();
  if (options.machine_rank == 0) {
    port.emplace(master.port);
    master.port = port->port();
  }
  plan.log_dir = make_log_dir(options);
  plan.workers = plan_workers(options, master, usable_cores(), environment);
  plan.worker_num = options.num_workers;
  plan.debug = options.debug;
  return Launcher(plan).run();
}

}  // namespace
}  // namespace epl

int main(int argc, char** argv) {
  epl::open_standard_files();
  try {
    return epl::launch({argv + 1, argv + argc});
  } catch (const epl::CannotRun& error) {
    std::cerr << error.what() << "\n";
    return error.exit_code;
  } catch (const epl::Error& error) {
    std::cerr << error.what() << "\n";
    return epl::kWrongUse;
  }
}

// What /proc knows of this machine and of processes: who used the cores, and who holds memory.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace epl::bench {

inline double clock_ticks(int64_t count) {
  return static_cast<double>(count) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// Seconds that the cores of this machine have worked, all together, since it was started.
inline double busy_seconds() {
  std::ifstream file("/proc/stat");
  std::string name;
  int64_t user = 0, nice = 0, system = 0, idle = 0, waiting = 0, interrupts = 0, soft = 0,
          stolen = 0;
  file >> name >> user >> nice >> system >> idle >> waiting >> interrupts >> soft >> stolen;
  return clock_ticks(user + nice + system + interrupts + soft + stolen);
}

// Seconds that a process has worked.
inline double busy_seconds(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t name_ends = line.rfind(')');
  if (name_ends == std::string::npos) return 0;
  std::istringstream rest(line.substr(name_ends + 1));
  std::string skipped;
  for (int i = 0; i < 11; ++i) rest >> skipped;
  int64_t user = 0, system = 0;
  rest >> user >> system;
  return clock_ticks(user + system);
}

// What some processes and others did from now on.
class Load {
 public:
  explicit Load(std::vector<pid_t> own)
      : own_(std::move(own)), all_before_(busy_seconds()), own_before_(own_seconds()) {}

  // Seconds that the processes worked.
  double own() const { return own_seconds() - own_before_; }

  // Share of the whole machine that others used.
  double foreign(double seconds_passed) const {
    const double foreign = (busy_seconds() - all_before_) - own();
    const double cores = std::max(1u, std::thread::hardware_concurrency());
    return std::max(0.0, foreign / (seconds_passed * cores));
  }

 private:
  double own_seconds() const {
    double sum = 0;
    for (pid_t pid : own_) sum += busy_seconds(pid);
    return sum;
  }

  const std::vector<pid_t> own_;
  const double all_before_;
  const double own_before_;
};

// What a process holds, in megabytes.
struct Memory {
  double peak = 0;  // at most since it was started
  double resident = 0;
  double files = 0;   // of these, pages of files
  double shared = 0;  // and of shared memory
};

inline Memory memory_of(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  Memory memory;
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string key;
    double kilobytes = 0;
    words >> key >> kilobytes;
    if (key == "VmHWM:") memory.peak = kilobytes / 1024;
    if (key == "VmRSS:") memory.resident = kilobytes / 1024;
    if (key == "RssFile:") memory.files = kilobytes / 1024;
    if (key == "RssShmem:") memory.shared = kilobytes / 1024;
  }
  return memory;
}

// Megabytes that processes of one program have held at most, each its own peak. Pages of files and
// of shared memory are in the peak of each of them and are counted once.
inline double peak_megabytes(const std::vector<pid_t>& processes) {
  double own = 0, files = 0, shared = 0;
  for (pid_t pid : processes) {
    const Memory memory = memory_of(pid);
    own += memory.peak - memory.files - memory.shared;
    files = std::max(files, memory.files);
    shared = std::max(shared, memory.shared);
  }
  return own + files + shared;
}

// Of the process that holds most.
inline Memory largest_memory(const std::vector<pid_t>& processes) {
  Memory most;
  for (pid_t pid : processes) {
    const Memory memory = memory_of(pid);
    most.peak = std::max(most.peak, memory.peak);
    most.resident = std::max(most.resident, memory.resident);
    most.files = std::max(most.files, memory.files);
    most.shared = std::max(most.shared, memory.shared);
  }
  return most;
}

// From here on the peaks of these processes are those since now.
inline void forget_peaks(const std::vector<pid_t>& processes) {
  for (pid_t pid : processes) {
    std::ofstream references("/proc/" + std::to_string(pid) + "/clear_refs");
    if (!(references << "5" << std::flush)) throw std::runtime_error("cannot reset a peak");
  }
}

// A line of /proc/self/status, in bytes.
inline double bytes_of_process(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name + ":", 0) == 0) return 1024 * std::stod(line.substr(name.size() + 1));
  }
  throw std::runtime_error("/proc/self/status has no " + name);
}

// What this process holds at most, but for libraries and what it held before.
inline double held_bytes(double before) {
  return bytes_of_process("VmHWM") - bytes_of_process("RssFile") - before;
}

}  // namespace epl::bench

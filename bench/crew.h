// The processes of one side of a comparison, which take their turns together, and what is needed to
// start them.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/machine.h"
#include "bench/programs.h"
#include "bench/turns.h"

namespace epl::bench {

inline const char* const kPython = "/usr/bin/python3";  // Debian's, which python3-torch belongs to

// Whether it has a module: "torch", "torch.distributed.pipeline".
inline bool python_has(const std::string& module) {
  Side probe(kPython, {{"-c",
                        "import importlib.util as util\n"
                        "try: print(int(util.find_spec('" +
                            module +
                            "') is not None))\n"
                            "except ModuleNotFoundError: print(0)"},
                       kPython});
  try {
    return probe.answer().at(0) == 1;
  } catch (const std::exception&) {
    return false;  // there is no such python
  }
}

inline bool torch_is_installed() { return python_has("torch"); }

inline std::string free_port() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  const bool bound = bind(listener, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                     getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  close(listener);
  if (!bound) throw std::runtime_error("no free port");
  return std::to_string(ntohs(address.sin_port));
}

// A program of bench/peers; the processes of one program find each other over gloo.
inline Start start_of_peer(const std::string& script,
                           const std::vector<std::pair<std::string, std::string>>& options) {
  Start start;
  start.program = kPython;
  start.arguments = {std::string(EPL_BENCH_PEERS) + "/" + script};
  for (const auto& [key, value] : options) {
    start.arguments.insert(start.arguments.end(), {key, value});
  }
  start.environment = {
      {"MASTER_ADDR", "127.0.0.1"}, {"GLOO_SOCKET_IFNAME", "lo"}, {"PYTHONDONTWRITEBYTECODE", "1"}};
  return start;
}

struct Turn {
  double seconds = 0;        // of the chunk, by the slowest process
  std::vector<double> more;  // what the first process said beside the seconds of its steps
  double work = 0;           // seconds of all cores
  double foreign = 0;        // share of the machine that others used
};

// The processes of one side.
class Crew {
 public:
  // A turn is of so many steps.
  Crew(const std::string& side, const std::vector<Start>& starts, int steps)
      : steps_(static_cast<size_t>(steps)) {
    for (const auto& start : starts) {
      processes_.push_back(std::make_unique<Side>(side, start));
      pids_.push_back(processes_.back()->pid());
    }
  }
  ~Crew() {
    for (auto& process : processes_) process->finish();  // all of them before one is waited for
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  std::vector<std::vector<double>> answers() {
    std::vector<std::vector<double>> all;
    for (auto& process : processes_) all.push_back(process->answer());
    return all;
  }

  Turn turn() {
    const Load load(pids_);
    Turn turn;
    const double passed = bench::seconds([&] {
      for (auto& process : processes_) process->go();
      const auto said = answers();
      for (const auto& numbers : said) {
        if (numbers.size() < steps_) throw std::runtime_error("a side did not do all of its steps");
        const auto end = numbers.begin() + static_cast<std::ptrdiff_t>(steps_);
        turn.seconds = std::max(turn.seconds, std::accumulate(numbers.begin(), end, 0.0));
      }
      turn.more.assign(said[0].begin() + static_cast<std::ptrdiff_t>(steps_), said[0].end());
    });
    turn.work = load.own();
    turn.foreign = load.foreign(passed);
    return turn;
  }

  // Waits until all have ended, which must be without an error.
  void end() {
    for (auto& process : processes_) process->finish();
    for (auto& process : processes_) process->end();
  }

  double peak_megabytes() const { return bench::peak_megabytes(pids_); }
  Memory largest_memory() const { return bench::largest_memory(pids_); }
  void forget_peaks() const { bench::forget_peaks(pids_); }

 private:
  std::vector<std::unique_ptr<Side>> processes_;
  std::vector<pid_t> pids_;
  const size_t steps_;
};

}  // namespace epl::bench

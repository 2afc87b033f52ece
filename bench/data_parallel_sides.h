// The sides of bench_data_parallel: how their processes are started, and turns that all processes
// of a side take at once.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "bench/data_parallel_process.h"
#include "bench/machine.h"
#include "bench/turns.h"

namespace epl::bench {

inline const char* const kPython = "/usr/bin/python3";  // Debian's, which python3-torch belongs to

inline bool torch_is_installed() {
  Side probe(kPython, {{"-c",
                        "import importlib.util as util\n"
                        "print(int(util.find_spec('torch') is not None))"},
                       kPython});
  try {
    return probe.answer().at(0) == 1;
  } catch (const std::exception&) {
    return false;  // there is no such python
  }
}

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

inline bool is_of_torch(const std::string& side) { return side.compare(0, 3, "ddp") == 0; }

inline Start start_of_torch(const std::string& side, const Workload& workload, int steps) {
  Start start;
  start.program = kPython;
  start.arguments = {std::string(EPL_BENCH_PEERS) + "/ddp.py"};
  const auto give = [&](const std::string& key, const std::string& value) {
    start.arguments.insert(start.arguments.end(), {key, value});
  };
  give("--model", workload.name);
  give("--rows", std::to_string(workload.rows));
  give("--steps", std::to_string(steps));
  give("--rate", std::to_string(kRate));
  give("--momentum", std::to_string(kMomentum));
  start.environment = {{"WORLD_SIZE", side == "ddp" ? std::to_string(kDevices) : "1"},
                       {"MASTER_ADDR", "127.0.0.1"},
                       {"GLOO_SOCKET_IFNAME", "lo"},
                       {"PYTHONDONTWRITEBYTECODE", "1"}};
  return start;
}

// What epl-launch sets where the processes are the workers of one job.
inline Start start_of_epl(const std::string& side, const Workload& workload, int steps,
                          const std::string& mode) {
  Start start;
  start.arguments = {mode, side, "--models", workload.name, "--steps", std::to_string(steps)};
  start.environment["EPL_DEVICES"] = side == "one_worker" ? std::to_string(kDevices) : "1";
  if (side == "two_workers") start.environment["EPL_WORKER_NUM"] = std::to_string(kDevices);
  return start;
}

// `mode` is --serve or --check.
inline std::vector<Start> starts_of(const std::string& side, const Workload& workload, int steps,
                                    const std::string& mode) {
  const std::string port = free_port();
  std::vector<Start> starts;
  for (int i = 0; i < (side == "one_worker" ? 1 : kDevices); ++i) {
    starts.push_back(is_of_torch(side) ? start_of_torch(side, workload, steps)
                                       : start_of_epl(side, workload, steps, mode));
    auto& environment = starts.back().environment;
    environment["OMP_NUM_THREADS"] = environment["OPENBLAS_NUM_THREADS"] = "1";
    environment["EPL_BENCH_PROCESS"] = std::to_string(i);
    if (side == "ddp") {
      environment["RANK"] = std::to_string(i);
      environment["MASTER_PORT"] = port;
    }
    if (side == "two_workers") {
      environment["EPL_WORKER_INDEX"] = std::to_string(i);
      environment["EPL_MASTER"] = "127.0.0.1:" + port;
    }
  }
  return starts;
}

struct Turn {
  double seconds = 0;  // of the chunk, by the slowest process
  double work = 0;     // seconds of all cores
  double foreign = 0;  // share of the machine that others used
};

// The processes of one side.
class Crew {
 public:
  Crew(const std::string& side, const std::vector<Start>& starts) {
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
      for (const auto& steps : answers()) {
        double sum = 0;
        for (double taken : steps) sum += taken;
        turn.seconds = std::max(turn.seconds, sum);
      }
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

 private:
  std::vector<std::unique_ptr<Side>> processes_;
  std::vector<pid_t> pids_;
};

}  // namespace epl::bench

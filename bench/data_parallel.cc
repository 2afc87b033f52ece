// How well does data parallelism scale on this machine?
//
//   bench_data_parallel [--models mlp,bert_base,gpt,resnet50] [--rounds 7] [--steps 0]
//                       [--sides limit,one_worker,two_workers,ddp,ddp_limit]
//
// The same network, optimizer and rows per device on two cores, one thread each:
//
//   one_worker   EPL, one process with two devices
//   two_workers  EPL, two processes with one device each, as epl-launch starts them
//   limit        EPL, two processes with one device each that know nothing of each other
//   ddp          PyTorch's DistributedDataParallel over gloo, two processes (bench/peers/ddp.py)
//   ddp_limit    the same program without DistributedDataParallel; for information
//
// The sides take turns, chunk by chunk (--steps steps), in processes of their own; a side whose
// turn it is not waits in a read. Throughputs are compared round by round, and the median of the
// ratios is reported. Rounds in which somebody else used the machine are repeated. Before a side is
// timed its parameters after two steps are compared with those of the plain loop. Memory is the sum
// of the processes' peaks, pages that they share counted once. The last line is one JSON object;
// where python3-torch is missing, what it would be compared with is null.
#include <arpa/inet.h>
#include <sys/socket.h>

#include <cmath>
#include <cstdio>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/machine.h"
#include "bench/programs.h"
#include "bench/turns.h"

namespace epl {
namespace {

using bench::Program;
using bench::Stepper;

constexpr double kRate = 1e-4, kMomentum = 0.9;
constexpr double kCheckedRate = 1e-2;  // at kRate rounding of the parameters hides what happens
constexpr int kDevices = 2;

struct Workload {
  std::string name;
  int64_t rows;  // per device
  int chunk;     // steps in a turn
  // Of max |plain - epl| in the largest change of a parameter by two steps.
  double tolerance;
  bench::Model (*make)(int64_t rows);
};

const std::vector<Workload>& workloads() {
  static const std::vector<Workload> all = {
      {"mlp", 32, 100, 1e-3, [](int64_t rows) { return bench::mlp(64, 65, rows); }},
      {"bert_base", 2, 2, 1e-3, bench::bert_base},
      {"gpt", 4, 3, 1e-3, bench::gpt},
      {"resnet50", 8, 4, 1e-2, bench::resnet50},
  };
  return all;
}

struct Arguments {
  std::vector<std::string> models;
  std::vector<std::string> sides;
  int rounds = 7;
  int steps = 0;      // in a turn; 0: as the workload says
  std::string serve;  // this process is one of a side
  std::string check;
};

// --- a process of EPL
// -----------------------------------------------------------------------------

// With the rows of all devices in its batch, the same in every process.
Program fresh(const Workload& workload, double rate) {
  torch::manual_seed(0);
  return bench::with_optimizer<torch::optim::SGD>(
      workload.make(kDevices * workload.rows), torch::optim::SGDOptions(rate).momentum(kMomentum));
}

Batch rows_of(const Workload& workload, const Batch& batch, int device) {
  Batch rows;
  for (const auto& tensor : batch) {
    rows.push_back(tensor.narrow(0, device * workload.rows, workload.rows).clone());
  }
  return rows;
}

// Which device's rows are this process's own; all of them where it has both devices.
std::optional<int> own_device(const std::string& side) {
  if (side == "one_worker") return std::nullopt;
  const char* index = getenv("EPL_BENCH_PROCESS");
  return index == nullptr ? 0 : std::atoi(index);
}

Stepper epl_stepper(const Workload& workload, const std::string& side, Program program) {
  if (const auto device = own_device(side)) {
    program.batch = rows_of(workload, program.batch, *device);
  }
  return bench::epl_stepper(program);
}

// The mean over the devices, whose rows are normalised apart from each other.
void plain_step(const Workload& workload, const Program& program, const std::vector<int>& devices) {
  program.optimizer->zero_grad();
  for (int device : devices) {
    const auto loss = program.step(rows_of(workload, program.batch, device)).loss;
    (loss / static_cast<double>(devices.size())).backward();
  }
  program.optimizer->step();
}

// Of the largest change that the plain loop made to a parameter, beyond what rounding explains.
double worst_difference(const Program& start, const Program& plain, const Program& epl) {
  const torch::NoGradGuard no_grad;
  const auto from = start.net->parameters(), expected = plain.net->parameters(),
             found = epl.net->parameters();
  double worst = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    const double change = (expected[i] - from[i]).abs().max().item<double>();
    const double apart = (found[i] - expected[i]).abs().max().item<double>();
    const double rounding = 4 * std::ldexp(1.0, -23) * from[i].abs().max().item<double>();
    if (apart > rounding || std::isnan(apart)) worst = std::max(worst, apart / change);
  }
  return worst;
}

double sum_of_parameters(const Program& program) {
  const torch::NoGradGuard no_grad;
  double sum = 0;
  for (const auto& parameter : program.net->parameters()) {
    sum += parameter.to(torch::kDouble).abs().sum().item<double>();
  }
  return sum;
}

// Prints how far two steps are from the plain loop's, and what tells workers apart that differ.
void check_process(const Workload& workload, const std::string& side) {
  const Program start = fresh(workload, kCheckedRate);
  const Program plain = fresh(workload, kCheckedRate), epl = fresh(workload, kCheckedRate);
  const std::vector<int> devices =
      side == "limit" ? std::vector<int>{*own_device(side)} : std::vector<int>{0, 1};
  const Stepper step = epl_stepper(workload, side, epl);
  for (int i = 0; i < 2; ++i) {
    plain_step(workload, plain, devices);
    step();
  }
  std::printf("%.17g %.17g\n", worst_difference(start, plain, epl), sum_of_parameters(epl));
  std::fflush(stdout);
}

void serve_process(const Workload& workload, const std::string& side, int steps) {
  const Program program = fresh(workload, kRate);
  int64_t parameters = 0;
  for (const auto& parameter : program.net->parameters()) parameters += parameter.numel();
  const Stepper step = epl_stepper(workload, side, program);
  bench::seconds_of_each(5, step);  // as many as ddp.py warms up with
  bench::serve(static_cast<double>(parameters),
               [&] { return bench::seconds_of_each(steps, step); });
}

// --- the sides
// ------------------------------------------------------------------------------------

int free_port() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  const bool bound = bind(listener, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                     getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  close(listener);
  if (!bound) throw std::runtime_error("no free port");
  return ntohs(address.sin_port);
}

const char* const kPython = "/usr/bin/python3";  // Debian's, which python3-torch belongs to

// The processes of a side: how each of them is started.
std::vector<bench::Start> starts_of(const std::string& side, const Workload& workload, int steps,
                                    const std::string& mode) {
  const bool of_torch = side == "ddp" || side == "ddp_limit";
  const bool alone = side == "limit" || side == "ddp_limit";
  const std::string port = std::to_string(free_port());
  std::vector<bench::Start> starts;
  for (int i = 0; i < (side == "one_worker" ? 1 : kDevices); ++i) {
    const std::string index = std::to_string(i), count = std::to_string(kDevices);
    bench::Start start;
    start.environment = {{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}};
    if (of_torch) {
      start.program = kPython;
      start.arguments = {std::string(EPL_BENCH_PEERS) + "/ddp.py",
                         "--model",
                         workload.name,
                         "--rows",
                         std::to_string(workload.rows),
                         "--steps",
                         std::to_string(steps),
                         "--rate",
                         std::to_string(kRate),
                         "--momentum",
                         std::to_string(kMomentum)};
      start.environment.insert({{"RANK", alone ? "0" : index},
                                {"WORLD_SIZE", alone ? "1" : count},
                                {"MASTER_ADDR", "127.0.0.1"},
                                {"MASTER_PORT", port},
                                {"GLOO_SOCKET_IFNAME", "lo"},
                                {"PYTHONDONTWRITEBYTECODE", "1"}});
    } else {
      start.arguments = {mode, side, "--models", workload.name, "--steps", std::to_string(steps)};
      start.environment.insert(
          {{"EPL_BENCH_PROCESS", index}, {"EPL_DEVICES", side == "one_worker" ? count : "1"}});
      if (side == "two_workers") {
        start.environment.insert({{"EPL_WORKER_INDEX", index},
                                  {"EPL_WORKER_NUM", count},
                                  {"EPL_MASTER", "127.0.0.1:" + port}});
      }
    }
    starts.push_back(std::move(start));
  }
  return starts;
}

struct Turn {
  double seconds = 0;  // of the chunk, by the slowest process
  double foreign = 0;  // share of the machine that others used
};

class Side {
 public:
  Side(const std::string& name, const std::vector<bench::Start>& starts) {
    for (const auto& start : starts) {
      processes_.push_back(std::make_unique<bench::Side>(name, start));
      pids_.push_back(processes_.back()->pid());
    }
  }
  ~Side() {
    for (auto& process : processes_) process->finish();  // all of them before one is waited for
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  std::vector<std::vector<double>> answers() {
    std::vector<std::vector<double>> all;
    for (auto& process : processes_) all.push_back(process->answer());
    return all;
  }

  Turn turn() {
    const bench::ForeignLoad load(pids_);
    Turn turn;
    const double passed = bench::seconds([&] {
      for (auto& process : processes_) process->go();
      for (const auto& steps : answers()) {
        double sum = 0;
        for (double taken : steps) sum += taken;
        turn.seconds = std::max(turn.seconds, sum);
      }
    });
    turn.foreign = load.share(passed);
    return turn;
  }

  double peak_megabytes() const { return bench::peak_megabytes(pids_); }

 private:
  std::vector<std::unique_ptr<bench::Side>> processes_;
  std::vector<pid_t> pids_;
};

bool torch_is_installed() {
  bench::Side probe(kPython, {{"-c",
                               "import importlib.util as util\n"
                               "print(int(util.find_spec('torch') is not None))"},
                              kPython});
  try {
    return probe.answer().at(0) == 1;
  } catch (const std::exception&) {
    return false;  // there is no such python
  }
}

void check_side(const std::string& side, const Workload& workload) {
  if (side == "ddp" || side == "ddp_limit") return;  // ddp.py checks itself
  Side checked(side, starts_of(side, workload, 1, "--check"));
  const auto answers = checked.answers();
  for (const auto& answer : answers) {
    if (answer.size() != 2 || !(answer[0] <= workload.tolerance)) {
      throw std::runtime_error(workload.name + ", " + side + ": after 2 steps a parameter is " +
                               std::to_string(answer.empty() ? NAN : answer[0]) +
                               " of its change away from the plain loop's; allowed is " +
                               std::to_string(workload.tolerance));
    }
    if (side == "two_workers" && answer[1] != answers[0][1]) {
      throw std::runtime_error(workload.name + ": the workers have different parameters");
    }
  }
  std::fprintf(stderr, "%s: %s is right (largest difference %.1e of a parameter's change)\n",
               workload.name.c_str(), side.c_str(), answers[0][0]);
}

// --- what is measured
// -----------------------------------------------------------------------------

using Round = std::map<std::string, Turn>;

double foreign_of(const Round& round) {
  double most = 0;
  for (const auto& [side, turn] : round) most = std::max(most, turn.foreign);
  return most;
}

struct Result {
  std::string model;
  double rows = 0;  // of all devices in a chunk
  int steps = 0;
  std::vector<Round> rounds;
  std::map<std::string, double> megabytes;

  bool has(const std::string& side) const { return megabytes.count(side) != 0; }

  // Of the throughputs: the median over the rounds.
  std::optional<double> faster(const std::string& side, const std::string& than) const {
    if (!has(side) || !has(than)) return std::nullopt;
    std::vector<double> ratios;
    for (const auto& round : rounds) {
      ratios.push_back(round.at(than).seconds / round.at(side).seconds);
    }
    return bench::median(ratios);
  }

  std::optional<double> memory(const std::string& side, const std::string& than) const {
    if (!has(side) || !has(than)) return std::nullopt;
    return megabytes.at(side) / megabytes.at(than);
  }

  double seconds(const std::string& side) const {
    std::vector<double> all;
    for (const auto& round : rounds) all.push_back(round.at(side).seconds);
    return bench::median(all);
  }
};

// Keeps the rounds that others disturbed least.
void keep_calmest(std::vector<Round>& rounds, int count, double limit) {
  std::stable_sort(rounds.begin(), rounds.end(),
                   [](const Round& a, const Round& b) { return foreign_of(a) < foreign_of(b); });
  if (static_cast<int>(rounds.size()) > count) rounds.resize(static_cast<size_t>(count));
  if (foreign_of(rounds.back()) > limit) {
    std::fprintf(stderr, "others used up to %.0f %% of this machine in the rounds that count\n",
                 100 * foreign_of(rounds.back()));
  }
}

Result run(const Workload& workload, const std::vector<std::string>& sides, int rounds, int steps) {
  constexpr double kMostForeign = 0.06;
  Result result;
  result.model = workload.name;
  result.steps = steps > 0 ? steps : workload.chunk;
  result.rows = static_cast<double>(kDevices * workload.rows * result.steps);
  for (const auto& side : sides) check_side(side, workload);
  std::map<std::string, std::unique_ptr<Side>> running;
  std::optional<double> parameters;
  for (const auto& side : sides) {
    auto& started = running[side] =
        std::make_unique<Side>(side, starts_of(side, workload, result.steps, "--serve"));
    for (const auto& answer : started->answers()) {
      if (!parameters) parameters = answer.at(0);
      if (answer.at(0) == *parameters) continue;
      throw std::runtime_error(workload.name + ": " + side + " has another number of parameters");
    }
    started->turn();  // warms up
  }
  int calm = 0;
  for (int attempt = 0; calm < rounds && attempt < 3 * rounds; ++attempt) {
    Round& round = result.rounds.emplace_back();
    for (size_t i = 0; i < sides.size(); ++i) {  // nobody always follows the same other
      const auto& side = sides[attempt % 2 == 0 ? i : sides.size() - 1 - i];
      round[side] = running[side]->turn();
    }
    calm += foreign_of(round) <= kMostForeign;
    std::fprintf(stderr, "%s: round %d, %d of %d calm, others used %.0f %% of the machine\n",
                 workload.name.c_str(), attempt + 1, calm, rounds, 100 * foreign_of(round));
  }
  keep_calmest(result.rounds, rounds, kMostForeign);
  for (const auto& [side, started] : running) result.megabytes[side] = started->peak_megabytes();
  return result;
}

// --- the report
// -----------------------------------------------------------------------------------

std::string text(const std::optional<double>& number, const char* absent) {
  if (!number) return absent;
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.4f", *number);
  return digits;
}

void print_table(const std::vector<Result>& results, const std::vector<std::string>& sides) {
  std::printf("%-10s %-12s %12s %12s %10s %10s %12s %10s\n", "model", "side", "ms a step",
              "rows a second", "vs limit", "vs ddp", "peak memory", "vs ddp");
  for (const auto& result : results) {
    for (const auto& side : sides) {
      const double taken = result.seconds(side);
      std::printf("%-10s %-12s %12.3f %13.1f %10s %10s %9.0f MB %10s\n", result.model.c_str(),
                  side.c_str(), 1e3 * taken / result.steps, result.rows / taken,
                  text(result.faster(side, "limit"), "-").c_str(),
                  text(result.faster(side, "ddp"), "-").c_str(), result.megabytes.at(side),
                  text(result.memory(side, "ddp"), "-").c_str());
    }
  }
}

void print_json(const std::vector<Result>& results) {
  std::string json;
  for (const auto& result : results) {
    json += (json.empty() ? "\"" : ", \"") + result.model +
            "\": {\"one_worker_vs_limit\": " + text(result.faster("one_worker", "limit"), "null") +
            ", \"one_worker_vs_ddp\": " + text(result.faster("one_worker", "ddp"), "null") +
            ", \"two_workers_vs_ddp\": " + text(result.faster("two_workers", "ddp"), "null") +
            ", \"memory_vs_ddp\": " + text(result.memory("one_worker", "ddp"), "null") + "}";
  }
  std::printf("{%s}\n", json.c_str());
}

std::vector<std::string> parts(const std::string& list) {
  std::vector<std::string> names;
  std::stringstream in(list);
  for (std::string name; std::getline(in, name, ',');) names.push_back(name);
  return names;
}

void check_known(const std::vector<std::string>& names, const std::vector<std::string>& known) {
  for (const auto& name : names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    throw std::runtime_error("there is no \"" + name + "\"");
  }
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  arguments.sides = {"limit", "one_worker", "two_workers", "ddp"};
  for (int i = 1; i < argc; i += 2) {
    const std::string key = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    if (key == "--models" && !value.empty()) {
      arguments.models = parts(value);
    } else if (key == "--sides" && !value.empty()) {
      arguments.sides = parts(value);
    } else if (key == "--rounds" && !value.empty()) {
      arguments.rounds = std::max(1, std::stoi(value));
    } else if (key == "--steps" && !value.empty()) {
      arguments.steps = std::max(0, std::stoi(value));
    } else if (key == "--serve" && !value.empty()) {
      arguments.serve = value;
    } else if (key == "--check" && !value.empty()) {
      arguments.check = value;
    } else {
      throw std::runtime_error(
          "usage: bench_data_parallel [--models mlp,bert_base,gpt,resnet50] [--rounds N] "
          "[--steps N] [--sides limit,one_worker,two_workers,ddp,ddp_limit]");
    }
  }
  std::vector<std::string> known;
  for (const auto& workload : workloads()) known.push_back(workload.name);
  check_known(arguments.models, known);
  if (arguments.models.empty()) arguments.models = known;
  check_known(arguments.sides, {"limit", "one_worker", "two_workers", "ddp", "ddp_limit"});
  return arguments;
}

const Workload& workload_named(const std::string& name) {
  return *std::find_if(workloads().begin(), workloads().end(),
                       [&](const Workload& workload) { return workload.name == name; });
}

int run_process(const Arguments& arguments) {
  bench::use_one_thread();
  epl::init();
  epl::set_default_strategy(epl::replicate(1));
  const Workload& workload = workload_named(arguments.models.at(0));
  if (arguments.serve.empty()) {
    check_process(workload, arguments.check);
  } else {
    serve_process(workload, arguments.serve, arguments.steps);
  }
  return 0;
}

int run_all(const Arguments& arguments) {
  std::vector<std::string> sides = arguments.sides;
  if (!torch_is_installed()) {
    std::fprintf(
        stderr,
        "%s has no torch (Debian: apt-get install python3-torch): nothing is compared with "
        "DistributedDataParallel\n",
        kPython);
    sides.erase(
        std::remove_if(sides.begin(), sides.end(),
                       [](const std::string& side) { return side.compare(0, 3, "ddp") == 0; }),
        sides.end());
  }
  std::vector<Result> results;
  for (const auto& name : arguments.models) {
    results.push_back(run(workload_named(name), sides, arguments.rounds, arguments.steps));
  }
  print_table(results, sides);
  print_json(results);
  return 0;
}

}  // namespace
}  // namespace epl

int main(int argc, char** argv) {
  struct sigaction ends = {};
  ends.sa_handler = [](int) {};  // poll() returns: the sides are ended and reaped on the way out
  sigaction(SIGINT, &ends, nullptr);
  sigaction(SIGTERM, &ends, nullptr);
  try {
    const auto arguments = epl::parse(argc, argv);
    const bool serves = !arguments.serve.empty() || !arguments.check.empty();
    return serves ? epl::run_process(arguments) : epl::run_all(arguments);
  } catch (const std::exception& error) {
    std::cerr << "bench_data_parallel: " << error.what() << "\n";
    return 1;
  }
}

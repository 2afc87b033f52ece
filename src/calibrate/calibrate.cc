#include "calibrate/calibrate.h"

#include <ATen/Context.h>
#include <ATen/Version.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <set>

#include "base/text.h"
#include "calibrate/measure_links.h"
#include "calibrate/node_timer.h"
#include "cost/cost.h"
#include "runtime/cores.h"

namespace epl {
namespace {

// What is measured: sizes that are far enough apart to fit a line, and what steps have.
struct Sizes {
  std::vector<int64_t> products, elements, bytes;
};

Sizes sizes_for(bool quick) {
  if (quick) return {{1, 32, 128}, {1'000, 30'000, 300'000}, {1 << 10, 1 << 16, 1 << 20}};
  return {{1, 16, 64, 256, 1024, 2048},
          {1'000, 10'000, 100'000, 1'000'000, 4'000'000},
          {1 << 10, 1 << 13, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26}};
}

// "model name : AMD EPYC" -> "AMD EPYC"; "" where the system does not say.
std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "";
}

// What LibTorch says of itself behind a word, up to the end of an item.
std::string said_by_libtorch(const std::string& word) {
  const std::string text = at::show_config();
  const size_t begin = text.find(word);
  if (begin == std::string::npos) return "";
  const size_t first = begin + word.size();
  return text.substr(first, text.find_first_of(",\n", first) - first);
}

std::map<std::string, std::string> describe_machine(size_t cores) {
  return {{"processor", processor_name()},
          {"cores", std::to_string(cores)},
          {"threads", "1"},
          {"libtorch", TORCH_VERSION},
          {"blas", said_by_libtorch("BLAS_INFO=")},
          {"instructions", said_by_libtorch("CPU capability usage: ")}};
}

double memory_of_machine_gib() {
  const auto pages = static_cast<double>(sysconf(_SC_PHYS_PAGES));
  return pages * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1024.0 * 1024 * 1024);
}

// Figures of measurements, to four digits: what stands behind them is noise.
double rounded(double value) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.4g", value);
  return std::stod(digits);
}

class Calibrator {
 public:
  explicit Calibrator(const CalibrateOptions& options)
      : options_(options),
        timing_(options.quick ? quick_timing() : full_timing()),
        sizes_(sizes_for(options.quick)),
        cores_(allowed_cores().size()),
        shares_(share_cores(allowed_cores(), static_cast<int>(cores_))) {}

  Calibration run() {
    found_.costs.machine = describe_machine(cores_);
    measure_core();
    measure_memory();
    found_.cluster.name = "this machine";
    const size_t threads = measure_link("threads", LinkAlgorithm::kThreads);
    const size_t board = measure_link("shared_memory", LinkAlgorithm::kSharedMemory);
    measure_link("tcp", LinkAlgorithm::kDirect);
    describe_host(threads, board);
    return std::move(found_);
  }

 private:
  void measure_core() {
    const OnCores bound(shares_[0]);
    CostTable& costs = found_.costs;
    say("products of matrices");
    costs.products["f32"] = measure_products(sizes_.products, timing_);
    costs.families = measure_families(sizes_.elements, timing_, options_.progress);
    say("updates of optimizers");
    costs.updates = measure_updates(sizes_.elements, timing_);
    kind_.name = "core";
    kind_.call_us = rounded(measure_call(timing_) / kMicro);
    kind_.flops["f32"] = rounded(best_product(costs.products["f32"]));
    // The line of a pointwise operator: what a byte costs once the call is paid.
    constexpr double kLeastByte = 1e-13;  // seconds, where noise hides them
    kind_.memory_gbps =
        rounded(1 / std::max(kLeastByte, costs.families.at("aten::relu").each) / kGiga);
    if (options_.graph == nullptr) return;
    say(concat("operators of a graph with ", options_.graph->nodes.size(), " nodes"));
    const int timed = time_operators(*options_.graph, timing_, costs);
    say(concat(timed, " operators timed"));
  }

  static double best_product(const ProductGrid& grid) {
    double best = 0;
    size_t place = 0;
    for (const int64_t m : grid.m) {
      for (const int64_t n : grid.n) {
        for (const int64_t k : grid.k) {
          best = std::max(best, 2 * static_cast<double>(m * n * k) / grid.seconds[place++]);
        }
      }
    }
    return best;
  }

  // Of one thread, of two, and of all cores.
  void measure_memory() {
    for (const size_t threads : std::set<size_t>{1, std::min<size_t>(2, cores_), cores_}) {
      say(concat("copies of ", threads, threads == 1 ? " thread" : " threads"));
      CopySpeed speed = measure_copies(static_cast<int>(threads), shares_, timing_);
      speed.gbps = rounded(speed.gbps);
      found_.costs.copies.push_back(speed);
    }
  }

  size_t measure_link(const std::string& name, LinkAlgorithm algorithm) {
    say(concat("collectives over ", name));
    constexpr int kMembers = 2;
    const std::vector<CollectiveTime> times =
        measure_collectives(algorithm, kMembers, sizes_.bytes, shares_, timing_);
    for (const CollectiveTime& time : times) {
      const std::string& collective = collective_names()[static_cast<size_t>(time.collective)];
      found_.costs.collectives[name][collective][time.members].push_back(
          {time.bytes, time.seconds});
    }
    for (auto& [collective, curves] : found_.costs.collectives[name]) {
      for (auto& [members, curve] : curves) curve = rising_curve(std::move(curve));
    }
    LinkKind link;
    link.name = name;
    link.algorithm = algorithm;
    LinkFit fit = fit_link(link, times);
    fit.link.us = rounded(fit.link.us);
    fit.link.gbps = rounded(fit.link.gbps);
    say(concat(name, ": ", fit.link.us, " us a step, ", fit.link.gbps, " GB/s, within ",
               std::lround(100 * fit.error), " %"));
    found_.cluster.links.push_back(fit.link);
    return found_.cluster.links.size() - 1;
  }

  void describe_host(size_t threads, size_t board) {
    kind_.memory_gib = rounded(memory_of_machine_gib() / static_cast<double>(cores_));
    found_.cluster.kinds.push_back(kind_);
    HostRun host;
    host.devices.push_back({0, static_cast<int64_t>(cores_)});
    host.inside = threads;
    host.between_workers = board;
    host.cores = static_cast<double>(cores_);
    // A copy reads and writes.
    host.memory_gbps = rounded(2 * found_.costs.copies.back().gbps);
    found_.cluster.hosts.push_back(host);
    found_.cluster.workers = ClusterDescription::Workers::kHost;
  }

  void say(const std::string& line) const { options_.progress(line); }

  const CalibrateOptions& options_;
  const Timing timing_;
  const Sizes sizes_;
  const size_t cores_;
  const std::vector<CoreShare> shares_;
  DeviceKind kind_;
  Calibration found_;
};

}  // namespace

Calibration calibrate(const CalibrateOptions& options) { return Calibrator(options).run(); }

}  // namespace epl

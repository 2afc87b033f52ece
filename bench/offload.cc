// What does it cost to keep parameters and optimizer states in a file, or in the memory of the host
// with windows for the device? EPL with offload.level "v0" and "v1" against EPL with all in memory,
// on one device with one thread.
//
//   bench_offload [--layers 24] [--width 1024] [--rows 512] [--rounds 5] [--path FOLDER]
//
// A stack of square layers, trained by AdamW: by default 100 MB of parameters and 200 MB of states.
// Before anything is timed, three steps of each side must give the bits of those in memory; and
// under a memory.limit below the bytes of parameters and states, where the run in memory is
// refused, the offloaded one must give those bits as well. The sides take turns, each in a process
// of its own. The last line is one JSON object:
//
//   rss_vs_memory   resident bytes of parameters and states, with the file against in memory: the
//                   peaks of the processes differ in nothing else
//   near            the same by EPL's own account
//   io_efficiency   max(seconds of a step in memory, bytes / bandwidth) / seconds of a step; the
//                   bandwidth of the disk is measured in this run, past the system's cache
//   time            seconds of a step against in memory
//   limit_share     the limit of the limited run, of the bytes of parameters and states
//   host_time       seconds of a step with "v1" in the host's memory, and half the bytes that the
//                   device needs with all in its own as memory.limit, against in memory
//   device_peak     what the device held in such a step by its account, of that limit
#include <epl/epl.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/programs.h"
#include "bench/turns.h"
#include "program/bytes_moved.h"
#include "program/parse.h"

namespace epl {
namespace {

constexpr double kMegabyte = 1e6;
constexpr const char* kHost = "host";

struct Arguments {
  int64_t layers = 24;
  int64_t width = 1024;
  int64_t rows = 512;
  int rounds = 5;
  std::string path = "/var/tmp";
  std::string serve;  // this process is the side of this name
  int64_t limit = 0;  // of its device

  int64_t parameters() const { return layers * (width * width + width) * 4; }
  int64_t bytes() const { return 3 * parameters(); }  // with AdamW's states
};

void begin(const Arguments& arguments, const std::string& side, int64_t limit = 0) {
  std::vector<Setting> settings;
  if (side == kHost) {
    settings.emplace_back("offload.level", "v1");
  } else if (side != "memory") {
    settings.emplace_back("offload.level", side);
    settings.emplace_back("offload.path", arguments.path);
  }
  if (limit > 0) settings.emplace_back("memory.limit", limit);
  epl::init(Config(settings));
}

struct Training {
  explicit Training(const Arguments& arguments, int64_t rows) {
    torch::manual_seed(0);
    for (int64_t i = 0; i < arguments.layers; ++i) {
      net->push_back(torch::nn::Linear(arguments.width, arguments.width));
      net->push_back(torch::nn::Tanh());
    }
    optimizer = std::make_unique<torch::optim::AdamW>(net->parameters(), 1e-4);
    trainer = std::make_unique<Trainer>(net, *optimizer, [this](const Batch& given) {
      return net->forward(given[0]).square().mean();
    });
    batch = {torch::randn({rows, arguments.width})};
  }
  void step() { trainer->step(batch); }

  torch::nn::Sequential net;
  std::unique_ptr<torch::optim::AdamW> optimizer;
  std::unique_ptr<Trainer> trainer;
  Batch batch;
};

// --- results first ------------------------------------------------------------------------------

std::vector<torch::Tensor> parameters_after(const Arguments& arguments, const std::string& side,
                                            int64_t rows, int64_t limit = 0) {
  begin(arguments, side, limit);
  Training training(arguments, rows);
  for (int i = 0; i < 3; ++i) training.step();
  std::vector<torch::Tensor> parameters;
  for (const auto& parameter : training.net->parameters()) {
    parameters.push_back(parameter.detach().clone());
  }
  return parameters;
}

void check_same(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b,
                const std::string& side) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (torch::equal(a[i], b[i])) continue;
    throw std::runtime_error(side + ": parameter " + std::to_string(i) +
                             " has other bits than in memory");
  }
}

// Of few rows, so that values are a small part of what a device holds.
double check_limited(const Arguments& arguments) {
  const int64_t rows = std::max<int64_t>(1, arguments.rows / 8);
  const int64_t limit = arguments.bytes() * 3 / 4;
  const auto in_memory = parameters_after(arguments, "memory", rows);
  bool refused = false;
  try {
    parameters_after(arguments, "memory", rows, limit);
  } catch (const Error&) {
    refused = true;
  }
  if (!refused) throw std::runtime_error("the limit is none: all fits in memory");
  check_same(in_memory, parameters_after(arguments, "v1", rows, limit), "v1 with a limit");
  return static_cast<double>(limit) / static_cast<double>(arguments.bytes());
}

// What a device needs with all in its own memory, by the account of memory.limit.
int64_t bytes_needed(const Arguments& arguments) {
  begin(arguments, "memory");
  Training training(arguments, arguments.rows);
  return training.trainer->what_fits(training.batch, int64_t{1} << 60).rows.at(0).bytes;
}

// --- the disk -----------------------------------------------------------------------------------

struct Disk {
  double read = 0;  // bytes a second
  double write = 0;
};

double bytes_per_second(int file, bool reads, char* block, int64_t block_bytes, int blocks) {
  const double seconds = bench::seconds([&] {
    for (int i = 0; i < blocks; ++i) {
      const ssize_t moved = reads ? pread(file, block, block_bytes, i * block_bytes)
                                  : pwrite(file, block, block_bytes, i * block_bytes);
      if (moved != block_bytes) throw std::runtime_error("cannot measure the disk");
    }
    if (!reads) fdatasync(file);
  });
  return static_cast<double>(blocks * block_bytes) / seconds;
}

Disk measure_disk(const std::string& path) {
  constexpr int64_t kBlock = 4 << 20;
  constexpr int kBlocks = 64;
  const int file = open(path.c_str(), O_TMPFILE | O_RDWR | O_DIRECT, 0600);
  if (file < 0) throw std::runtime_error("cannot write to " + path);
  std::unique_ptr<char, decltype(&std::free)> block(
      static_cast<char*>(std::aligned_alloc(4096, kBlock)), &std::free);
  std::fill_n(block.get(), kBlock, 'x');
  posix_fallocate(file, 0, kBlock * kBlocks);
  bytes_per_second(file, false, block.get(), kBlock, kBlocks);  // extents are written once
  Disk disk;
  for (int i = 0; i < 3; ++i) {
    disk.write = std::max(disk.write, bytes_per_second(file, false, block.get(), kBlock, kBlocks));
    disk.read = std::max(disk.read, bytes_per_second(file, true, block.get(), kBlock, kBlocks));
  }
  close(file);
  return disk;
}

// --- the sides ----------------------------------------------------------------------------------

double megabytes_of_process(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name + ":", 0) == 0) return std::stod(line.substr(name.size() + 1)) * 1024 / 1e6;
  }
  return 0;
}

void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5" << std::flush; }

double read_bytes(const std::string& plan_text) {
  const Plan plan = parse_plan(plan_text);
  int64_t bytes = 0;
  for (const Instruction& each : plan.programs[0].instructions) {
    if (each.kind == Instruction::Kind::kFetch) bytes += bytes_moved(plan.programs[0], each);
  }
  return static_cast<double>(bytes);
}

// Answers first: megabytes at the peak of a step by the system and, of what is near, by the
// account; bytes that a step reads from the file; megabytes of the device by its account.
void serve(const Arguments& arguments) {
  begin(arguments, arguments.serve, arguments.limit);
  Training training(arguments, arguments.rows);
  for (int i = 0; i < 3; ++i) training.step();
  reset_peak();
  training.step();
  const double peak = megabytes_of_process("VmHWM");
  const MemoryReport memory = training.trainer->memory();
  const double near =
      static_cast<double>(memory.workers[0].measured_shared.value_or(0)) / kMegabyte;
  const double device = static_cast<double>(memory.workers[0].measured().value_or(0)) / kMegabyte;
  bench::serve({peak, near, read_bytes(training.trainer->plan()), device},
               [&] { return bench::seconds_of_each(1, [&] { training.step(); }); });
}

struct Measured {
  double peak = 0;
  double near = 0;
  double read = 0;
  double device = 0;
  double step = 0;
};

std::vector<Measured> measure(const Arguments& arguments, const std::vector<std::string>& names,
                              int64_t host_limit) {
  std::vector<std::unique_ptr<bench::Side>> sides;
  std::vector<Measured> measured;
  for (const std::string& name : names) {
    sides.push_back(std::make_unique<bench::Side>(
        name, bench::Start{{"--serve", name, "--layers", std::to_string(arguments.layers),
                            "--width", std::to_string(arguments.width), "--rows",
                            std::to_string(arguments.rows), "--path", arguments.path, "--limit",
                            std::to_string(name == kHost ? host_limit : 0)}}));
    const std::vector<double> answer = sides.back()->answer();
    measured.push_back({answer.at(0), answer.at(1), answer.at(2), answer.at(3), 0});
  }
  std::vector<std::vector<double>> taken(names.size());
  for (int round = 0; round < arguments.rounds; ++round) {
    for (size_t i = 0; i < sides.size(); ++i) {
      sides[i]->go();
      for (double seconds : sides[i]->answer()) taken[i].push_back(seconds);
    }
  }
  for (auto& side : sides) side->end();
  for (size_t i = 0; i < names.size(); ++i) measured[i].step = bench::median(taken[i]);
  return measured;
}

// --- the report ---------------------------------------------------------------------------------

int run(const Arguments& arguments) {
  const auto in_memory = parameters_after(arguments, "memory", arguments.rows);
  for (const char* side : {"v0", "v1"}) {
    check_same(in_memory, parameters_after(arguments, side, arguments.rows), side);
  }
  const double limit_share = check_limited(arguments);
  const int64_t host_limit = bytes_needed(arguments) / 2;
  check_same(in_memory, parameters_after(arguments, kHost, arguments.rows, host_limit), kHost);
  const std::vector<std::string> names = {"memory", "v0", "v1", kHost};
  const Disk disk = measure_disk(arguments.path);
  const std::vector<Measured> measured = measure(arguments, names, host_limit);
  const Disk after = measure_disk(arguments.path);
  const double read = std::max(disk.read, after.read);
  const double write = std::max(disk.write, after.write);
  std::printf("disk %.2f GB/s read, %.2f GB/s written\n", read / 1e9, write / 1e9);
  std::string rss, near, efficiency, time;
  const auto add = [](std::string& text, const std::string& name, double value) {
    char number[64];
    std::snprintf(number, sizeof number, "%s\"%s\": %.4f", text.empty() ? "" : ", ", name.c_str(),
                  value);
    text += number;
  };
  const double all = static_cast<double>(arguments.bytes()) / kMegabyte;
  for (size_t i = 1; i + 1 < names.size(); ++i) {
    const double rest = measured[0].peak - all;
    const double resident = measured[i].peak - rest;
    const double written =
        static_cast<double>(names[i] == "v1" ? arguments.bytes() : arguments.parameters());
    const double moving = measured[i].read / read + written / write;
    add(rss, names[i], resident / all);
    add(near, names[i], measured[i].near / all);
    add(efficiency, names[i], std::max(measured[0].step, moving) / measured[i].step);
    add(time, names[i], measured[i].step / measured[0].step);
    std::printf(
        "%s: step %.3f s, in memory %.3f s, moving its bytes %.3f s | %.1f of %.1f MB resident, "
        "%.1f "
        "by the account\n",
        names[i].c_str(), measured[i].step, measured[0].step, moving, resident, all,
        measured[i].near);
  }
  const double host_time = measured.back().step / measured[0].step;
  const double peak = measured.back().device * kMegabyte / static_cast<double>(host_limit);
  std::printf("host: step %.3f s, in memory %.3f s | %.1f of %.1f MB on the device\n",
              measured.back().step, measured[0].step, measured.back().device,
              static_cast<double>(host_limit) / kMegabyte);
  std::printf(
      "{\"rss_vs_memory\": {%s}, \"near\": {%s}, \"io_efficiency\": {%s}, \"time\": {%s}, "
      "\"limit_share\": %.4f, \"host_time\": %.4f, \"device_peak\": %.4f}\n",
      rss.c_str(), near.c_str(), efficiency.c_str(), time.c_str(), limit_share, host_time, peak);
  return 0;
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; i += 2) {
    const std::string key = argv[i];
    if (i + 1 == argc) throw std::runtime_error(key + " needs a value");
    const std::string value = argv[i + 1];
    if (key == "--layers") {
      arguments.layers = std::stoll(value);
    } else if (key == "--width") {
      arguments.width = std::stoll(value);
    } else if (key == "--rows") {
      arguments.rows = std::stoll(value);
    } else if (key == "--rounds") {
      arguments.rounds = std::max(1, std::stoi(value));
    } else if (key == "--path") {
      arguments.path = value;
    } else if (key == "--limit") {
      arguments.limit = std::stoll(value);
    } else if (key == "--serve") {
      arguments.serve = value;
    } else {
      throw std::runtime_error(
          "usage: bench_offload [--layers N] [--width N] [--rows N] [--rounds N] [--path FOLDER]");
    }
  }
  return arguments;
}

int run_all(const Arguments& arguments) {
  bench::use_one_thread();
  if (arguments.serve.empty()) return run(arguments);
  serve(arguments);
  return 0;
}

}  // namespace
}  // namespace epl

int main(int argc, char** argv) {
  try {
    return epl::run_all(epl::parse(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << "bench_offload: " << error.what() << "\n";
    return 1;
  }
}

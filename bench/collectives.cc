// How fast is all_reduce? EPL's transports within a host against c10d's Gloo, Open MPI and the
// limit.
//
//   bench_collectives [--sizes 1KB,64KB,1MB,16MB,128MB] [--members 2,4] [--rounds 7]
//                     [--in_place 64MB]
//
// Of float32, in place, a sum. The sides:
//   one_worker   devices that are threads of one process (make_local_communicators)
//   two_workers  devices that are processes (make_shared_memory_communicator)
//   limit        threads that do nothing but add their share into all tensors between two barriers
//   gloo         c10d's ProcessGroupGloo between processes, over the loopback interface
//   open mpi     MPI_Allreduce between processes, where bench_open_mpi was built
// And what is all_reduce in two steps, of 20 tensors of so many bytes together between two
// processes
// (--in_place): reduce_scatter_in_place and all_gather_in_place, each alone and one after the
// other, beside all_reduce of the same tensors. All take turns in the same run, each in processes
// of its own (bench/turns.h), after each has checked its result. The last line is one JSON object:
// medians in microseconds, and speeds as ratios, where more than 1 is faster than the other. Of
// operations in place: seconds of both against those of all_reduce.
#define USE_C10D_GLOO  // as LibTorch was built
#include <signal.h>
#include <sys/prctl.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

#include "bench/turns.h"
#include "comm/communicator.h"
#include "comm/test_forks.h"
#include "comm/waiting.h"

namespace epl {
namespace {

constexpr auto kDeadline = std::chrono::minutes(1);

// One member's call; all members make it.
using Call = std::function<void(at::Tensor&)>;
// Whether it gave what it should to a member whose tensor was full of `rank` + 1.
using IsRight = bool (*)(const at::Tensor& tensor, int rank, int members);

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// --- one member --------------------------------------------------------------------------------

bool is_full_of(const at::Tensor& tensor, int value) { return tensor.eq(value).all().item<bool>(); }

bool is_sum_of_all(const at::Tensor& tensor, int /*rank*/, int members) {
  return is_full_of(tensor, members * (members + 1) / 2);
}

at::Tensor make_checked(const Call& call, IsRight is_right, int rank, int members, int64_t bytes) {
  at::Tensor tensor = at::full({bytes / 4}, rank + 1, at::kFloat);
  call(tensor);
  if (!is_right(tensor, rank, members)) throw std::runtime_error("wrong result");
  return tensor.zero_();
}

// Seconds of one of `calls` calls, after one in which the members meet.
double seconds_of(int calls, const Call& call, at::Tensor& tensor) {
  call(tensor);
  const double begin = now();
  for (int i = 0; i < calls; ++i) call(tensor);
  return (now() - begin) / calls;
}

// --- sides -------------------------------------------------------------------------------------

// Makes all members do so many calls; returns the seconds of one.
using Turn = std::function<double(int calls)>;

// Warms up, finds out how many calls make a turn of some 30 ms, and takes turns.
void serve_turns(const Turn& turn) {
  const double first = std::min(turn(3), turn(3));
  const int calls = std::clamp(static_cast<int>(0.03 / first), 1, 2000);
  bench::serve(first, [&] { return std::vector<double>{turn(calls)}; });
}

void serve_threads(int members, int64_t bytes, const std::vector<Call>& calls) {
  const auto on_threads = [&](const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 1; rank < members; ++rank) threads.emplace_back(body, rank);
    body(0);
    for (auto& thread : threads) thread.join();
  };
  std::vector<at::Tensor> tensors(calls.size());
  on_threads([&](int rank) {
    const auto index = static_cast<size_t>(rank);
    tensors[index] = make_checked(calls[index], is_sum_of_all, rank, members, bytes);
  });
  serve_turns([&](int count) {
    double seconds = 0;
    on_threads([&](int rank) {
      const auto index = static_cast<size_t>(rank);
      const double mine = seconds_of(count, calls[index], tensors[index]);
      if (rank == 0) seconds = mine;
    });
    return seconds;
  });
}

// The other members are forked before this process has threads; each does what comes down its pipe.
void serve_processes(int members, int64_t bytes, const std::function<Call(int rank)>& make,
                     IsRight is_right = is_sum_of_all) {
  std::vector<int> pipes;
  std::vector<pid_t> others;
  for (int rank = 1; rank < members; ++rank) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("cannot make a pipe");
    others.push_back(testing::start_process(
        [&](int mine) {
          prctl(PR_SET_PDEATHSIG, SIGKILL);
          for (const int end : pipes) close(end);
          close(ends[1]);
          const Call call = make(mine);
          at::Tensor tensor = make_checked(call, is_right, mine, members, bytes);
          for (int calls = 0; read(ends[0], &calls, sizeof calls) == sizeof calls;) {
            seconds_of(calls, call, tensor);
          }
        },
        rank));
    close(ends[0]);
    pipes.push_back(ends[1]);
  }
  const Call call = make(0);
  at::Tensor tensor = make_checked(call, is_right, 0, members, bytes);
  serve_turns([&](int calls) {
    for (const int end : pipes) {
      if (write(end, &calls, sizeof calls) != sizeof calls)
        throw std::runtime_error("a member died");
    }
    return seconds_of(calls, call, tensor);
  });
  for (const int end : pipes) close(end);
  for (const pid_t other : others) testing::wait_for_process(other);
}

void serve_one_worker(int members, int64_t bytes) {
  Watch watch;
  const auto ends = make_local_communicators(members, watch, {"bench", kDeadline});
  std::vector<Call> calls;
  for (const auto& end : ends) {
    calls.push_back([&end](at::Tensor& tensor) { end->all_reduce({tensor}, ReduceOp::kSum); });
  }
  serve_threads(members, bytes, calls);
}

void serve_two_workers(int members, int64_t bytes) {
  testing::SharedText texts(members);
  Watch watch;
  serve_processes(members, bytes, [&](int rank) -> Call {
    std::shared_ptr<Communicator> end = make_shared_memory_communicator(
        rank, members, watch, texts.exchange(rank), {"bench", kDeadline});
    return [end](at::Tensor& tensor) { end->all_reduce({tensor}, ReduceOp::kSum); };
  });
}

void serve_gloo(int members, int64_t bytes) {
  const std::string file = "/tmp/epl_bench_gloo." + std::to_string(getpid());
  serve_processes(members, bytes, [&](int rank) -> Call {
    auto options = c10d::ProcessGroupGloo::Options::create(kDeadline);
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    auto store = c10::make_intrusive<c10d::FileStore>(file, members);
    auto group = std::make_shared<c10d::ProcessGroupGloo>(store, rank, members, options);
    return [group](at::Tensor& tensor) {
      std::vector<at::Tensor> tensors{tensor};
      group->allreduce(tensors)->wait();
    };
  });
  unlink(file.c_str());
}

// --- in place ----------------------------------------------------------------------------------

constexpr int64_t kTensors = 20;

std::vector<int64_t> even_counts(int64_t elements, int members) {
  std::vector<int64_t> counts;
  for (int i = 0; i < members; ++i) {
    counts.push_back(elements * (i + 1) / members - elements * i / members);
  }
  return counts;
}

bool is_own_sum(const at::Tensor& tensor, int rank, int members) {
  const auto parts = tensor.split_with_sizes(even_counts(tensor.numel(), members));
  return is_full_of(parts[static_cast<size_t>(rank)], members * (members + 1) / 2);
}

bool is_gathered(const at::Tensor& tensor, int /*rank*/, int members) {
  const auto parts = tensor.split_with_sizes(even_counts(tensor.numel(), members));
  for (int i = 0; i < members; ++i) {
    if (!is_full_of(parts[static_cast<size_t>(i)], i + 1)) return false;
  }
  return true;
}

struct Cut {
  std::vector<at::Tensor> tensors;
  std::vector<int64_t> counts;
};

using CallOfCut = void (*)(Communicator& end, const Cut& cut);

void all_reduce(Communicator& end, const Cut& cut) { end.all_reduce(cut.tensors, ReduceOp::kSum); }
void reduce_scatter(Communicator& end, const Cut& cut) {
  end.reduce_scatter_in_place(cut.tensors, cut.counts, ReduceOp::kSum);
}
void all_gather(Communicator& end, const Cut& cut) {
  end.all_gather_in_place(cut.tensors, cut.counts);
}
void both(Communicator& end, const Cut& cut) {
  reduce_scatter(end, cut);
  all_gather(end, cut);
}

template <CallOfCut kCall, IsRight kIsRight>
void serve_in_place(int members, int64_t bytes) {
  testing::SharedText texts(members);
  Watch watch;
  const auto make = [&](int rank) -> Call {
    std::shared_ptr<Communicator> end = make_shared_memory_communicator(
        rank, members, watch, texts.exchange(rank), {"bench", kDeadline});
    return [end, cut = Cut()](at::Tensor& tensor) mutable {
      if (cut.tensors.empty()) {
        cut = {tensor.chunk(kTensors), even_counts(tensor.numel(), end->size())};
      }
      kCall(*end, cut);
    };
  };
  serve_processes(members, bytes, make, kIsRight);
}

// --- the limit ---------------------------------------------------------------------------------

// Spins; where there are more threads than cores, it lets the others run.
class SpinBarrier {
 public:
  explicit SpinBarrier(int members)
      : members_(members),
        spins_(members > static_cast<int>(std::thread::hardware_concurrency()) ? 20 : 2000) {}
  void wait() {
    const int round = round_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) == members_ - 1) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.fetch_add(1, std::memory_order_release);
      return;
    }
    for (int i = 0; round_.load(std::memory_order_acquire) == round; ++i) {
      if (i < spins_) {
        comm::pause_core();
      } else {
        std::this_thread::yield();
      }
    }
  }

 private:
  const int members_, spins_;
  std::atomic<int> arrived_{0}, round_{0};
};

using Floats8 = float __attribute__((vector_size(32), aligned(4)));

template <int kMembers>
inline __attribute__((always_inline)) void add_all(float* const* tensors, int64_t begin,
                                                   int64_t end) {
  for (int64_t i = begin; i < end; i += 8) {
    Floats8 sum = *reinterpret_cast<const Floats8*>(tensors[0] + i);
    for (int m = 1; m < kMembers; ++m) sum += *reinterpret_cast<const Floats8*>(tensors[m] + i);
    for (int m = 0; m < kMembers; ++m) *reinterpret_cast<Floats8*>(tensors[m] + i) = sum;
  }
}

#ifdef __x86_64__
#define EPL_BENCH_TARGET __attribute__((target("avx2")))
#else
#define EPL_BENCH_TARGET
#endif

EPL_BENCH_TARGET void add_share(const std::vector<float*>& tensors, int64_t begin, int64_t end) {
  if (tensors.size() == 2) return add_all<2>(tensors.data(), begin, end);
  add_all<4>(tensors.data(), begin, end);
}

void serve_limit(int members, int64_t bytes) {
  SpinBarrier barrier(members);
  std::vector<float*> places(static_cast<size_t>(members));
  // Tensors at places of their own: two that lie a large power of two apart throw each other out of
  // the first cache (reduce_kernels.cc), which is not what limits a sum.
  std::vector<at::Tensor> memory;
  for (int rank = 0; rank < members; ++rank) {
    memory.push_back(at::zeros({bytes / 4 + members * 8192}));
    places[static_cast<size_t>(rank)] = memory.back().data_ptr<float>() + rank * 8192;
  }
  std::vector<Call> calls;
  for (int rank = 0; rank < members; ++rank) {
    calls.push_back([&, rank, first = true](at::Tensor& tensor) mutable {
      float* mine = places[static_cast<size_t>(rank)];
      if (first) std::memcpy(mine, tensor.data_ptr(), static_cast<size_t>(bytes));
      barrier.wait();
      const int64_t blocks = bytes / 32;
      add_share(places, blocks * rank / members * 8, blocks * (rank + 1) / members * 8);
      barrier.wait();
      if (first) std::memcpy(tensor.data_ptr(), mine, static_cast<size_t>(bytes));
      if (first) std::memset(mine, 0, static_cast<size_t>(bytes));
      first = false;
    });
  }
  serve_threads(members, bytes, calls);
}

// --- Open MPI ----------------------------------------------------------------------------------

std::string path_of_open_mpi() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "bench_open_mpi";
}

[[noreturn]] void serve_open_mpi(int members, int64_t bytes) {
  std::vector<std::string> words = {
      "mpirun",           "--allow-run-as-root", "--oversubscribe", "-np", std::to_string(members),
      path_of_open_mpi(), std::to_string(bytes)};
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp("mpirun", arguments.data());
  throw std::runtime_error("cannot start mpirun");
}

// --- measuring ---------------------------------------------------------------------------------

using Serve = void (*)(int members, int64_t bytes);
using Sides = std::vector<std::pair<std::string, Serve>>;

const Sides& sides() {
  static const Sides all = {{"one_worker", serve_one_worker},
                            {"two_workers", serve_two_workers},
                            {"limit", serve_limit},
                            {"gloo", serve_gloo},
                            {"open_mpi", serve_open_mpi}};
  return all;
}

const Sides& sides_in_place() {
  static const Sides all = {{"all_reduce", serve_in_place<all_reduce, is_sum_of_all>},
                            {"reduce_scatter_in_place", serve_in_place<reduce_scatter, is_own_sum>},
                            {"all_gather_in_place", serve_in_place<all_gather, is_gathered>},
                            {"both", serve_in_place<both, is_sum_of_all>}};
  return all;
}

// Median seconds of each side that is there.
using Times = std::map<std::string, double>;

Times measure(const Sides& sides, int members, int64_t bytes, int rounds) {
  std::map<std::string, std::unique_ptr<bench::Side>> running;
  std::map<std::string, std::vector<double>> taken;
  for (const auto& [name, serve] : sides) {
    if (serve == serve_open_mpi && !std::filesystem::exists(path_of_open_mpi())) continue;
    const std::vector<std::string> arguments = {
        "--serve", name, "--members", std::to_string(members), "--bytes", std::to_string(bytes)};
    running[name] = std::make_unique<bench::Side>(name, bench::Start{arguments});
    running[name]->answer();  // it is ready: the sides must not start up at the same time
  }
  for (int round = 0; round < rounds; ++round) {
    for (auto& [name, side] : running) {
      side->go();
      taken[name].push_back(side->answer().at(0));
    }
  }
  Times times;
  for (const auto& [name, seconds] : taken) times[name] = median(seconds);
  return times;
}

// --- the report --------------------------------------------------------------------------------

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

std::string speed_against(const Times& times, const std::string& mine, const std::string& other) {
  if (times.count(other) == 0) return "null";
  return number(times.at(other) / times.at(mine));
}

std::string entry(const Times& times, const std::string& mine) {
  return "{\"microseconds\": " + number(1e6 * times.at(mine)) +
         ", \"vs_limit\": " + speed_against(times, mine, "limit") +
         ", \"vs_gloo\": " + speed_against(times, mine, "gloo") +
         ", \"vs_open_mpi\": " + speed_against(times, mine, "open_mpi") + "}";
}

std::string entry_in_place(const Times& times) {
  std::string text;
  for (const auto& [name, seconds] : times)
    text += "\"" + name + "\": " + number(1e6 * seconds) + ", ";
  return "{" + text +
         "\"both_vs_all_reduce\": " + number(times.at("both") / times.at("all_reduce")) + "}";
}

void print(const Sides& sides, int members, const std::string& size, const Times& times) {
  std::printf("%d members %6s |", members, size.c_str());
  for (const auto& [name, serve] : sides) {
    if (times.count(name)) std::printf(" %s %11.2f us |", name.c_str(), 1e6 * times.at(name));
  }
  std::printf("\n");
  std::fflush(stdout);
}

int64_t bytes_of(const std::string& size) {
  std::istringstream text(size);
  int64_t count = 0;
  std::string unit;
  text >> count >> unit;
  if (count > 0 && unit == "KB") return count << 10;
  if (count > 0 && unit == "MB") return count << 20;
  throw std::runtime_error("a size is 64KB or 16MB, not " + size);
}

struct Arguments {
  std::vector<std::string> sizes = {"1KB", "64KB", "1MB", "16MB", "128MB"};
  std::vector<std::string> members = {"2", "4"};
  std::string in_place = "64MB";
  int rounds = 7;
  std::string serve;  // this process is one side of a measurement, of so many
  int64_t bytes = 0;  // bytes
};

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> items;
  std::stringstream text(list);
  for (std::string item; std::getline(text, item, ',');) items.push_back(item);
  return items;
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; i += 2) {
    const std::string key = argv[i];
    if (i + 1 == argc) throw std::runtime_error(key + " needs a value");
    const std::string value = argv[i + 1];
    if (key == "--sizes") {
      arguments.sizes = split(value);
    } else if (key == "--members") {
      arguments.members = split(value);
    } else if (key == "--rounds") {
      arguments.rounds = std::max(1, std::stoi(value));
    } else if (key == "--in_place") {
      arguments.in_place = value;
    } else if (key == "--serve") {
      arguments.serve = value;
    } else if (key == "--bytes") {
      arguments.bytes = std::stoll(value);
    } else {
      throw std::runtime_error("unknown option " + key);
    }
  }
  for (const std::string& members : arguments.members) {
    if (members != "2" && members != "4") throw std::runtime_error("members are 2 or 4");
  }
  return arguments;
}

void serve_side(const Arguments& arguments) {
  for (const Sides& all : {sides(), sides_in_place()}) {
    for (const auto& [name, serve] : all) {
      if (name == arguments.serve) serve(std::stoi(arguments.members.at(0)), arguments.bytes);
    }
  }
}

void run(const Arguments& arguments) {
  if (!std::filesystem::exists(path_of_open_mpi())) {
    std::printf("Open MPI is not here: vs_open_mpi is null (libopenmpi-dev openmpi-bin)\n");
  }
  std::map<std::string, std::string> groups;
  for (const std::string& members : arguments.members) {
    const std::string suffix = members == "2" ? "" : "_" + members;
    for (const std::string& size : arguments.sizes) {
      const Times times = measure(sides(), std::stoi(members), bytes_of(size), arguments.rounds);
      print(sides(), std::stoi(members), size, times);
      for (const std::string mine : {"one_worker", "two_workers"}) {
        std::string& group = groups[mine + suffix];
        group += (group.empty() ? "\"" : ", \"") + size + "\": " + entry(times, mine);
      }
    }
  }
  const Times times = measure(sides_in_place(), 2, bytes_of(arguments.in_place), arguments.rounds);
  print(sides_in_place(), 2, arguments.in_place, times);
  groups["in_place"] = "\"" + arguments.in_place + "\": " + entry_in_place(times);
  std::string text;
  for (const auto& [name, entries] : groups) {
    text += (text.empty() ? "\"" : ", \"") + name + "\": {" + entries + "}";
  }
  std::printf("{%s}\n", text.c_str());
}

}  // namespace
}  // namespace epl

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  try {
    at::set_num_threads(1);
    const auto arguments = epl::parse(argc, argv);
    arguments.serve.empty() ? epl::run(arguments) : epl::serve_side(arguments);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_collectives: %s\n", error.what());
    return 1;
  }
}

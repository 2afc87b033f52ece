// Trainings on several workers: each worker is a process forked from the test, which hands its
// trace back in a file.
#include <arpa/inet.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <iostream>
#include <stdexcept>
#include <thread>

#include "comm/watch.h"
#include "job/job.h"
#include "program/placement.h"
#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

// Debian's LibTorch 2 has a guard for Vulkan devices, though none of them. Autograd starts a thread
// for it in the first backward(), and would refuse to run in the workers that are forked after
// that.
[[maybe_unused]] const bool kNoVulkan = [] {
  c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::kVulkan)].store(nullptr);
  return true;
}();

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

void save(const Trace& trace, const std::string& path) {
  torch::serialize::OutputArchive file;
  file.write("steps", torch::tensor(static_cast<int64_t>(trace.size())));
  for (size_t i = 0; i < trace.size(); ++i) {
    const std::string at = std::to_string(i) + "_";
    std::string names;
    for (size_t j = 0; j < trace[i].tensors.size(); ++j) {
      names += trace[i].tensors[j].first + "\n";
      file.write(at + std::to_string(j), trace[i].tensors[j].second);
    }
    file.write(at + "names", c10::IValue(names));
    file.write(at + "losses", torch::tensor(trace[i].losses, torch::kDouble));
    file.write(at + "norms", torch::tensor(trace[i].gradient_norms, torch::kDouble));
  }
  file.save_to(path);
}

std::vector<double> numbers(const torch::Tensor& tensor) {
  return {tensor.data_ptr<double>(), tensor.data_ptr<double>() + tensor.numel()};
}

Trace load(const std::string& path) {
  torch::serialize::InputArchive file;
  file.load_from(path);
  const auto tensor = [&](const std::string& key) {
    torch::Tensor read;
    file.read(key, read);
    return read;
  };
  Trace trace(static_cast<size_t>(tensor("steps").item<int64_t>()));
  for (size_t i = 0; i < trace.size(); ++i) {
    const std::string at = std::to_string(i) + "_";
    c10::IValue names;
    file.read(at + "names", names);
    std::istringstream lines(names.toStringRef());
    std::string name;
    for (int j = 0; std::getline(lines, name); ++j) {
      trace[i].tensors.emplace_back(name, tensor(at + std::to_string(j)));
    }
    trace[i].losses = numbers(tensor(at + "losses"));
    trace[i].gradient_norms = numbers(tensor(at + "norms"));
  }
  return trace;
}

Cluster cluster_of(const Variant& variant) {
  Cluster cluster;
  cluster.worker_devices = variant.worker_devices();
  cluster.worker_num = static_cast<int>(cluster.worker_devices.size());
  cluster.total_gpu_num = variant.all_devices();
  return cluster;
}

Placement placement_of(const Variant& variant) {
  Placement placement;
  placement.role_devices = {variant.slice_count()};
  if (!variant.stage_devices().empty()) placement.role_devices = variant.stage_devices();
  placement.replicas = variant.all_devices() / placement.devices_of_replica();
  for (const Setting& setting : variant.settings()) {
    if (setting.key == "cluster.device_place_prefer_intra_node") {
      placement.by_replica = setting.value == ConfigValue(true);
    }
  }
  return placement;
}

// The devices of the first stage whose rows the worker hands in.
std::vector<Place> readers_of(const Variant& variant, int worker) {
  const Placement placement = placement_of(variant);
  const Cluster cluster = cluster_of(variant);
  std::vector<int> devices = placement.devices_of(0, worker, cluster);
  if (devices.empty()) {
    int first = 0;
    for (int i = 0; i < worker; ++i) first += cluster.worker_devices[static_cast<size_t>(i)];
    const int reader = placement.device({placement.place(first).replica, 0, 0});
    devices = placement.devices_of(0, worker_of(reader, cluster), cluster);
  }
  std::vector<Place> places;
  for (int device : devices) places.push_back(placement.place(device));
  return places;
}

// All rows lie in the order: replica, micro batch, slice; so do those of a worker.
Batch rows_of(const Batch& batch, const Variant& variant, int worker) {
  const std::vector<Place> readers = readers_of(variant, worker);
  const int slices = placement_of(variant).role_devices[0];
  const int micro_batches = variant.micro_batches();
  const int parts = placement_of(variant).replicas * micro_batches * slices;
  Batch rows;
  for (const torch::Tensor& tensor : batch) {
    const int64_t each = tensor.size(0) / parts;
    std::map<int, torch::Tensor> pieces;  // in the order of all rows
    for (const Place& reader : readers) {
      for (int i = 0; i < micro_batches; ++i) {
        const int part = (reader.replica * micro_batches + i) * slices + reader.slice;
        pieces[part] = tensor.narrow(0, part * each, each);
      }
    }
    std::vector<torch::Tensor> own;
    for (const auto& piece : pieces) own.push_back(piece.second);
    rows.push_back(torch::cat(own));
  }
  return rows;
}

// Kills what is left of the workers at the end.
class Workers {
 public:
  ~Workers() {
    for (int end : said_) close(end);
    for (pid_t pid : running_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }

  void start(const std::function<void()>& work) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("no pipe");
    std::cout.flush();
    const pid_t pid = fork();
    if (pid < 0) throw std::runtime_error("cannot fork");
    if (pid == 0) {
      int code = 1;
      const auto tell = [&](char kind, const std::exception& error) {
        // In one piece: workers write at the same time, and tests read it.
        const std::string line =
            "worker " + std::to_string(running_.size()) + ": " + error.what() + "\n";
        std::cerr << line;
        const std::string text = kind + std::string(error.what()).substr(0, 4000);
        if (write(ends[1], text.data(), text.size()) < 0) code = 3;
      };
      try {
        work();
        code = testing::Test::HasFailure() ? 2 : 0;
      } catch (const JobFailed& error) {
        tell('J', error);
      } catch (const Error& error) {
        tell('E', error);
      } catch (const std::exception& error) {
        tell('X', error);
      }
      std::cerr.flush();
      _exit(code);
    }
    close(ends[1]);
    said_.push_back(ends[0]);
    running_.push_back(pid);
  }

  void wait() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    const size_t all = running_.size();
    std::string failed;
    while (!running_.empty()) {
      for (size_t i = 0; i < running_.size(); ++i) {
        int status = 0;
        if (waitpid(running_[i], &status, WNOHANG) != running_[i]) continue;
        if (status != 0) failed += " with status " + std::to_string(status);
        running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i--));
      }
      if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("workers hang");
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    if (failed.empty()) return;
    throw_what_they_said("of " + std::to_string(all) + " workers some ended" + failed);
  }

 private:
  // An error of the library before one that another worker's failure caused.
  void throw_what_they_said(const std::string& otherwise) {
    std::map<char, std::string> said;  // by kind: E, J, X
    for (int end : said_) {
      char text[4096];
      const ssize_t count = read(end, text, sizeof text);
      if (count > 1) said.emplace(text[0], std::string(text + 1, static_cast<size_t>(count - 1)));
    }
    const auto other = said.find('X');
    if (other != said.end()) throw WorkersFailed(WorkersFailed::Kind::kOther, other->second);
    const auto refused = said.find('E');
    if (refused != said.end()) throw WorkersFailed(WorkersFailed::Kind::kRefused, refused->second);
    throw WorkersFailed(WorkersFailed::Kind::kOther,
                        said.empty() ? otherwise : otherwise + ": " + said.begin()->second);
  }

  std::vector<pid_t> running_;
  std::vector<int> said_;
};

}  // namespace

int replicas_of_worker(const Variant& variant, int worker) {
  const auto readers = static_cast<int>(readers_of(variant, worker).size());
  return readers / std::min(readers, placement_of(variant).role_devices[0]);
}

void run_on_workers(const std::vector<int>& devices, const std::function<void(int)>& work) {
  const std::string master = "127.0.0.1:" + std::to_string(free_port());
  epl::init();  // no threads of earlier devices: they would not come along
  Workers workers;
  for (size_t i = 0; i < devices.size(); ++i) {
    workers.start([&] {
      setenv("EPL_WORKER_INDEX", std::to_string(i).c_str(), 1);
      setenv("EPL_WORKER_NUM", std::to_string(devices.size()).c_str(), 1);
      setenv("EPL_MASTER", master.c_str(), 1);
      setenv("EPL_DEVICES", std::to_string(devices[i]).c_str(), 1);
      work(static_cast<int>(i));
      Job::replace(nullptr);
    });
  }
  workers.wait();
}

std::vector<Trace> train_on_workers(const MakeProgram& make, const MakeBatch& batch,
                                    const Variant& variant) {
  const std::string folder = testing::TempDir() + "epl_workers_" + std::to_string(getpid());
  const auto path_of = [&](int worker) { return folder + "_" + std::to_string(worker); };
  run_on_workers(variant.worker_devices(), [&](int worker) {
    const auto own_rows = [&](int step) { return rows_of(batch(step), variant, worker); };
    save(train_epl(make, own_rows, variant), path_of(worker));
  });
  std::vector<Trace> traces;
  for (size_t i = 0; i < variant.worker_devices().size(); ++i) {
    const std::string path = path_of(static_cast<int>(i));
    traces.push_back(load(path));
    unlink(path.c_str());
  }
  return traces;
}

}  // namespace epl::parity

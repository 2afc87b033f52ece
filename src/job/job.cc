#include "job/job.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <sstream>

#include "base/check.h"
#include "base/text.h"
#include "config/cluster_file.h"

namespace epl {
namespace {

std::shared_ptr<Job>& current_job() {
  static std::shared_ptr<Job> job;  // Env::get() is one for the process, and so is this
  return job;
}

std::vector<int> parse_devices(const std::string& text) {
  std::vector<int> devices;
  std::istringstream in(text);
  for (std::string number; std::getline(in, number, ',');) devices.push_back(std::stoi(number));
  return devices;
}

// The devices of this process as numbers into its cores' shares, and how many shares there are.
// Without EPL_DEVICES a list of devices counts the cores.
struct VisibleDevices {
  std::vector<int> numbers;
  int all = 1;
};

VisibleDevices visible_devices(const Config& config) {
  VisibleDevices visible;
  visible.all = devices_of_process();
  const std::string key = "cluster.run_visible_devices";
  const std::vector<int> listed = parse_devices(config.get<std::string>(key));
  if (listed.empty()) {
    for (int i = 0; i < visible.all; ++i) visible.numbers.push_back(i);
    return visible;
  }
  const bool counts_cores = epl_environment().count("EPL_DEVICES") == 0;
  if (counts_cores) visible.all = static_cast<int>(allowed_cores().size());
  const int largest = *std::max_element(listed.begin(), listed.end());
  EPL_CHECK(largest < visible.all,
            concat("there is no device ", largest, ": this process has ", visible.all,
                   counts_cores ? " cores" : " devices", ", counted from 0"),
            config.asked_by(key),
            concat("numbers up to ", visible.all - 1, ", or EPL_DEVICES=", largest + 1));
  visible.numbers = listed;
  return visible;
}

// The cores are cut over the devices of all workers that share them: those on this machine that may
// use the same ones. A launcher that bound each worker to cores of its own has done that already.
std::vector<CoreShare> shares_of_devices(const VisibleDevices& visible, Membership* membership,
                                         const std::string& key) {
  const std::vector<unsigned> cores = allowed_cores();
  int before = 0;
  int all = visible.all;
  if (membership != nullptr) {
    const auto index = static_cast<size_t>(membership->index());
    const std::string host = membership->workers()[index].host_key;
    const std::string mine = concat(host, "|", join(cores, ","), "|", visible.all);
    const std::vector<std::string> everyone = membership->exchange(key, mine);
    const std::string prefix = mine.substr(0, mine.rfind('|') + 1);
    all = 0;
    for (size_t i = 0; i < everyone.size(); ++i) {
      if (everyone[i].compare(0, prefix.size(), prefix) != 0) continue;
      const int theirs = std::stoi(everyone[i].substr(prefix.size()));
      all += theirs;
      if (i < index) before += theirs;
    }
  }
  std::vector<CoreShare> shares;
  if (all == 1) {
    shares.emplace_back();
    shares[0].threads = std::numeric_limits<int>::max();  // as many as LibTorch would take
    return shares;
  }
  const std::vector<CoreShare> cut = share_cores(cores, all);
  for (int number : visible.numbers) shares.push_back(cut[static_cast<size_t>(before + number)]);
  return shares;
}

constexpr const char* kDescription = "cluster.description";

// Read before any worker waits for this one.
std::optional<ClusterMap> described_cluster(const Config& config) {
  const auto name = config.get<std::string>(kDescription);
  if (name.empty()) return std::nullopt;
  return load_cluster(name, config.asked_by(kDescription));
}

}  // namespace

Job::Job(const JobPlace& place, const Config& config, const Job* previous)
    : gradient_history_(previous == nullptr ? std::make_shared<GradientHistory>()
                                            : previous->gradient_history_),
      spread_(previous == nullptr ? std::make_shared<SpreadParameters>() : previous->spread_),
      number_(previous == nullptr ? 0 : previous->number_ + 1) {
  const std::optional<ClusterMap> described = described_cluster(config);
  const VisibleDevices visible = visible_devices(config);
  const auto devices = static_cast<int>(visible.numbers.size());
  cluster_.worker_devices = {devices};
  cluster_.total_gpu_num = devices;
  if (place.worker_num > 1) {
    JoinRequest request;
    request.worker_num = place.worker_num;
    request.worker_index = place.worker_index;
    request.devices = devices;
    request.master_host = place.master_host;
    request.master_port = place.master_port;
    request.patience = std::chrono::seconds(config.get<int64_t>("cluster.join_seconds"));
    request.silence = std::chrono::seconds(config.get<int64_t>("communication.silence_seconds"));
    membership_ = previous != nullptr ? previous->membership_ : nullptr;
    if (membership_ == nullptr) membership_ = join_job(request);
    find_cluster(place);
    CommunicatorOptions options;
    options.deadline = std::chrono::seconds(config.get<int64_t>("communication.wait_seconds"));
    options.name = concat("main ", number_);
    workers_ = membership_->make_communicator(options);
    for (int i = 0; i < config.get<int64_t>("communication.num_communicators"); ++i) {
      options.name = concat("gradients ", number_, ".", i);
      auto communicator = membership_->make_communicator(options);
      auto lane =
          std::make_unique<Lane>(concat("epl lane ", i), membership_->watch(), options.deadline);
      routes_.push_back({std::move(communicator), std::move(lane)});
    }
  }
  if (described) describe_speeds(cluster_, *described, config.asked_by(kDescription));
  team_ = std::make_unique<DeviceTeam>(
      shares_of_devices(visible, membership_.get(), next_key("cores")));
}

// The lanes end before the communicators that they drive, those before the membership.
Job::~Job() {
  for (auto& route : routes_) route.lane.reset();
  routes_.clear();
  workers_.reset();
}

WorkerLinks Job::links(const Config& config) {
  return {cluster_,
          watch(),
          *team_,
          membership_.get(),
          workers_.get(),
          routes_,
          std::chrono::seconds(config.get<int64_t>("communication.wait_seconds"))};
}

void Job::find_cluster(const JobPlace& place) {
  cluster_.worker_num = place.worker_num;
  cluster_.worker_index = place.worker_index;
  cluster_.worker_devices.clear();
  cluster_.worker_hosts.clear();
  cluster_.total_gpu_num = 0;
  for (const auto& worker : membership_->workers()) {
    cluster_.worker_devices.push_back(worker.devices);
    cluster_.worker_hosts.push_back(worker.host);
    cluster_.total_gpu_num += worker.devices;
  }
}

Job::StepTurn::StepTurn(Job& job) : job_(job) {
  const auto self = std::this_thread::get_id();
  EPL_CHECK(job.stepping_thread_.load() != self, "a step is asked for while another one runs",
            "this thread, which is inside of a step function",
            "call Trainer::step() outside of step functions");
  if (!job.stepping_.try_lock()) {
    EPL_CHECK(job.workers() == nullptr,
              concat("two threads of worker ", job.cluster().worker_index,
                     " ask for steps at the same time: with ", job.cluster().worker_num,
                     " workers each of them has to make the same steps in the same order"),
              "epl::Trainer::step", "one thread for all trainers of a worker");
    job.stepping_.lock();
  }
  job.stepping_thread_.store(self);
  job.enter_step();
}

Job::StepTurn::~StepTurn() {
  job_.leave_step();
  job_.stepping_thread_.store(std::thread::id());
  job_.stepping_.unlock();
}

void Job::enter_step() {
  const MutexLock lock(counting_);
  for (Holders* holders : counted_) holders->enter();
}

void Job::leave_step() {
  const MutexLock lock(counting_);
  for (Holders* holders : counted_) holders->leave();
}

void Job::count(Holders& holders) {
  const MutexLock lock(counting_);
  counted_.push_back(&holders);
}

void Job::forget(const Holders& holders) {
  const MutexLock lock(counting_);
  counted_.erase(std::remove(counted_.begin(), counted_.end(), &holders), counted_.end());
}

FileHomes& Job::homes(const std::string& folder) {
  const MutexLock lock(making_homes_);
  std::unique_ptr<FileHomes>& made = homes_[folder];
  if (made == nullptr) made = std::make_unique<FileHomes>(folder, watch());
  return *made;
}

HostHomes& Job::host_homes() {
  const MutexLock lock(making_homes_);
  if (host_homes_ == nullptr) host_homes_ = std::make_unique<HostHomes>();
  return *host_homes_;
}

std::string Job::next_key(const std::string& purpose) {
  return concat("job ", number_, "/", purpose, " ", keys_++);
}

std::shared_ptr<Job> Job::current() { return current_job(); }

void Job::replace(std::shared_ptr<Job> job) { current_job() = std::move(job); }

}  // namespace epl

#include "calibrate/measure_links.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <thread>

#include "base/check.h"
#include "base/mutex.h"
#include "comm/communicator.h"
#include "comm/watch.h"

namespace epl {
namespace {

// Threads that hand each other texts, and wait for each other.
class Meeting {
 public:
  explicit Meeting(int size) : size_(static_cast<size_t>(size)), coming_(size_) {}

  std::vector<std::string> exchange(int rank, const std::string& mine) EPL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    coming_[static_cast<size_t>(rank)] = mine;
    const int round = round_;
    if (++come_ == size_) {
      said_ = coming_;
      come_ = 0;
      ++round_;
      changed_.notify_all();
    } else {
      changed_.wait(mutex_, [&]() EPL_REQUIRES(mutex_) { return round_ != round || failed_; });
    }
    if (failed_) throw Error("another thread could not go on");
    return said_;
  }
  void wait(int rank) { exchange(rank, ""); }

  // Nobody waits for this thread any more.
  void fail() EPL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    failed_ = true;
    changed_.notify_all();
  }

 private:
  const size_t size_;
  Mutex mutex_;
  Condition changed_;
  std::vector<std::string> coming_ EPL_GUARDED_BY(mutex_);
  std::vector<std::string> said_ EPL_GUARDED_BY(mutex_);
  size_t come_ EPL_GUARDED_BY(mutex_) = 0;
  int round_ EPL_GUARDED_BY(mutex_) = 0;
  bool failed_ EPL_GUARDED_BY(mutex_) = false;
};

// Runs `body` on so many threads, each on a core of its own; throws what the first one threw.
void run_on_cores(int threads, const std::vector<CoreShare>& cores, Meeting& meeting,
                  const std::function<void(int rank)>& body) {
  std::vector<std::exception_ptr> errors(static_cast<size_t>(threads));
  const auto run = [&](int rank) {
    try {
      const OnCores bound(cores[static_cast<size_t>(rank) % cores.size()]);
      body(rank);
    } catch (...) {
      errors[static_cast<size_t>(rank)] = std::current_exception();
      meeting.fail();
    }
  };
  std::vector<std::thread> running;
  for (int rank = 0; rank < threads; ++rank) running.emplace_back(run, rank);
  for (std::thread& thread : running) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
}

// Samples of all threads: the slowest one counts in each, the median of those in all.
double typical_of_slowest(const std::vector<std::vector<double>>& samples) {
  std::vector<double> slowest(samples[0].size(), 0);
  for (const std::vector<double>& of_thread : samples) {
    for (size_t i = 0; i < of_thread.size(); ++i) slowest[i] = std::max(slowest[i], of_thread[i]);
  }
  return std::max(median_of(std::move(slowest)), 1e-9);
}

std::unique_ptr<Communicator> connect(LinkAlgorithm algorithm, int rank, int members,
                                      comm::Watch& watch, Meeting& meeting) {
  const CommunicatorOptions options{"calibrate", std::chrono::seconds(30)};
  const Exchange exchange = [&, rank](const std::string& mine) {
    return meeting.exchange(rank, mine);
  };
  return algorithm == LinkAlgorithm::kSharedMemory
             ? make_shared_memory_communicator(rank, members, watch, exchange, options)
             : comm::make_tcp_communicator(rank, members, watch, exchange, options, "");
}

// What a member hands to a call: the whole has the bytes of the collective.
struct CallTensors {
  at::Tensor whole, part;
};

// One call of a member. Who sends alternates with `number`: a member that only sends would run
// ahead of the others, and what it does next is not timed with it.
void call(Communicator& end, Collective collective, const CallTensors& tensors,
          const std::vector<int64_t>& rows, int number) {
  const int root = number % end.size();
  const int to = (root + 1) % end.size();
  switch (collective) {
    case Collective::kAllReduce:
      return end.all_reduce({tensors.whole}, ReduceOp::kSum);
    case Collective::kReduceScatter:
      return end.reduce_scatter(tensors.whole, tensors.part, rows, ReduceOp::kSum);
    case Collective::kAllGather:
      return end.all_gather(tensors.part, tensors.whole, rows);
    case Collective::kBroadcast:
      return end.broadcast({tensors.whole}, root);
    case Collective::kReduce:
      return end.reduce({tensors.whole}, ReduceOp::kSum, root);
    case Collective::kSend:
      if (end.rank() == root) end.send(tensors.whole, to, 0);
      if (end.rank() == to) end.receive(tensors.whole, root, 0);
      return;
    case Collective::kAllToAll:
    case Collective::kBarrier:
      break;
  }
  EPL_ASSERT(false, "a collective that is measured");
}

const Collective kMeasured[] = {Collective::kAllReduce, Collective::kReduceScatter,
                                Collective::kAllGather, Collective::kBroadcast,
                                Collective::kReduce,    Collective::kSend};

class CollectiveTimer {
 public:
  CollectiveTimer(int members, Meeting& meeting, const Timing& timing)
      : members_(members), meeting_(meeting), timing_(timing) {}

  // From all threads. How often is the same on all of them, so it comes from the size.
  std::vector<double> samples(Communicator& end, Collective collective, int64_t bytes) const {
    const int64_t each = std::max<int64_t>(1, bytes / 4 / members_);
    const std::vector<int64_t> rows(static_cast<size_t>(members_), each);
    std::vector<CallTensors> sets(std::min<size_t>(kMostSets, timing_.sets_of(bytes)));
    for (CallTensors& set : sets) {
      set = {at::ones({each * members_}, at::kFloat), at::ones({each}, at::kFloat)};
    }
    const int batch = bytes <= (64 << 10) ? 4 * kFewCalls : bytes <= (1 << 20) ? kFewCalls : 1;
    const int count = std::max(timing_.least_samples, bytes <= (1 << 20) ? 15 : 7);
    int number = 0;  // sums grow, to infinity, which takes no longer
    const auto call_next = [&] {
      const CallTensors& set = sets[static_cast<size_t>(number) % sets.size()];
      call(end, collective, set, rows, number++);
    };
    call_next();
    std::vector<double> found;
    for (int sample = 0; sample < count; ++sample) {
      meeting_.wait(end.rank());
      const double begin = seconds_now();
      for (int i = 0; i < batch; ++i) call_next();
      found.push_back((seconds_now() - begin) / batch);
    }
    return found;
  }

 private:
  static constexpr size_t kMostSets = 512;
  static constexpr int kFewCalls = 5;

  const int members_;
  Meeting& meeting_;
  const Timing& timing_;
};

}  // namespace

CopySpeed measure_copies(int threads, const std::vector<CoreShare>& cores, const Timing& timing) {
  const int64_t bytes = timing.rotated_bytes / 4;
  Meeting meeting(threads);
  std::vector<std::vector<double>> samples(static_cast<size_t>(threads));
  run_on_cores(threads, cores, meeting, [&](int rank) {
    const at::Tensor from = at::ones({bytes}, at::kByte);
    const at::Tensor to = at::ones({bytes}, at::kByte);
    for (int sample = 0; sample < 3 * timing.least_samples; ++sample) {
      meeting.wait(rank);
      const double begin = seconds_now();
      std::memcpy(to.data_ptr(), from.data_ptr(), static_cast<size_t>(bytes));
      samples[static_cast<size_t>(rank)].push_back(seconds_now() - begin);
    }
  });
  const double seconds = typical_of_slowest(samples);
  return {threads, static_cast<double>(threads) * static_cast<double>(bytes) / seconds / 1e9};
}

std::vector<CollectiveTime> measure_collectives(LinkAlgorithm algorithm, int members,
                                                const std::vector<int64_t>& bytes,
                                                const std::vector<CoreShare>& cores,
                                                const Timing& timing) {
  comm::Watch watch;
  Meeting meeting(members);
  std::vector<std::unique_ptr<Communicator>> local;
  if (algorithm == LinkAlgorithm::kThreads) {
    local = make_local_communicators(members, watch, {"calibrate", std::chrono::seconds(30)});
  }
  const size_t cases = bytes.size() * std::size(kMeasured);
  std::vector<std::vector<std::vector<double>>> samples(  // by case and thread
      cases, std::vector<std::vector<double>>(static_cast<size_t>(members)));
  run_on_cores(members, cores, meeting, [&](int rank) {
    const auto mine = static_cast<size_t>(rank);
    const std::unique_ptr<Communicator> end =
        local.empty() ? connect(algorithm, rank, members, watch, meeting) : std::move(local[mine]);
    const CollectiveTimer timer(members, meeting, timing);
    size_t row = 0;
    for (const Collective collective : kMeasured) {
      for (const int64_t size : bytes) {
        samples[row++][mine] = timer.samples(*end, collective, size);
      }
    }
    meeting.wait(rank);  // nobody leaves while another one still talks
  });
  std::vector<CollectiveTime> times;
  for (const Collective collective : kMeasured) {
    for (const int64_t size : bytes) {
      times.push_back({collective, members, static_cast<double>(size),
                       typical_of_slowest(samples[times.size()])});
    }
  }
  return times;
}

}  // namespace epl

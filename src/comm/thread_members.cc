#include "comm/thread_members.h"

#include <algorithm>
#include <exception>
#include <map>
#include <numeric>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/mutex.h"

namespace epl::comm {
namespace {

// The texts of several members as one: "5 hello5 world".
std::string pack(const std::vector<std::string>& texts) {
  std::string packed;
  for (const std::string& text : texts) packed += concat(text.size(), " ", text);
  return packed;
}

std::vector<std::string> unpack(const std::string& packed) {
  std::vector<std::string> texts;
  for (size_t place = 0; place < packed.size();) {
    size_t digits = 0;
    const auto length = static_cast<size_t>(std::stoll(packed.substr(place, 20), &digits));
    texts.push_back(packed.substr(place + digits + 1, length));
    place += digits + 1 + length;
  }
  return texts;
}

// The Exchange of some members. Those of this worker are threads, which meet here.
class Meeting {
 public:
  Meeting(const ThreadMembers& all, std::vector<int> ranks, std::string key)
      : all_(all), ranks_(std::move(ranks)), key_(std::move(key)) {
    for (const int rank : ranks_) {
      const int worker = all.worker_of[static_cast<size_t>(rank)];
      if (worker == all.worker) ++here_;
      if (std::find(workers_.begin(), workers_.end(), worker) == workers_.end()) {
        workers_.push_back(worker);
      }
    }
  }

  const std::vector<int>& ranks() const { return ranks_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  // The rank in the communicator of these members.
  int position(int rank) const {
    return static_cast<int>(std::find(ranks_.begin(), ranks_.end(), rank) - ranks_.begin());
  }
  bool has(int rank) const { return position(rank) < size(); }
  bool in_one_worker() const { return workers_.size() == 1; }

  Exchange exchange(int rank) {
    return [this, rank](const std::string& mine) { return exchange(rank, mine); };
  }

  // A member of this worker will not come: the others here need not wait for it.
  void fail(const std::exception_ptr& error) {
    {
      const MutexLock lock(mutex_);
      if (error_ == nullptr) error_ = error;
    }
    changed_.notify_all();
  }

 private:
  std::vector<std::string> exchange(int rank, const std::string& mine) {
    int round = 0;
    std::vector<std::string> ours;
    {
      const MutexLock lock(mutex_);
      mine_[rank] = mine;
      round = round_;
      if (static_cast<int>(mine_.size()) < here_) return wait_for_end_of(round);
      for (const auto& [_, text] : mine_) ours.push_back(text);
    }
    // Without the lock: a member that fails meanwhile must get in.
    std::vector<std::string> texts = gather(round, pack(ours));
    const MutexLock lock(mutex_);
    texts_ = std::move(texts);
    mine_.clear();
    ++round_;
    changed_.notify_all();
    return texts_;
  }

  std::vector<std::string> wait_for_end_of(int round) EPL_REQUIRES(mutex_) {
    changed_.wait(mutex_,
                  [&]() EPL_REQUIRES(mutex_) { return round_ != round || error_ != nullptr; });
    if (round_ == round) std::rethrow_exception(error_);
    return texts_;
  }

  std::vector<std::string> gather(int round, const std::string& ours) const {
    const std::vector<std::string> packed = all_.gather(concat(key_, ", ", round), workers_, ours);
    // Each worker hands in its members in the order of ranks, as they stand in the list.
    std::map<int, std::vector<std::string>> of_worker;
    for (size_t i = 0; i < workers_.size(); ++i) of_worker[workers_[i]] = unpack(packed[i]);
    std::map<int, size_t> taken;
    std::vector<std::string> texts;
    for (const int rank : ranks_) {
      const int worker = all_.worker_of[static_cast<size_t>(rank)];
      texts.push_back(of_worker[worker].at(taken[worker]++));
    }
    return texts;
  }

  const ThreadMembers& all_;
  const std::vector<int> ranks_;  // ascending
  const std::string key_;
  std::vector<int> workers_;  // that have a member
  int here_ = 0;              // members of this worker

  Mutex mutex_;
  Condition changed_;
  std::map<int, std::string> mine_ EPL_GUARDED_BY(mutex_);  // by rank: of those that have come
  std::vector<std::string> texts_ EPL_GUARDED_BY(mutex_);   // of all, of the last round
  int round_ EPL_GUARDED_BY(mutex_) = 0;
  std::exception_ptr error_ EPL_GUARDED_BY(mutex_);
};

// The members of each host, in the order of their first ones.
std::vector<std::vector<int>> group_by_host(const ThreadMembers& members) {
  std::vector<std::vector<int>> hosts;
  std::map<std::string, size_t> known;
  for (size_t rank = 0; rank < members.worker_of.size(); ++rank) {
    const std::string& host = members.host_of[static_cast<size_t>(members.worker_of[rank])];
    const auto [place, is_new] = known.try_emplace(host, hosts.size());
    if (is_new) hosts.emplace_back();
    hosts[place->second].push_back(static_cast<int>(rank));
  }
  return hosts;
}

class ThreadConnecting {
 public:
  ThreadConnecting(const ThreadMembers& members, const std::string& key, Watch& watch,
                   const CommunicatorOptions& options)
      : members_(members),
        watch_(watch),
        options_(options),
        hosts_(group_by_host(members)),
        everyone_(members, all_ranks(), concat(key, " among all")),
        firsts_(members, first_ranks(), concat(key, " among the first of each host")),
        near_(members, ranks_near(), concat(key, " among members ", join(ranks_near(), ", "))) {
    if (near_.in_one_worker()) local_ = make_local_communicators(near_.size(), watch, options);
  }

  std::unique_ptr<Communicator> connect(int rank) {
    try {
      return connect_unguarded(rank);
    } catch (...) {
      for (Meeting* meeting : {&everyone_, &firsts_, &near_}) {
        meeting->fail(std::current_exception());
      }
      throw;
    }
  }

 private:
  std::vector<int> all_ranks() const {
    std::vector<int> ranks(members_.worker_of.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  std::vector<int> first_ranks() const {
    std::vector<int> ranks;
    for (const std::vector<int>& host : hosts_) ranks.push_back(host[0]);
    return ranks;
  }
  // On this host.
  std::vector<int> ranks_near() const {
    const int mine = members_.ranks_here().at(0);
    for (const std::vector<int>& host : hosts_) {
      if (std::find(host.begin(), host.end(), mine) != host.end()) return host;
    }
    EPL_ASSERT(false, "every member is on a host");
  }

  std::unique_ptr<Communicator> connect_unguarded(int rank) {
    if (hosts_.size() == 1) return connect_near(rank);
    if (firsts_.size() == everyone_.size()) return connect_far(rank, everyone_);
    TwoLevelParts parts;
    parts.inner = connect_near(rank);
    if (firsts_.has(rank)) parts.outer = connect_far(rank, firsts_);
    parts.direct = connect_far(rank, everyone_);
    return make_two_level_communicator(std::move(parts), hosts_, rank, options_);
  }

  std::unique_ptr<Communicator> connect_near(int rank) {
    const int position = near_.position(rank);
    if (!local_.empty()) return std::move(local_[static_cast<size_t>(position)]);
    return make_shared_memory_communicator(position, near_.size(), watch_, near_.exchange(rank),
                                           options_);
  }

  std::unique_ptr<Communicator> connect_far(int rank, Meeting& meeting) {
    return make_tcp_communicator(meeting.position(rank), meeting.size(), watch_,
                                 meeting.exchange(rank), options_, members_.address);
  }

  const ThreadMembers& members_;
  Watch& watch_;
  const CommunicatorOptions& options_;
  const std::vector<std::vector<int>> hosts_;
  Meeting everyone_;
  Meeting firsts_;
  Meeting near_;
  std::vector<std::unique_ptr<Communicator>> local_;  // where all members of the host are here
};

}  // namespace

std::vector<int> ThreadMembers::ranks_here() const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < worker_of.size(); ++rank) {
    if (worker_of[rank] == worker) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

// Each end is made by a thread of its own: they wait for each other.
std::vector<std::unique_ptr<Communicator>> connect_threads(const ThreadMembers& members,
                                                           const std::string& key, Watch& watch,
                                                           const CommunicatorOptions& options) {
  const std::vector<int> ranks = members.ranks_here();
  std::vector<std::unique_ptr<Communicator>> ends(ranks.size());
  if (ranks.empty()) return ends;
  ThreadConnecting connecting(members, key, watch, options);
  std::vector<std::exception_ptr> errors(ranks.size());
  const auto connect = [&](size_t i) {
    try {
      ends[i] = connecting.connect(ranks[i]);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < ranks.size(); ++i) threads.emplace_back(connect, i);
  connect(0);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
  return ends;
}

}  // namespace epl::comm

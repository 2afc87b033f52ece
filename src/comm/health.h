// Health: this worker's signs of life, and its eyes on the others.
//
// A thread holds the connection to the Rendezvous: it tells it what this worker does, hears from it
// who left and why the job fails, and sees by itself when a process of this host ends. Whatever
// breaks the job comes to the Watch as one sentence, the same for all workers.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "comm/progress_page.h"
#include "comm/protocol.h"
#include "comm/socket.h"
#include "comm/watch.h"

namespace epl::comm {

class Health {
 public:
  struct Options {
    int index = 0;
    int worker_num = 1;
    int devices = 1;
    std::string place;  // where the rendezvous is, for messages
    std::chrono::milliseconds patience{0};
    std::chrono::milliseconds silence{0};
  };

  // Says hello and waits until all workers have come. Throws JobFailed where they do not.
  Health(Descriptor connection, Options options, Watch& watch);
  // Says farewell: a failure where the Watch failed for a reason that began here, or an exception
  // is on its way; else that this worker has finished.
  ~Health();

  const std::vector<WorkerRecord>& workers() const { return workers_; }

  // The texts of all members under a key that is used once, in the order of `members`.
  std::vector<std::string> gather(const std::string& key, const std::vector<int>& members,
                                  const std::string& mine, std::chrono::milliseconds deadline);

  // Tells the others that this worker fails, before it goes. Nothing where the job's cause is known
  // already: what fails because of it is no news.
  void report_failure(const std::string& message);

 private:
  using Clock = std::chrono::steady_clock;

  // A worker of this host.
  struct Neighbour {
    int index = 0;
    Descriptor process;  // readable once the process has ended
    ProgressPage page;
    bool ended = false;
  };
  struct Farewell {
    int64_t step = 0;
    std::string progress;
  };
  // What is going to be the cause unless the rendezvous gives one in time: it may know better.
  struct Suspicion {
    int index = 0;
    Cause cause;
    Clock::time_point since;
  };

  void say_hello(const std::string& address);
  void hear_of_workers();
  void check_company(Clock::time_point end) const;
  void note_look();
  void meet_neighbours();
  void run();
  void wait_for_events();
  void talk();
  void handle(const Message& message);
  void look_at_neighbours();
  void look_at_rendezvous(Clock::time_point now);
  void look_at_finished();
  void act_on_suspicion(Clock::time_point now);
  void adopt(const Cause& cause) EPL_EXCLUDES(mutex_);
  void note_failure(const std::string& message) EPL_EXCLUDES(mutex_);
  void say_farewell() EPL_EXCLUDES(mutex_);
  void post(Message message) EPL_EXCLUDES(mutex_);
  bool everything_said() EPL_EXCLUDES(mutex_);
  LastSeen last_seen(int index) const;
  int64_t own_step() const;
  std::string missing_of(const std::string& key) EPL_EXCLUDES(mutex_);
  // Sleeps until there is news, or for a moment: what is waited for may come without any. False
  // where the end has come.
  bool wait_for_news(Clock::time_point end) EPL_REQUIRES(mutex_);

  const Options options_;
  Watch& watch_;
  ProgressPage page_ = ProgressPage::make();
  std::vector<WorkerRecord> workers_;
  const int exceptions_at_start_;

  // What the thread and the callers share.
  Mutex mutex_;
  Condition news_;
  std::vector<Message> outgoing_ EPL_GUARDED_BY(mutex_);
  // Messages were taken from outgoing_ and are on their way.
  bool sending_ EPL_GUARDED_BY(mutex_) = false;
  std::map<std::string, std::vector<std::string>> texts_ EPL_GUARDED_BY(mutex_);
  std::map<std::string, std::vector<int>> missing_ EPL_GUARDED_BY(mutex_);
  bool told_failure_ EPL_GUARDED_BY(mutex_) = false;
  bool cause_known_ EPL_GUARDED_BY(mutex_) = false;
  bool detached_ EPL_GUARDED_BY(mutex_) = false;  // the rendezvous has closed
  bool stop_ EPL_GUARDED_BY(mutex_) = false;
  Clock::time_point stopping_since_ EPL_GUARDED_BY(mutex_);

  // What follows is the thread's own.
  Bell bell_;
  MessageStream stream_;
  std::vector<Neighbour> neighbours_;
  std::map<int, Farewell> finished_;
  std::string progress_of_first_;
  std::optional<Suspicion> suspicion_;
  Clock::time_point heard_;
  Clock::time_point looked_;
  Clock::time_point beaten_;
  std::thread thread_;  // last, so that it sees all others
};

}  // namespace epl::comm

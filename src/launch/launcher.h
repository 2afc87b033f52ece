// Runs the workers of this machine until all have ended, or until one fails.
//
// One thread around poll(): the workers' pipes, signals, stdout and stderr. A worker that fails
// takes the job down: the others get SIGTERM, and SIGKILL kGrace later. Where several fail within
// kCollect of the first, culprit.h says which one is reported.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "launch/child.h"
#include "launch/culprit.h"
#include "launch/guard.h"
#include "launch/job.h"
#include "launch/terminal.h"
#include "launch/worker_log.h"

namespace epl {

struct LaunchPlan {
  std::vector<WorkerPlan> workers;
  std::vector<std::string> command;
  std::string log_dir;
  int worker_num = 1;  // of the whole job
  bool debug = false;
};

class Launcher {
 public:
  // Opens the logs. Throws Error where that is not possible.
  explicit Launcher(const LaunchPlan& plan);
  ~Launcher();

  // Returns the exit code of the job.
  int run();

 private:
  using Clock = std::chrono::steady_clock;

  // A worker is reaped last, when all that it has started has ended too: until then its number,
  // which is that of its session, cannot become a stranger's.
  enum class Stage { kRunning, kEnded, kLeftoversAsked, kReaped };

  struct Worker {
    int index = 0;
    Child child;
    std::unique_ptr<WorkerLog> log;
    bool shown = false;
    Stage stage = Stage::kRunning;
    ProcessEnd end;  // from kEnded on
    Clock::time_point ended_at;
  };

  void start_all();
  void wait_for_something();
  void write_the_rest();
  std::chrono::milliseconds time_to_wait() const;

  void read_output(Worker& worker, Voice voice);
  void show_output(Worker& worker, Voice voice);
  void close_output(Worker& worker, Voice voice);

  void read_signals();
  void see_ends();
  void clear_sessions();
  void clear(Worker& worker, bool has_members);
  void finish(Worker& worker);
  void note_failure(const Worker& worker);
  void act_on_time();
  void next_phase();
  void stop_all(int signal);

  bool has(Stage stage) const;
  bool all_reaped() const;
  void show_status();
  void report();
  void report_culprit();

  const LaunchPlan plan_;
  Guard guard_;
  Terminal terminal_;
  std::vector<Worker> workers_;
  int signals_ = -1;  // signalfd

  const bool apart_;  // stdout and stderr go to different places
  const Clock::time_point started_ = Clock::now();
  Clock::time_point next_status_;
  Clock::time_point next_look_;  // at what ended workers have left behind
  std::vector<Death> deaths_;    // in the order in which they were seen
  enum class Phase { kRunning, kCollecting, kTerminating, kKilling };
  Phase phase_ = Phase::kRunning;
  Clock::time_point phase_end_;  // of all phases but the first
  int signal_ = 0;               // by which the user ended the job
};

}  // namespace epl

#include "launch/launcher.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/check.h"
#include "base/text.h"
#include "launch/sessions.h"

namespace epl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kCollect{300};   // for other deaths of the same cause
constexpr milliseconds kGrace{3000};    // from SIGTERM to SIGKILL
constexpr milliseconds kGiveUp{10000};  // from SIGKILL on: only the kernel can hold a process then
constexpr milliseconds kRound{50};      // between two looks at what a worker has left behind
constexpr size_t kReportedLines = 20;

bool is_ignored(int signal) {
  struct sigaction action {};
  sigaction(signal, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

// What ends the job comes by a descriptor. A signal that whoever started us wants ignored (nohup)
// stays ignored.
int open_signals() {
  signal(SIGCHLD, SIG_DFL);  // an inherited SIG_IGN would reap the workers behind our back
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a log that grows beyond a limit is an error of write()
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    if (!is_ignored(signal)) sigaddset(&set, signal);
  }
  sigprocmask(SIG_BLOCK, &set, nullptr);
  return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

bool is_same_file(int a, int b) {
  struct stat of_a {
  }, of_b{};
  return fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
         of_a.st_ino == of_b.st_ino;
}

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

std::string with_prefix(const std::string& lines, int worker) {
  const std::string prefix = concat("[worker ", worker, "] ");
  std::string result;
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = std::min(lines.find('\n', begin), lines.size() - 1) + 1;
    result += prefix + lines.substr(begin, end - begin);
    begin = end;
  }
  return result;
}

std::string count_text(size_t count, const std::string& what) {
  return concat(count, " ", what, count == 1 ? "" : "s");
}

}  // namespace

Launcher::Launcher(const LaunchPlan& plan)
    : plan_(plan), apart_(!is_same_file(STDOUT_FILENO, STDERR_FILENO)) {
  signals_ = open_signals();
  EPL_CHECK(signals_ >= 0, "cannot make a descriptor for signals", "epl-launch",
            "a higher limit of open files (ulimit -n)");
  for (const WorkerPlan& worker_plan : plan_.workers) {
    Worker worker;
    worker.index = worker_plan.index;
    // The first worker of a machine is the one to look at: worker 0 runs on the first machine.
    worker.shown = plan_.debug || worker_plan.index == plan_.workers.front().index;
    worker.log = std::make_unique<WorkerLog>(
        concat(plan_.log_dir, "/worker-", worker.index, ".log"),
        worker.shown ? WorkerLog::Lines::kKept : WorkerLog::Lines::kDropped);
    workers_.push_back(std::move(worker));
  }
}

Launcher::~Launcher() { close(signals_); }

int Launcher::run() {
  start_all();
  if (terminal_.has_status_line()) show_status();
  next_status_ = Clock::now() + terminal_.status_interval();
  while (!all_reaped()) wait_for_something();
  write_the_rest();
  report();
  if (signal_ != 0) return 128 + signal_;
  return deaths_.empty() ? 0 : deaths_[find_culprit(deaths_)].end.exit_code();
}

void Launcher::start_all() {
  for (size_t i = 0; i < workers_.size(); ++i) {
    try {
      const Pipes pipes = workers_[i].shown && apart_ ? Pipes::kTwo : Pipes::kOne;
      workers_[i].child = start_child(plan_.command, plan_.workers[i].environment, pipes);
    } catch (...) {
      stop_all(SIGKILL);
      workers_.resize(i);
      while (!all_reaped()) wait_for_something();
      throw;
    }
    guard_.watch(workers_[i].child.pid);
    if (!plan_.debug) continue;
    std::vector<std::string> settings;
    for (const auto& [name, value] : plan_.workers[i].added) settings.push_back(name + "=" + value);
    terminal_.say(concat("worker ", workers_[i].index, " is process ", workers_[i].child.pid, ": ",
                         join(settings, " "), " ", join(plan_.command, " ")));
  }
  terminal_.say(concat(count_text(workers_.size(), "worker"),
                       plan_.worker_num == static_cast<int>(workers_.size())
                           ? ""
                           : concat(" of ", plan_.worker_num, " (", workers_.front().index, " to ",
                                    workers_.back().index, ")"),
                       workers_.size() == 1 ? " runs " : " run ", join(plan_.command, " "),
                       "; logs in ", plan_.log_dir));
}

milliseconds Launcher::time_to_wait() const {
  Clock::time_point until = next_status_;
  if (phase_ != Phase::kRunning) until = std::min(until, phase_end_);
  if (has(Stage::kEnded) || has(Stage::kLeftoversAsked)) until = std::min(until, next_look_);
  const auto wait = std::chrono::ceil<milliseconds>(until - Clock::now());
  return std::clamp(wait, milliseconds(0), milliseconds(seconds(60)));
}

void Launcher::wait_for_something() {
  std::vector<pollfd> files = {{signals_, POLLIN, 0}};
  for (const Voice voice : kVoices) {
    const int file = voice == Voice::kOut ? STDOUT_FILENO : STDERR_FILENO;
    files.push_back({terminal_.stream(voice).waiting() ? file : -1, POLLOUT, 0});
  }
  for (const Worker& worker : workers_) {
    for (const Voice voice : kVoices) {
      const bool leave_alone = worker.shown && terminal_.stream(voice).full();
      files.push_back({leave_alone ? -1 : worker.child.pipe(voice), POLLIN, 0});
    }
  }
  poll(files.data(), files.size(), static_cast<int>(time_to_wait().count()));
  auto file = files.begin() + 1;
  for (const Voice voice : kVoices) {
    if ((file++)->revents != 0) terminal_.write_some(voice);
  }
  for (Worker& worker : workers_) {
    for (const Voice voice : kVoices) {
      if ((file++)->revents != 0) read_output(worker, voice);
    }
  }
  if (files[0].revents != 0) {
    read_signals();
    see_ends();
  }
  if (Clock::now() >= next_look_) clear_sessions();
  act_on_time();
}

// All workers have ended; what they printed is shown as long as somebody reads it. Who ends the job
// by a signal does not wait for a reader.
void Launcher::write_the_rest() {
  while (terminal_.waiting() && signal_ == 0) wait_for_something();
  const Clock::time_point until = Clock::now() + seconds(1);
  for (const Voice voice : kVoices) {
    const int file = voice == Voice::kOut ? STDOUT_FILENO : STDERR_FILENO;
    while (terminal_.stream(voice).waiting() && Clock::now() < until && has_room(file, 100)) {
      terminal_.write_some(voice);
    }
  }
}

// --- output ----------------------------------------------------------------------------------

void Launcher::read_output(Worker& worker, Voice voice) {
  char bytes[64 * 1024];
  const ssize_t size = read(worker.child.pipe(voice), bytes, sizeof bytes);
  if (size > 0) {
    worker.log->add(voice, bytes, static_cast<size_t>(size));
    show_output(worker, voice);
    const std::string trouble = worker.log->take_trouble();
    if (!trouble.empty()) {
      terminal_.say(concat("the log of worker ", worker.index,
                           " is incomplete, the job goes on: ", worker.log->path(), ": ", trouble));
    }
  } else if (size == 0) {
    close_output(worker, voice);
  }
}

void Launcher::show_output(Worker& worker, Voice voice) {
  if (!worker.shown) return;
  const std::string lines = worker.log->take_lines(voice);
  terminal_.show_lines(voice, plan_.debug ? with_prefix(lines, worker.index) : lines);
}

void Launcher::close_output(Worker& worker, Voice voice) {
  int& pipe = worker.child.pipe(voice);
  if (pipe < 0) return;
  close(pipe);
  pipe = -1;
  if (!worker.shown) return;
  show_output(worker, voice);
  const std::string rest = worker.log->take_rest(voice);
  if (rest.empty()) return;
  terminal_.show_lines(voice, (plan_.debug ? with_prefix(rest, worker.index) : rest) + "\n");
}

// --- the ends of processes -------------------------------------------------------------------

void Launcher::read_signals() {
  signalfd_siginfo info{};
  while (read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;
    const bool again = signal_ != 0;
    if (!again) signal_ = signal;
    stop_all(again ? SIGKILL : SIGTERM);
  }
}

// Sees who has ended without reaping anyone.
void Launcher::see_ends() {
  for (Worker& worker : workers_) {
    if (worker.stage != Stage::kRunning || worker.child.pid == 0) continue;
    siginfo_t info{};
    const auto pid = static_cast<id_t>(worker.child.pid);
    if (waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) continue;
    worker.stage = Stage::kEnded;
    worker.end =
        info.si_code == CLD_EXITED ? ProcessEnd{info.si_status, 0} : ProcessEnd{0, info.si_status};
    worker.ended_at = next_look_ = Clock::now();
    if (!worker.end.good()) note_failure(worker);
  }
}

// Who fails after the others were asked to end, fails because of that.
void Launcher::note_failure(const Worker& worker) {
  if (phase_ != Phase::kRunning && phase_ != Phase::kCollecting) return;
  deaths_.push_back({worker.index, worker.end, {}});
  if (phase_ == Phase::kCollecting) return;
  phase_ = Phase::kCollecting;
  phase_end_ = Clock::now() + kCollect;
}

void Launcher::clear_sessions() {
  std::set<pid_t> leaders;
  for (const Worker& worker : workers_) {
    if (worker.stage == Stage::kEnded || worker.stage == Stage::kLeftoversAsked) {
      leaders.insert(worker.child.pid);
    }
  }
  next_look_ = Clock::now() + kRound;
  if (leaders.empty()) return;
  const auto members = members_of_sessions(leaders);
  for (Worker& worker : workers_) {
    if (leaders.count(worker.child.pid) != 0) clear(worker, members.count(worker.child.pid) != 0);
  }
}

// What a worker that has ended left behind is asked to end, then made to.
void Launcher::clear(Worker& worker, bool has_members) {
  if (!has_members) {
    finish(worker);
  } else if (phase_ == Phase::kKilling || Clock::now() >= worker.ended_at + kGrace) {
    signal_session(worker.child.pid, SIGKILL);
  } else if (worker.stage == Stage::kEnded) {
    signal_session(worker.child.pid, SIGTERM);
    worker.stage = Stage::kLeftoversAsked;
  }
}

void Launcher::finish(Worker& worker) {
  // All that was written is in the pipe; whoever else may hold it is not waited for.
  for (const Voice voice : kVoices) {
    for (int i = 0; i < 64 && worker.child.pipe(voice) >= 0; ++i) {
      pollfd ready{worker.child.pipe(voice), POLLIN, 0};
      if (poll(&ready, 1, 0) <= 0) break;
      read_output(worker, voice);
    }
    close_output(worker, voice);
  }
  guard_.forget(worker.child.pid);
  waitpid(worker.child.pid, nullptr, WNOHANG);
  worker.stage = Stage::kReaped;
}

void Launcher::act_on_time() {
  const Clock::time_point now = Clock::now();
  if (phase_ != Phase::kRunning && now >= phase_end_) next_phase();
  if (now < next_status_) return;
  show_status();
  next_status_ = now + terminal_.status_interval();
}

void Launcher::next_phase() {
  if (phase_ == Phase::kCollecting) return stop_all(SIGTERM);
  if (phase_ == Phase::kTerminating) return stop_all(SIGKILL);
  for (Worker& worker : workers_) {
    if (worker.stage == Stage::kReaped) continue;
    terminal_.say(concat("worker ", worker.index, " (process ", worker.child.pid,
                         ") does not end though it was killed: the kernel holds it"));
    finish(worker);
  }
}

void Launcher::stop_all(int signal) {
  phase_ = signal == SIGKILL ? Phase::kKilling : Phase::kTerminating;
  phase_end_ = Clock::now() + (signal == SIGKILL ? kGiveUp : kGrace);
  for (const Worker& worker : workers_) {
    const bool there = worker.child.pid != 0 && worker.stage != Stage::kReaped;
    if (there) signal_session(worker.child.pid, signal);
  }
}

bool Launcher::has(Stage stage) const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [&](const Worker& worker) { return worker.stage == stage; });
}

bool Launcher::all_reaped() const {
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return worker.stage == Stage::kReaped; });
}

// --- what the user is told -------------------------------------------------------------------

void Launcher::show_status() {
  const auto running = std::count_if(workers_.begin(), workers_.end(), [](const Worker& worker) {
    return worker.stage == Stage::kRunning;
  });
  const auto elapsed = std::chrono::duration_cast<seconds>(Clock::now() - started_);
  const Worker& first = workers_.front();
  const std::vector<std::string> last = first.log->last_lines(1);
  terminal_.set_status(concat(running, " of ", count_text(workers_.size(), "worker"), " running, ",
                              elapsed_text(elapsed), ", worker ", first.index, ": ",
                              last.empty() ? "no output yet" : last.front()));
}

void Launcher::report() {
  terminal_.close_status();
  const auto elapsed = elapsed_text(std::chrono::duration_cast<seconds>(Clock::now() - started_));
  if (signal_ != 0) {
    terminal_.say(concat("ended by signal ", signal_, " (", strsignal(signal_), ") after ", elapsed,
                         "; logs in ", plan_.log_dir));
  } else if (deaths_.empty()) {
    terminal_.say(concat("all workers ended well after ", elapsed));
  } else {
    report_culprit();
  }
}

void Launcher::report_culprit() {
  for (Death& death : deaths_) {
    for (const Worker& worker : workers_) {
      if (worker.index == death.worker) death.last_lines = worker.log->last_lines(kReportedLines);
    }
  }
  const size_t culprit = find_culprit(deaths_);
  const Death& death = deaths_[culprit];
  const auto worker = std::find_if(workers_.begin(), workers_.end(), [&](const Worker& candidate) {
    return candidate.index == death.worker;
  });
  std::string text = concat("worker ", death.worker, " (process ", worker->child.pid, " on ",
                            host_name(), ") ", end_text(death.end), "; the job is stopped");
  for (size_t i = 0; i < deaths_.size(); ++i) {
    if (i == culprit) continue;
    text += concat("\n  then worker ", deaths_[i].worker, " ", end_text(deaths_[i].end));
  }
  text += death.last_lines.empty() ? "\n  it has printed nothing" : "\n  its last lines:";
  for (const std::string& line : death.last_lines) text += "\n    " + line;
  text += "\n  its log:  " + worker->log->path();
  terminal_.say(text);
}

}  // namespace epl

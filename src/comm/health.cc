#include "comm/health.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <exception>

#include "base/check.h"
#include "comm/host.h"

namespace epl::comm {
namespace {

using std::chrono::milliseconds;

// The rendezvous hears of a lost process first and asks about it; where it does not, a neighbour
// speaks up after this long. A farewell that is on its way arrives in the meantime.
constexpr milliseconds kPatienceWithRendezvous{500};
constexpr milliseconds kFarewell{1000};
// The rendezvous names the workers that are missing; it gets this much longer than we wait for
// them.
constexpr milliseconds kForTheVerdict{2000};
// While all workers start at once, worker 0 may be slow to speak.
constexpr milliseconds kWithStrangers{5000};

Descriptor open_process(int64_t pid) {
  return Descriptor(static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)));
}

bool is_readable(const Descriptor& descriptor) {
  pollfd looked{descriptor.get(), POLLIN, 0};
  return poll(&looked, 1, 0) > 0;
}

}  // namespace

Health::Health(Descriptor connection, Options options, Watch& watch)
    : options_(std::move(options)),
      watch_(watch),
      exceptions_at_start_(std::uncaught_exceptions()),
      stream_(std::move(connection)) {
  say_hello(own_address(stream_.connection()));
  meet_neighbours();
  watch_.publish_progress_at(&page_.progress());
  heard_ = looked_ = beaten_ = Clock::now();
  thread_ = std::thread([this] { run(); });
}

Health::~Health() {
  try {
    watch_.check();
    if (std::uncaught_exceptions() > exceptions_at_start_) {
      report_failure("it stopped with an exception that its own log shows");
    }
  } catch (const JobFailed& cause) {
    report_failure(cause.what());
  }
  say_farewell();
  bell_.ring();
  thread_.join();
  watch_.keep_progress_private();
}

void Health::say_farewell() {
  const MutexLock lock(mutex_);
  if (!told_failure_ && !cause_known_) {
    outgoing_.push_back({"left", std::to_string(own_step()), describe_progress(watch_.progress())});
  }
  stop_ = true;
  stopping_since_ = Clock::now();
}

void Health::say_hello(const std::string& address) {
  const WorkerRecord record{describe_this_worker(options_.devices), page_.descriptor(), address};
  Message hello{"hello", std::to_string(options_.index), std::to_string(options_.worker_num)};
  for (std::string& field : encode(record)) hello.push_back(std::move(field));
  stream_.send(hello);
  const Clock::time_point end = Clock::now() + options_.patience + kForTheVerdict;
  heard_ = looked_ = Clock::now();
  while (workers_.empty()) {
    pollfd waited{stream_.connection().get(), POLLIN, 0};
    poll(&waited, 1, static_cast<int>(beat_period(options_.silence).count()));
    stream_.send({"beat", ""});
    stream_.receive();
    note_look();
    hear_of_workers();
    if (workers_.empty()) check_company(end);
  }
}

// What comes behind "all" is for the thread.
void Health::hear_of_workers() {
  while (workers_.empty()) {
    const std::optional<Message> message = stream_.next();
    if (!message) return;
    heard_ = Clock::now();
    if (message->at(0) == "cause") throw Cause{message->at(1), message->at(2)}.error();
    if (message->at(0) != "all") continue;
    for (size_t at = 1; at < message->size(); at += kRecordFields) {
      workers_.push_back(decode_record(*message, at));
    }
  }
}

// Whether what listens is still worth waiting for. It may be no worker at all.
void Health::check_company(Clock::time_point end) const {
  std::string reason;
  if (stream_.closed()) {
    reason = concat("ended the conversation with worker ", options_.index,
                    " before all workers had come");
  } else if (looked_ - heard_ > std::max(options_.silence, kWithStrangers)) {
    reason = concat("has said nothing to worker ", options_.index, " for ",
                    describe_duration(std::max(options_.silence, kWithStrangers)));
  } else if (looked_ > end) {
    reason = concat("did not bring worker ", options_.index, " together with the others within ",
                    describe_duration(options_.patience));
  } else {
    return;
  }
  throw JobFailed(concat("what listens at ", options_.place, " ", reason), "",
                  "the log of worker 0, and whether another program has that port");
}

void Health::note_look() {
  const Clock::time_point now = Clock::now();
  if (now - looked_ > kOwnGap) heard_ += now - looked_;
  looked_ = now;
}

void Health::meet_neighbours() {
  const std::string& here = workers_[static_cast<size_t>(options_.index)].info.host_key;
  for (int index = 0; index < options_.worker_num; ++index) {
    const WorkerRecord& record = workers_[static_cast<size_t>(index)];
    if (index == options_.index || record.info.host_key != here) continue;
    neighbours_.push_back({index, open_process(record.info.pid),
                           ProgressPage::open(record.info.pid, record.page), false});
  }
}

void Health::run() {
  try {
    while (true) {
      wait_for_events();
      talk();
      note_look();
      look_at_neighbours();
      look_at_rendezvous(looked_);
      look_at_finished();
      act_on_suspicion(looked_);
      if (everything_said()) break;
    }
    stream_.finish_sending();
    // The other side answers with its own close; a reset could overtake what was said.
    const Clock::time_point end = Clock::now() + kFarewell;
    while (!stream_.closed() && Clock::now() < end) {
      pollfd waited{stream_.connection().get(), POLLIN, 0};
      poll(&waited, 1, 20);
      stream_.receive();
    }
  } catch (const std::exception& error) {
    adopt({concat("the control channel of worker ", options_.index, " broke: ", error.what()), ""});
  }
}

void Health::wait_for_events() {
  std::vector<pollfd> waited{{bell_.descriptor(), POLLIN, 0}};
  if (!stream_.closed()) {
    const short events = stream_.has_unsent() ? POLLIN | POLLOUT : POLLIN;
    waited.push_back({stream_.connection().get(), events, 0});
  }
  for (const Neighbour& each : neighbours_) {
    if (each.process && !each.ended) waited.push_back({each.process.get(), POLLIN, 0});
  }
  poll(waited.data(), waited.size(), static_cast<int>(beat_period(options_.silence).count()));
  bell_.quiet();
}

void Health::talk() {
  if (Clock::now() - beaten_ >= beat_period(options_.silence)) {
    beaten_ = Clock::now();
    post({"beat", describe_progress(watch_.progress())});
  }
  std::vector<Message> messages;
  bool begun_here = false;
  {
    const MutexLock lock(mutex_);
    messages.swap(outgoing_);
    sending_ = !messages.empty();
    begun_here = watch_.failed() && !cause_known_ && !told_failure_;
  }
  for (const Message& message : messages) stream_.send(message);
  stream_.flush();
  {
    const MutexLock lock(mutex_);
    sending_ = stream_.has_unsent();
  }
  news_.notify_all();
  if (begun_here) {
    try {
      watch_.check();
    } catch (const JobFailed& cause) {
      note_failure(cause.what());
    }
  }
  stream_.receive();
  while (const std::optional<Message> message = stream_.next()) {
    heard_ = Clock::now();
    if (!message->empty()) handle(*message);
  }
}

void Health::handle(const Message& message) {
  const std::string& kind = message[0];
  if (kind == "beat") {
    progress_of_first_ = message.at(1);
  } else if (kind == "cause") {
    adopt({message.at(1), message.at(2)});
  } else if (kind == "left") {
    finished_[static_cast<int>(parse_number(message.at(1)))] = {parse_number(message.at(2)),
                                                                message.at(3)};
  } else if (kind == "suspect") {
    const int index = static_cast<int>(parse_number(message.at(1)));
    const LastSeen last = last_seen(index);
    if (!last.exact) return;
    const Cause cause =
        gone_cause(index, workers_[static_cast<size_t>(index)].info, message.at(2), last);
    post({"failed", cause.what, cause.hint});
    bell_.ring();
  } else if (kind == "texts") {
    const MutexLock lock(mutex_);
    texts_[message.at(1)] = {message.begin() + 2, message.end()};
    news_.notify_all();
  } else if (kind == "missing") {
    const MutexLock lock(mutex_);
    missing_[message.at(1)] = split_numbers(message.at(2));
    news_.notify_all();
  }
}

LastSeen Health::last_seen(int index) const {
  for (const Neighbour& each : neighbours_) {
    if (each.index == index && each.page) return {describe_progress(each.page.progress()), true};
  }
  return {index == 0 ? progress_of_first_ : "", false};
}

void Health::look_at_neighbours() {
  for (Neighbour& each : neighbours_) {
    if (each.ended || !each.process || !is_readable(each.process)) continue;
    each.ended = true;
    if (suspicion_ || finished_.count(each.index) > 0) continue;
    suspicion_ = {each.index,
                  gone_cause(each.index, workers_[static_cast<size_t>(each.index)].info,
                             kEndedReason, last_seen(each.index)),
                  Clock::now()};
  }
}

void Health::act_on_suspicion(Clock::time_point now) {
  if (!suspicion_ || now - suspicion_->since < kPatienceWithRendezvous) return;
  if (finished_.count(suspicion_->index) == 0) {
    post({"failed", suspicion_->cause.what, suspicion_->cause.hint});
    adopt(suspicion_->cause);
  }
  suspicion_.reset();
}

void Health::look_at_rendezvous(Clock::time_point now) {
  {
    const MutexLock lock(mutex_);
    if (detached_ || cause_known_) return;
  }
  const bool finished = finished_.count(0) > 0;
  const WorkerInfo& first = workers_[0].info;
  if (stream_.closed()) {
    if (!finished) adopt(gone_cause(0, first, kEndedReason, last_seen(0)));
    // Not before the cause is known: who waits would take worker 0 for one that has finished.
    const MutexLock lock(mutex_);
    detached_ = true;
  } else if (!finished && now - heard_ > options_.silence) {
    adopt(gone_cause(0, first, silent_reason(options_.silence), last_seen(0)));
  }
}

void Health::look_at_finished() {
  const int64_t step = own_step();
  for (const auto& [index, farewell] : finished_) {
    if (farewell.step >= step || watch_.failed()) continue;
    const Cause cause{
        concat(name_of_worker(index, workers_[static_cast<size_t>(index)].info), " has finished ",
               farewell.step < 0 ? "without a step" : concat("after step ", farewell.step),
               " while ",
               name_of_worker(options_.index, workers_[static_cast<size_t>(options_.index)].info),
               " is in step ", step),
        "the same number of steps on all workers: data sets that are cut evenly"};
    post({"failed", cause.what, cause.hint});
    adopt(cause);
  }
}

void Health::adopt(const Cause& cause) {
  {
    const MutexLock lock(mutex_);
    cause_known_ = true;
  }
  watch_.fail(cause.error());
  news_.notify_all();
}

void Health::post(Message message) {
  const MutexLock lock(mutex_);
  outgoing_.push_back(std::move(message));
}

bool Health::everything_said() {
  const MutexLock lock(mutex_);
  const bool said = outgoing_.empty() && !sending_;
  return stop_ && (said || stream_.closed() || Clock::now() - stopping_since_ > kFarewell);
}

int64_t Health::own_step() const {
  const Progress& own = watch_.progress();
  const bool begun = own.instruction[0].load(std::memory_order_relaxed) != 0;
  return begun ? own.step.load(std::memory_order_relaxed) : -1;
}

bool Health::wait_for_news(Clock::time_point end) {
  const Clock::time_point now = Clock::now();
  if (now >= end) return false;
  news_.wait_until(mutex_, now + milliseconds(20));
  return true;
}

std::vector<std::string> Health::gather(const std::string& key, const std::vector<int>& members,
                                        const std::string& mine, milliseconds deadline) {
  watch_.check();
  post({"text", key, join_numbers(members), mine});
  bell_.ring();
  bool detached = false;
  {
    const MutexLock lock(mutex_);
    const Clock::time_point end = Clock::now() + deadline;
    while (texts_.count(key) == 0 && !watch_.failed() && !detached_ && wait_for_news(end)) continue;
    const auto found = texts_.find(key);
    if (found != texts_.end()) {
      std::vector<std::string> texts = std::move(found->second);
      texts_.erase(found);
      return texts;
    }
    detached = detached_;
  }
  watch_.check();
  if (detached) {
    watch_.fail(JobFailed(concat("worker ", options_.index, " waits for the others (", key,
                                 ") after worker 0 has finished"),
                          "", "the same steps on all workers"));
  } else {
    watch_.fail(
        JobFailed(concat(missing_of(key), " did not come to an exchange (", key, ") that worker ",
                         options_.index, " waits in, within ", describe_duration(deadline)),
                  "", "the same calls on all workers"));
  }
  watch_.check();
  EPL_ASSERT(false, "a Watch that failed throws");
}

std::string Health::missing_of(const std::string& key) {
  post({"who", key});
  bell_.ring();
  const MutexLock lock(mutex_);
  const Clock::time_point end = Clock::now() + kFarewell;
  while (missing_.count(key) == 0 && !watch_.failed() && wait_for_news(end)) continue;
  const std::vector<int>& missing = missing_[key];
  return missing.empty() ? "some workers" : list_of_workers(missing);
}

// Returns once the rendezvous has answered, so that a worker 0 which ends the process has told the
// others: it hears last.
void Health::report_failure(const std::string& message) {
  note_failure(message);
  const MutexLock lock(mutex_);
  const Clock::time_point end = Clock::now() + kFarewell;
  while (!cause_known_ && !detached_ && wait_for_news(end)) continue;
}

void Health::note_failure(const std::string& message) {
  const LastSeen last{describe_progress(watch_.progress()), true};
  const Cause cause = failed_cause(
      options_.index, workers_[static_cast<size_t>(options_.index)].info, message, last);
  {
    const MutexLock lock(mutex_);
    if (told_failure_ || cause_known_) return;
    told_failure_ = true;
    outgoing_.push_back({"failed", cause.what, cause.hint});
  }
  bell_.ring();
}

}  // namespace epl::comm

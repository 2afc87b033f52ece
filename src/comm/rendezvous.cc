#include "comm/rendezvous.h"

#include <poll.h>

#include <algorithm>

#include "base/check.h"

namespace epl::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLongestLook{100};
// A worker of the lost one's host can say more exactly what it did last: it has this long to speak.
constexpr milliseconds kTestimony{300};
constexpr milliseconds kFarewellOfAll{3000};

Message cause_message(const Cause& cause) { return {"cause", cause.what, cause.hint}; }

}  // namespace

Rendezvous::Rendezvous(Descriptor listener, Options options)
    : options_(std::move(options)),
      listener_(std::move(listener)),
      seats_(static_cast<size_t>(options_.worker_num)),
      thread_([this] { serve(); }) {}

Rendezvous::~Rendezvous() {
  closing_ = true;
  bell_.ring();
  thread_.join();
}

void Rendezvous::serve() {
  while (!finished()) {
    wait_for_events();
    admit_guests();
    for (const auto& guest : guests_) hear(*guest);
    look_after(Clock::now());
    forget_closed_guests();
  }
}

bool Rendezvous::finished() const {
  if (!closing_since_) return false;
  // Who has not come to a job that failed is not waited for.
  const bool all_gone = std::all_of(seats_.begin() + 1, seats_.end(), [this](const Seat& seat) {
    return seat.presence == Presence::kLeft || seat.presence == Presence::kLost ||
           (seat.presence == Presence::kExpected && cause_);
  });
  const bool all_told = std::none_of(guests_.begin(), guests_.end(),
                                     [](const auto& guest) { return guest->stream.has_unsent(); });
  return (all_gone && all_told) || Clock::now() - *closing_since_ > kFarewellOfAll;
}

void Rendezvous::wait_for_events() {
  std::vector<pollfd> waited{{bell_.descriptor(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
  for (const auto& guest : guests_) {
    const short events = guest->stream.has_unsent() ? POLLIN | POLLOUT : POLLIN;
    waited.push_back({guest->stream.connection().get(), events, 0});
  }
  const milliseconds period = std::min(kLongestLook, beat_period(options_.silence));
  poll(waited.data(), waited.size(), static_cast<int>(period.count()));
  bell_.quiet();
  if (closing_ && !closing_since_) closing_since_ = Clock::now();
}

void Rendezvous::admit_guests() {
  while (Descriptor accepted = accept_connection(listener_)) {
    guests_.push_back(std::make_unique<Guest>(Guest{MessageStream(std::move(accepted)), -1}));
  }
}

void Rendezvous::hear(Guest& guest) {
  guest.stream.flush();
  guest.stream.receive();
  while (std::optional<Message> message = guest.stream.next()) {
    try {
      if (!message->empty()) handle(guest, *message);
    } catch (const Error& malformed) {
      guest.stream.send(cause_message({malformed.what(), ""}));
    }
  }
}

void Rendezvous::handle(Guest& guest, const Message& message) {
  const std::string& kind = message[0];
  if (guest.index < 0) {
    if (kind == "hello") welcome(guest, message);
    return;
  }
  Seat& seat = seats_[static_cast<size_t>(guest.index)];
  seat.heard = Clock::now();
  if (kind == "beat" && message.size() == 2) {
    seat.progress = message[1];
  } else if (kind == "text" && message.size() == 4) {
    take_text(seat, guest.index, message);
  } else if (kind == "who" && message.size() == 2) {
    answer_who(guest, message[1]);
  } else if (kind == "failed" && message.size() == 3) {
    fail({message[1], message[2]});
  } else if (kind == "left" && message.size() == 3) {
    mark_left(guest.index, message);
  }
}

std::optional<Cause> Rendezvous::objection_to(const Message& hello) const {
  const int64_t index = parse_number(hello[1]);
  const int64_t worker_num = parse_number(hello[2]);
  const WorkerRecord record = decode_record(hello, 3);
  const std::string name = name_of_worker(static_cast<int>(index), record.info);
  if (worker_num != options_.worker_num) {
    return Cause{concat(name, " came for a job of ", worker_num, " workers, worker 0 (",
                        options_.place, ") serves one of ", options_.worker_num),
                 "the same number of workers everywhere, and a port of its own for each job"};
  }
  if (index < 0 || index >= options_.worker_num) {
    return Cause{
        concat(name, " came to a job of ", worker_num, " workers, which are 0 to ", worker_num - 1),
        ""};
  }
  const Seat& seat = seats_[static_cast<size_t>(index)];
  if (seat.presence != Presence::kExpected) {
    return Cause{
        concat("two workers have the index ", index, ": pid ", seat.record.info.pid, " on host ",
               seat.record.info.host, " and pid ", record.info.pid, " on host ", record.info.host),
        concat("an index of its own for each worker, and a port of its own for each job (",
               options_.place, ")")};
  }
  return std::nullopt;
}

void Rendezvous::welcome(Guest& guest, const Message& hello) {
  EPL_CHECK(hello.size() == 3 + kRecordFields, "a hello has another form: is it another version?");
  const std::optional<Cause> objection = objection_to(hello);
  if (objection || cause_) {
    guest.stream.send(cause_message(cause_ ? *cause_ : *objection));
    // Before the job has begun nobody can say which of the two is wrong. Later it is the newcomer.
    if (objection && !complete_) fail(*objection);
    return;
  }
  guest.index = static_cast<int>(parse_number(hello[1]));
  Seat& seat = seats_[static_cast<size_t>(guest.index)];
  seat.presence = Presence::kPresent;
  seat.guest = &guest;
  seat.record = decode_record(hello, 3);
  seat.heard = Clock::now();
  const auto expected = [](const Seat& each) { return each.presence == Presence::kExpected; };
  if (std::none_of(seats_.begin(), seats_.end(), expected)) open_job();
}

void Rendezvous::open_job() {
  complete_ = true;
  // The address by which other hosts see this one; it stands in for loopback addresses.
  std::string outside;
  for (const Seat& seat : seats_) {
    if (seat.guest != nullptr && seat.record.info.host_key != seats_[0].record.info.host_key) {
      outside = own_address(seat.guest->stream.connection());
      break;
    }
  }
  Message all{"all"};
  for (Seat& seat : seats_) {
    const bool here = seat.record.info.host_key == seats_[0].record.info.host_key;
    if (here && !outside.empty()) seat.record.address = outside;
    for (std::string& field : encode(seat.record)) all.push_back(std::move(field));
  }
  send_to_all(all);
}

void Rendezvous::take_text(const Seat& seat, int index, const Message& message) {
  const std::vector<int> members = split_numbers(message[2]);
  EPL_CHECK(std::count(members.begin(), members.end(), index) == 1 &&
                *std::max_element(members.begin(), members.end()) < options_.worker_num &&
                *std::min_element(members.begin(), members.end()) >= 0,
            concat(name_of_worker(index, seat.record.info), " hands in a text for \"", message[1],
                   "\" among ", list_of_workers(members), ", which cannot be"));
  Gathering& gathering = gatherings_[message[1]];
  gathering.members = members;
  gathering.texts[index] = message[3];
  if (gathering.texts.size() == members.size()) {
    Message texts{"texts", message[1]};
    for (const int member : members) texts.push_back(gathering.texts[member]);
    for (const int member : members) {
      Seat& other = seats_[static_cast<size_t>(member)];
      if (other.guest != nullptr) other.guest->stream.send(texts);
    }
    gatherings_.erase(message[1]);
  }
  fail_unfinishable_gatherings();
}

void Rendezvous::answer_who(Guest& guest, const std::string& key) {
  const Gathering& gathering = gatherings_[key];
  std::vector<int> missing;
  for (const int member : gathering.members) {
    if (gathering.texts.count(member) == 0) missing.push_back(member);
  }
  guest.stream.send({"missing", key, join_numbers(missing)});
}

void Rendezvous::mark_left(int index, const Message& message) {
  Seat& seat = seats_[static_cast<size_t>(index)];
  seat.presence = Presence::kLeft;
  seat.progress = message[2];
  send_to_all({"left", std::to_string(index), message[1], message[2]});
  fail_unfinishable_gatherings();
}

void Rendezvous::fail_unfinishable_gatherings() {
  for (const auto& [key, gathering] : gatherings_) {
    for (const int member : gathering.members) {
      const Seat& seat = seats_[static_cast<size_t>(member)];
      if (seat.presence != Presence::kLeft || gathering.texts.count(member) > 0) continue;
      std::vector<int> waiting;
      for (const auto& each : gathering.texts) waiting.push_back(each.first);
      fail({concat(name_of_worker(member, seat.record.info), " has finished while ",
                   list_of_workers(waiting), waiting.size() == 1 ? " waits" : " wait", " for it (",
                   key, "); its last was ", seat.progress),
            "the same steps on all workers"});
      return;
    }
  }
}

void Rendezvous::forget_closed_guests() {
  for (const auto& guest : guests_) {
    if (!guest->stream.closed() || guest->index < 0) continue;
    Seat& seat = seats_[static_cast<size_t>(guest->index)];
    seat.guest = nullptr;
    if (seat.presence == Presence::kPresent) suspect(guest->index, kEndedReason, Clock::now());
  }
  guests_.erase(std::remove_if(guests_.begin(), guests_.end(),
                               [](const auto& guest) { return guest->stream.closed(); }),
                guests_.end());
}

void Rendezvous::look_after(Clock::time_point now) {
  const Clock::duration gap = now - looked_;
  looked_ = now;
  if (gap > kOwnGap) {
    for (Seat& seat : seats_) seat.heard += gap;
  }
  if (!cause_ && !closing_since_) {
    look_for_missing(now);
    look_for_silent(now);
    judge_lost(now);
  }
  if (now - beaten_ >= beat_period(options_.silence)) {
    beaten_ = now;
    send_to_all({"beat", seats_[0].progress});
  }
}

void Rendezvous::look_for_missing(Clock::time_point now) {
  if (complete_ || now - opened_ <= options_.patience) return;
  std::vector<int> missing;
  for (int index = 0; index < options_.worker_num; ++index) {
    if (seats_[static_cast<size_t>(index)].presence == Presence::kExpected)
      missing.push_back(index);
  }
  fail({concat(list_of_workers(missing), " of ", options_.worker_num, " did not come within ",
               describe_duration(options_.patience), "; worker 0 listens at ", options_.place),
        "the logs of the missing ones, and whether their hosts reach that address"});
}

// A host that is cut off takes all its workers along, whose last signs of life came at different
// moments of the same period: with the first one that is silent for too long go all that nearly
// are.
void Rendezvous::look_for_silent(Clock::time_point now) {
  const auto silent_for = [&](const Seat& seat, milliseconds duration) {
    return seat.presence == Presence::kPresent && now - seat.heard > duration;
  };
  const bool any = std::any_of(seats_.begin(), seats_.end(), [&](const Seat& seat) {
    return silent_for(seat, options_.silence);
  });
  if (!any) return;
  const milliseconds nearly = options_.silence - 2 * beat_period(options_.silence);
  for (int index = 0; index < options_.worker_num; ++index) {
    if (silent_for(seats_[static_cast<size_t>(index)], nearly)) {
      suspect(index, silent_reason(options_.silence), now);
    }
  }
}

// Asks those who can read the memory of the suspect what it did last.
void Rendezvous::suspect(int index, const std::string& reason, Clock::time_point now) {
  Seat& suspected = seats_[static_cast<size_t>(index)];
  suspected.presence = Presence::kLost;
  suspected.lost = now;
  suspected.reason = reason;
  if (cause_ || !complete_) return;
  for (Seat& seat : seats_) {
    if (seat.presence == Presence::kPresent && seat.guest != nullptr &&
        seat.record.info.host_key == suspected.record.info.host_key) {
      seat.guest->stream.send({"suspect", std::to_string(index), reason});
    }
  }
}

void Rendezvous::judge_lost(Clock::time_point now) {
  std::vector<int> lost;
  bool ripe = false;
  for (int index = 0; index < options_.worker_num; ++index) {
    const Seat& seat = seats_[static_cast<size_t>(index)];
    if (seat.presence != Presence::kLost) continue;
    lost.push_back(index);
    ripe = ripe || now - seat.lost > kTestimony;
  }
  if (!ripe) return;
  std::stable_sort(lost.begin(), lost.end(), [&](int a, int b) {
    return seats_[static_cast<size_t>(a)].lost < seats_[static_cast<size_t>(b)].lost;
  });
  const Seat& first = seats_[static_cast<size_t>(lost[0])];
  Cause cause = gone_cause(lost[0], first.record.info, first.reason, {first.progress, false});
  if (lost.size() > 1) {
    cause.what += concat("; gone too: ", list_of_workers({lost.begin() + 1, lost.end()}));
  }
  fail(cause);
}

void Rendezvous::fail(const Cause& cause) {
  if (cause_) return;
  cause_ = cause;
  send_to_all(cause_message(cause));
}

// Worker 0 last: should it end the process on what it hears, the others have been told.
void Rendezvous::send_to_all(const Message& message) {
  for (auto seat = seats_.rbegin(); seat != seats_.rend(); ++seat) {
    if (seat->guest != nullptr) seat->guest->stream.send(message);
  }
}

}  // namespace epl::comm

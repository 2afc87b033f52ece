// Rendezvous: where the workers of a job meet, served by worker 0 on a thread of its own.
//
// Every worker, worker 0 too, holds one connection to it. The rendezvous knows who has come, hands
// texts around, and judges: a connection that closes without a farewell or stays silent means that
// its worker is gone. There is one judge, so that there is one cause: the first one is told to all,
// and whatever breaks afterwards because of it is no news.
//
// Why not c10d's TCPStore: docs/notes/workers.md.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/message_stream.h"
#include "comm/protocol.h"
#include "comm/socket.h"

namespace epl::comm {

class Rendezvous {
 public:
  struct Options {
    int worker_num = 1;
    std::string place;  // "host:port", for messages
    std::chrono::milliseconds patience{0};
    std::chrono::milliseconds silence{0};
  };

  Rendezvous(Descriptor listener, Options options);
  // Stays until the others have left or are gone, but not for longer than a few seconds.
  ~Rendezvous();

 private:
  using Clock = std::chrono::steady_clock;

  struct Guest {
    MessageStream stream;
    int index = -1;  // until it said hello
  };
  enum class Presence : uint8_t { kExpected, kPresent, kLeft, kLost };
  struct Seat {
    Presence presence = Presence::kExpected;
    Guest* guest = nullptr;
    WorkerRecord record;
    Clock::time_point heard;
    Clock::time_point lost;
    std::string reason;  // why it is held to be lost
    std::string progress;
  };
  struct Gathering {
    std::vector<int> members;
    std::map<int, std::string> texts;
  };

  void serve();
  bool finished() const;
  void wait_for_events();
  void admit_guests();
  void hear(Guest& guest);
  void handle(Guest& guest, const Message& message);
  void welcome(Guest& guest, const Message& hello);
  std::optional<Cause> objection_to(const Message& hello) const;
  void open_job();
  void take_text(const Seat& seat, int index, const Message& message);
  void answer_who(Guest& guest, const std::string& key);
  void mark_left(int index, const Message& message);
  void fail_unfinishable_gatherings();
  void forget_closed_guests();
  void look_after(Clock::time_point now);
  void look_for_missing(Clock::time_point now);
  void look_for_silent(Clock::time_point now);
  void suspect(int index, const std::string& reason, Clock::time_point now);
  void judge_lost(Clock::time_point now);
  void fail(const Cause& cause);
  void send_to_all(const Message& message);

  const Options options_;
  const Descriptor listener_;
  const Clock::time_point opened_ = Clock::now();
  Bell bell_;
  std::atomic<bool> closing_{false};
  // What follows is the thread's own.
  std::deque<std::unique_ptr<Guest>> guests_;
  std::vector<Seat> seats_;
  std::map<std::string, Gathering> gatherings_;
  std::optional<Cause> cause_;
  bool complete_ = false;
  Clock::time_point looked_ = Clock::now();
  Clock::time_point beaten_ = Clock::now();
  std::optional<Clock::time_point> closing_since_;
  std::thread thread_;  // last, so that it sees all others
};

}  // namespace epl::comm

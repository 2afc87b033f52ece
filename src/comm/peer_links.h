// PeerLinks: a TCP connection to each other member of a communicator, and the frames on them.
//
// The thread that calls does the work: it writes from and reads into tensors without a copy, in
// both directions at once, and looks at the Watch and at the deadline while it waits. So there is
// no thread to wake, and nothing outlives a call that still knows its tensors.
//
// A call of the communicator is one or more phases. In the first one each member tells every other
// one what it calls, together with the data that go there; where calls differ, all members have
// read all of them and throw the same Error, and the connections are as before. Messages (send,
// receive) that come in between are put aside.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "comm/call.h"
#include "comm/link.h"
#include "comm/watch.h"

namespace epl::comm {

// What goes to a member, or comes from it, in one phase.
struct Part {
  int peer = 0;
  Spans spans;
};

class PeerLinks {
 public:
  // links[rank] is not used.
  PeerLinks(Caller caller, std::vector<Descriptor> links, Watch& watch,
            CommunicatorOptions options);
  // Says goodbye, so that whoever waits for this member knows that it left.
  ~PeerLinks();

  const Caller& caller() const { return caller_; }
  void set_about(int64_t about) { caller_.set_about(about); }
  const CommunicatorOptions& options() const { return options_; }
  Watch& watch() const { return watch_; }

  // The first phase of a call: all members meet. Parts may be missing where there are no bytes.
  void meet(const MemberCall& call, const std::vector<Part>& sends,
            const std::vector<Part>& receives);
  // A further phase of the same call.
  void follow(const std::vector<Part>& sends, const std::vector<Part>& receives);

  void send(const at::Tensor& tensor, int to, int tag);
  void receive(const at::Tensor& tensor, int from, int tag);

 private:
  using Clock = std::chrono::steady_clock;

  enum class Kind : uint8_t { kCall, kData, kMessage, kTaken, kRefused, kBye };
  struct Head {
    uint32_t magic = 0;
    Kind kind = Kind::kBye;
    int64_t bytes = 0;  // behind the head and the rows
    CallRecord record;
    Contents contents;
  };
  enum class Stage : uint8_t { kHead, kRows, kPayload, kHeld };
  struct Letter {
    Contents contents;
    std::vector<char> data;
  };
  struct Peer {
    explicit Peer(Descriptor connection) : link(std::move(connection)) {}

    Link link;
    bool left = false;
    // The frame that is being read.
    Stage stage = Stage::kHead;
    Head head;
    size_t filled = 0;
    std::vector<int64_t> rows;
    Spans target;  // of the payload; what is beyond it is thrown away
    std::unique_ptr<Letter> letter;
    bool direct = false;  // the payload goes to the tensor of a receive
    // What this member awaits.
    bool awaits_call = false;
    bool awaits_data = false;
    Spans expected;
    std::list<Letter> letters;  // put aside, in the order of their sends
    bool taken = false;
    std::string refused;
  };
  // The receive that this member is in.
  struct Wanted {
    int from = -1;
    Contents contents;
    char* data = nullptr;
    bool done = false;
    std::string error;
  };

  void check_usable() const;
  void wait(const std::function<bool()>& done, const std::function<std::string()>& what,
            bool reads_all);
  bool wants_to_read(const Peer& peer, bool reads_all) const;
  void pump(int index);
  bool read_into(Peer& peer, char* place, size_t bytes);
  void begin_frame(int index);
  void begin_call(Peer& peer);
  void begin_message(int index);
  void end_frame(int index);
  void resume_held();
  void deliver(Wanted& wanted, const Letter& letter);
  void queue_frame(int to, Head head, const std::vector<int64_t>& rows, const Spans& spans);
  void reply(int to, Kind kind, const std::string& text);
  void start_phase(const std::vector<Part>& receives, bool is_call);
  [[noreturn]] void lose(int index, const std::string& what);
  [[noreturn]] void give_up(const std::string& why);
  void break_off(const std::string& why);
  void look_for_interrupt();
  int size() const { return caller_.size(); }
  int rank() const { return caller_.rank(); }

  Caller caller_;
  const CommunicatorOptions options_;
  Watch& watch_;
  std::deque<Peer> peers_;
  MemberCall current_;  // for messages
  Wanted wanted_;
  std::string broken_;  // why nothing works any more
};

// Connects the members, which hand each other their addresses by `exchange`. Listens at the address
// `interface`.
std::unique_ptr<PeerLinks> connect_peers(const Caller& caller, Watch& watch,
                                         const Exchange& exchange,
                                         const CommunicatorOptions& options,
                                         const std::string& interface);

}  // namespace epl::comm

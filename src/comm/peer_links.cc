#include "comm/peer_links.h"

#include <poll.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace epl::comm {
namespace {

using std::chrono::milliseconds;

constexpr uint32_t kMeshMagic = 0x4d4c5045;  // "EPLM"
// How often a wait looks at the Watch.
constexpr milliseconds kLook{20};
constexpr milliseconds kGoodbye{1000};

}  // namespace

PeerLinks::PeerLinks(Caller caller, std::vector<Descriptor> links, Watch& watch,
                     CommunicatorOptions options)
    : caller_(std::move(caller)), options_(std::move(options)), watch_(watch) {
  for (Descriptor& link : links) peers_.emplace_back(std::move(link));
}

PeerLinks::~PeerLinks() {
  for (int index = 0; index < size(); ++index) {
    Peer& peer = peers_[static_cast<size_t>(index)];
    if (index == rank() || peer.link.closed()) continue;
    reply(index, Kind::kBye, "");
    peer.link.finish_writing();
  }
  for (Peer& peer : peers_) {
    if (peer.link.descriptor() >= 0) peer.link.finish(kGoodbye);
  }
}

// --- calls --------------------------------------------------------------------------------------

void PeerLinks::meet(const MemberCall& call, const std::vector<Part>& sends,
                     const std::vector<Part>& receives) {
  check_usable();
  current_ = call;
  start_phase(receives, true);
  std::vector<Spans> parts(peers_.size());
  for (const Part& part : sends) parts[static_cast<size_t>(part.peer)] = part.spans;
  for (int to = 0; to < size(); ++to) {
    if (to == rank()) continue;
    Head head;
    head.kind = Kind::kCall;
    head.record = call.record;
    queue_frame(to, head, call.rows, parts[static_cast<size_t>(to)]);
  }
  wait(
      [this] {
        return std::none_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
          return peer.awaits_call || peer.link.has_unsent();
        });
      },
      [this] { return describe_call(current_.view()); }, false);
  std::vector<CallView> views;
  for (const Peer& peer : peers_) views.push_back({&peer.head.record, peer.rows.data()});
  views[static_cast<size_t>(rank())] = call.view();
  check_agreement(caller_, views);
}

void PeerLinks::follow(const std::vector<Part>& sends, const std::vector<Part>& receives) {
  start_phase(receives, false);
  for (const Part& part : sends) {
    Head head;
    head.kind = Kind::kData;
    queue_frame(part.peer, head, {}, part.spans);
  }
  wait(
      [this] {
        return std::none_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
          return peer.awaits_data || peer.link.has_unsent();
        });
      },
      [this] { return describe_call(current_.view()); }, false);
}

void PeerLinks::start_phase(const std::vector<Part>& receives, bool is_call) {
  for (int index = 0; index < size(); ++index) {
    Peer& peer = peers_[static_cast<size_t>(index)];
    peer.expected.clear();
    peer.awaits_call = is_call && index != rank();
  }
  for (const Part& part : receives) {
    Peer& peer = peers_[static_cast<size_t>(part.peer)];
    peer.expected = part.spans;
    peer.awaits_data = !is_call;
  }
  resume_held();
}

void PeerLinks::send(const at::Tensor& tensor, int to, int tag) {
  check_usable();
  Head head;
  head.kind = Kind::kMessage;
  head.contents = caller_.message("send", tensor, to, tag);
  Peer& peer = peers_[static_cast<size_t>(to)];
  peer.taken = false;
  peer.refused.clear();
  queue_frame(to, head, {}, {{static_cast<char*>(tensor.data_ptr()), tensor.nbytes()}});
  resume_held();
  wait(
      [&] {
        if (!peer.taken && (peer.left || peer.link.closed()))
          lose(to, describe_message("send", head.contents));
        return peer.taken;
      },
      [&] { return concat(describe_message("send", head.contents), " to member ", to); }, true);
  if (!peer.refused.empty()) throw Error(peer.refused);
}

void PeerLinks::receive(const at::Tensor& tensor, int from, int tag) {
  check_usable();
  wanted_ = {from, caller_.message("receive", tensor, from, tag),
             static_cast<char*>(tensor.data_ptr()), false, ""};
  Peer& peer = peers_[static_cast<size_t>(from)];
  const auto aside = std::find_if(peer.letters.begin(), peer.letters.end(),
                                  [tag](const Letter& each) { return each.contents.tag == tag; });
  if (aside != peer.letters.end()) {
    deliver(wanted_, *aside);
    peer.letters.erase(aside);
  }
  resume_held();
  wait(
      [&] {
        if (!wanted_.done && (peer.left || peer.link.closed()))
          lose(from, describe_message("receive", wanted_.contents));
        return wanted_.done;
      },
      [&] { return concat(describe_message("receive", wanted_.contents), " from member ", from); },
      true);
  wanted_.from = -1;
  if (!wanted_.error.empty()) throw Error(wanted_.error);
}

void PeerLinks::deliver(Wanted& wanted, const Letter& letter) {
  wanted.done = true;
  if (letter.contents.matches(wanted.contents)) {
    std::copy(letter.data.begin(), letter.data.end(), wanted.data);
  } else {
    wanted.error =
        describe_mismatch(caller_.name(), wanted.from, letter.contents, rank(), wanted.contents);
  }
}

// --- waiting ------------------------------------------------------------------------------------

void PeerLinks::check_usable() const {
  watch_.check();
  if (options_.meanwhile) options_.meanwhile();
  if (!broken_.empty()) throw JobFailed(broken_);
}

bool PeerLinks::wants_to_read(const Peer& peer, bool reads_all) const {
  return !peer.link.closed() && peer.link.descriptor() >= 0 && peer.stage != Stage::kHeld &&
         (reads_all || peer.awaits_call || peer.awaits_data || peer.stage != Stage::kHead);
}

void PeerLinks::wait(const std::function<bool()>& done, const std::function<std::string()>& what,
                     bool reads_all) {
  const Clock::time_point end = Clock::now() + options_.deadline;
  std::vector<pollfd> waited;
  while (true) {
    waited.clear();
    for (int index = 0; index < size(); ++index) {
      Peer& peer = peers_[static_cast<size_t>(index)];
      peer.link.flush();
      if (wants_to_read(peer, reads_all)) pump(index);
      const bool gone = peer.link.closed() || peer.left;
      if ((peer.awaits_call || peer.awaits_data) && gone) lose(index, what());
    }
    if (done()) {
      for (Peer& peer : peers_) peer.link.flush();  // replies to messages that came meanwhile
      return;
    }
    for (const Peer& peer : peers_) {
      const bool reads = wants_to_read(peer, reads_all);
      const short events =
          static_cast<short>((reads ? POLLIN : 0) | (peer.link.has_unsent() ? POLLOUT : 0));
      if (events != 0) waited.push_back({peer.link.descriptor(), events, 0});
    }
    poll(waited.data(), waited.size(), static_cast<int>(kLook.count()));
    if (watch_.failed()) give_up("the job failed");
    look_for_interrupt();
    if (Clock::now() > end) {
      give_up(concat("member ", rank(), " of communicator \"", caller_.name(),
                     "\" waited for the others for longer than ", options_.deadline.count(),
                     " ms in ", what()));
    }
  }
}

// A connection that closed is often the consequence of something that the Watch is about to hear.
void PeerLinks::lose(int index, const std::string& what) {
  const bool left = peers_[static_cast<size_t>(index)].left;
  if (!left || watch_.has_judge()) watch_.await_cause();
  give_up(concat("member ", index, " of communicator \"", caller_.name(), "\" ",
                 left ? "has left" : "closed its connection", " while member ", rank(),
                 " waits for it in ", what));
}

void PeerLinks::look_for_interrupt() {
  try {
    if (options_.meanwhile) options_.meanwhile();
  } catch (const std::exception& interrupt) {
    break_off(interrupt.what());
    throw;
  }
}

// Nobody knows any more what lies in the connections.
void PeerLinks::break_off(const std::string& why) {
  broken_ = why;
  for (Peer& peer : peers_) peer.link.close();
}

void PeerLinks::give_up(const std::string& why) {
  break_off(why);
  watch_.check();
  throw JobFailed(why);
}

// --- frames -------------------------------------------------------------------------------------

void PeerLinks::queue_frame(int to, Head head, const std::vector<int64_t>& rows,
                            const Spans& spans) {
  head.magic = kMeshMagic;
  head.bytes = static_cast<int64_t>(bytes_of(spans));
  std::string text(sizeof(Head) + rows.size() * sizeof(int64_t), '\0');
  std::memcpy(text.data(), &head, sizeof(Head));
  if (!rows.empty()) {
    std::memcpy(text.data() + sizeof(Head), rows.data(), rows.size() * sizeof(int64_t));
  }
  peers_[static_cast<size_t>(to)].link.queue(std::move(text), spans);
}

// The frame owns its text.
void PeerLinks::reply(int to, Kind kind, const std::string& text) {
  Head head;
  head.magic = kMeshMagic;
  head.kind = kind;
  head.bytes = static_cast<int64_t>(text.size());
  std::string frame(sizeof(Head), '\0');
  std::memcpy(frame.data(), &head, sizeof(Head));
  peers_[static_cast<size_t>(to)].link.queue(frame + text, {});
}

bool PeerLinks::read_into(Peer& peer, char* place, size_t bytes) {
  peer.filled += peer.link.read(place + peer.filled, bytes - peer.filled);
  return peer.filled == bytes;
}

void PeerLinks::pump(int index) {
  Peer& peer = peers_[static_cast<size_t>(index)];
  while (!peer.link.closed()) {
    if (peer.stage == Stage::kHeld) return;
    if (peer.stage == Stage::kHead) {
      if (!read_into(peer, reinterpret_cast<char*>(&peer.head), sizeof(Head))) return;
      if (peer.head.magic != kMeshMagic) return peer.link.close();
      begin_frame(index);
    } else if (peer.stage == Stage::kRows) {
      char* place = reinterpret_cast<char*>(peer.rows.data());
      if (!read_into(peer, place, peer.rows.size() * sizeof(int64_t))) return;
      begin_call(peer);
    } else {
      std::array<char, 4096> nowhere;
      size_t before = 0;
      for (const Span& span : peer.target) {
        while (peer.filled < before + span.bytes) {
          const size_t count =
              peer.link.read(span.data + (peer.filled - before), before + span.bytes - peer.filled);
          if (count == 0) return;
          peer.filled += count;
        }
        before += span.bytes;
      }
      const auto bytes = static_cast<size_t>(peer.head.bytes);
      while (peer.filled < bytes) {
        const size_t count =
            peer.link.read(nowhere.data(), std::min(nowhere.size(), bytes - peer.filled));
        if (count == 0) return;
        peer.filled += count;
      }
      end_frame(index);
      const bool expected = peer.head.kind == Kind::kCall || peer.head.kind == Kind::kData;
      if (expected) return;
    }
  }
}

// Holds what belongs to a later phase until this member gets there.
void PeerLinks::begin_frame(int index) {
  Peer& peer = peers_[static_cast<size_t>(index)];
  peer.filled = 0;
  peer.target.clear();
  switch (peer.head.kind) {
    case Kind::kCall:
      peer.stage = peer.awaits_call ? Stage::kRows : Stage::kHeld;
      if (peer.awaits_call) peer.rows.resize(static_cast<size_t>(peer.head.record.row_count));
      return;
    case Kind::kData:
      peer.stage = peer.awaits_data ? Stage::kPayload : Stage::kHeld;
      peer.target = peer.expected;
      return;
    case Kind::kMessage:
      peer.stage = Stage::kPayload;
      return begin_message(index);
    case Kind::kRefused:
      peer.stage = Stage::kPayload;
      peer.refused.resize(static_cast<size_t>(peer.head.bytes));
      peer.target = {{peer.refused.data(), peer.refused.size()}};
      return;
    case Kind::kTaken:
    case Kind::kBye:
      peer.stage = Stage::kPayload;
      return;
  }
  peer.link.close();
}

// What does not fit is thrown away: check_agreement() says why.
void PeerLinks::begin_call(Peer& peer) {
  peer.filled = 0;
  peer.stage = Stage::kPayload;
  if (static_cast<size_t>(peer.head.bytes) == bytes_of(peer.expected)) peer.target = peer.expected;
}

void PeerLinks::begin_message(int index) {
  Peer& peer = peers_[static_cast<size_t>(index)];
  peer.direct = wanted_.from == index && !wanted_.done &&
                wanted_.contents.tag == peer.head.contents.tag &&
                wanted_.contents.matches(peer.head.contents);
  if (peer.direct) {
    peer.target = {{wanted_.data, static_cast<size_t>(peer.head.bytes)}};
    return;
  }
  peer.letter = std::make_unique<Letter>(
      Letter{peer.head.contents, std::vector<char>(static_cast<size_t>(peer.head.bytes))});
  peer.target = {{peer.letter->data.data(), peer.letter->data.size()}};
}

void PeerLinks::end_frame(int index) {
  Peer& peer = peers_[static_cast<size_t>(index)];
  peer.filled = 0;
  peer.stage = Stage::kHead;
  switch (peer.head.kind) {
    case Kind::kCall:
      peer.awaits_call = false;
      return;
    case Kind::kData:
      peer.awaits_data = false;
      return;
    case Kind::kTaken:
    case Kind::kRefused:
      peer.taken = true;
      return;
    case Kind::kBye:
      peer.left = true;
      return;
    case Kind::kMessage:
      break;
  }
  std::string refusal;
  if (peer.direct) {
    wanted_.done = true;
  } else if (wanted_.from == index && !wanted_.done &&
             wanted_.contents.tag == peer.letter->contents.tag) {
    deliver(wanted_, *peer.letter);
    refusal = wanted_.error;
  } else {
    peer.letters.push_back(std::move(*peer.letter));
  }
  peer.letter.reset();
  reply(index, refusal.empty() ? Kind::kTaken : Kind::kRefused, refusal);
}

void PeerLinks::resume_held() {
  for (int index = 0; index < size(); ++index) {
    if (peers_[static_cast<size_t>(index)].stage == Stage::kHeld) begin_frame(index);
  }
}

}  // namespace epl::comm

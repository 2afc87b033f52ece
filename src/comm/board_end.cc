#include "comm/board_end.h"

#include <algorithm>
#include <optional>

#include "base/check.h"

namespace epl::comm {

BoardEnd::BoardEnd(int rank, int size, Watch& watch, const Exchange& exchange,
                   const CommunicatorOptions& options)
    : caller_(rank, size, options.name),
      waiting_(watch, options.deadline, size, options.meanwhile),
      segment_(options.name, rank, SharedBoard::bytes(size), exchange),
      board_(segment_.data(), size) {
  for (int member = 0; member < size; ++member) {
    writers_.emplace_back(board_.channel(rank, member));
    readers_.emplace_back(board_.channel(member, rank));
  }
}

BoardEnd::~BoardEnd() {
  if (broken_.empty()) leave(SharedSeat::kLeft);
}

// --- failures ----------------------------------------------------------------------------------

void BoardEnd::throw_if_broken() const {
  waiting_.check();
  if (broken_.empty()) return;
  throw JobFailed(concat("communicator \"", caller_.name(),
                         "\" is no longer whole, since a call of it was given up: ", broken_));
}

void BoardEnd::give_up(const std::string& why) {
  broken_ = why;
  leave(SharedSeat::kGaveUp);
}

void BoardEnd::leave(SharedSeat::State state) {
  mine().state.store(state, std::memory_order_seq_cst);
  for (int member = 0; member < caller_.size(); ++member) board_.seat(member).bell.ring();
}

template <typename Ready>
void BoardEnd::throw_if_gone(int member, const Ready& ready) const {
  const uint32_t state = board_.seat(member).state.load(std::memory_order_seq_cst);
  if (state == SharedSeat::kHere || ready()) return;
  if (waiting_.watch().has_judge()) waiting_.watch().await_cause();
  waiting_.watch().check();
  throw JobFailed(concat("member ", member, " of communicator \"", caller_.name(), "\" has ",
                         state == SharedSeat::kLeft ? "left" : "given up a call", ", while member ",
                         caller_.rank(), " waits for it"));
}

// --- rounds ------------------------------------------------------------------------------------

void BoardEnd::publish(const MemberCall& call) {
  EPL_ASSERT(call.record.row_count <= board_.row_limit(), "a record has at most two rows a member");
  board_.record(caller_.rank(), first_) = call.record;
  std::copy(call.rows.begin(), call.rows.end(), board_.rows(caller_.rank(), first_));
}

// Members that disagree have all offered one round, and nothing else. Whoever throws says first
// that it has read the records, so that all of them can go on.
void BoardEnd::compare_calls(const MemberCall& call) {
  std::vector<CallView> views;
  views.reserve(static_cast<size_t>(caller_.size()));
  for (int member = 0; member < caller_.size(); ++member) {
    views.push_back({&board_.record(member, first_), board_.rows(member, first_)});
  }
  try {
    check_agreement(caller_, views);
  } catch (const Error&) {
    count_up(&SharedSeat::consumed);
    wait_for_all(&SharedSeat::consumed, first_ + 1, call);
    throw;
  }
}

void BoardEnd::count_up(std::atomic<uint64_t> SharedSeat::*counter) {
  std::atomic<uint64_t>& count = mine().*counter;
  count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
  for (int member = 0; member < caller_.size(); ++member) {
    if (member != caller_.rank()) board_.seat(member).bell.ring();
  }
}

void BoardEnd::wait_for_all(std::atomic<uint64_t> SharedSeat::*counter, uint64_t wanted,
                            const MemberCall& call) {
  for (int member = 0; member < caller_.size(); ++member) {
    const std::atomic<uint64_t>& theirs = board_.seat(member).*counter;
    const auto ready = [&] { return theirs.load(std::memory_order_seq_cst) >= wanted; };
    waiting_.until(
        mine().bell, ready,
        [&] {
          throw_if_gone(member, ready);
          put_messages_aside();
        },
        [&] {
          return concat("communicator \"", caller_.name(), "\": member ", member,
                        " did not come within ", waiting_.deadline().count(), " ms to ",
                        describe_call(call.view()), ", where member ", caller_.rank(),
                        " waits (round ", wanted, "; member ", member, " is at ",
                        theirs.load(std::memory_order_seq_cst), ")");
        });
  }
}

// --- messages ----------------------------------------------------------------------------------

// A sender may be unable to go on before its message is out of its hands.
void BoardEnd::put_messages_aside() {
  for (int member = 0; member < caller_.size(); ++member) {
    ChannelReader& reader = readers_[static_cast<size_t>(member)];
    reader.put_aside();
    if (reader.moved()) board_.seat(member).bell.ring();
  }
}

template <typename Ready>
void BoardEnd::wait_for_message(const Ready& ready, int peer, const char* call,
                                const Contents& contents) {
  // A message that was taken is not there to be taken again.
  bool done = false;
  const auto ready_once = [&] { return done || (done = ready()); };
  waiting_.until(
      mine().bell, ready_once,
      [&] {
        throw_if_gone(peer, ready_once);
        put_messages_aside();
      },
      [&] {
        return concat("communicator \"", caller_.name(), "\": member ", peer,
                      " did not answer within ", waiting_.deadline().count(), " ms to the ",
                      describe_message(call, contents), " of member ", caller_.rank());
      });
}

void BoardEnd::send(const at::Tensor& tensor, int to, int tag) {
  const Contents contents = caller_.message("send", tensor, to, tag);
  ChannelWriter& writer = writers_[static_cast<size_t>(to)];
  guard([&] {
    writer.begin(contents, tensor.data_ptr());
    const auto ready = [&] {
      const bool done = writer.advance();
      if (writer.moved()) board_.seat(to).bell.ring();
      return done;
    };
    wait_for_message(ready, to, "send", contents);
  });
  const auto wanted = writer.refused();
  EPL_CHECK(!wanted, describe_mismatch(caller_.name(), caller_.rank(), contents, to, *wanted));
}

void BoardEnd::receive(const at::Tensor& tensor, int from, int tag) {
  const Contents expected = caller_.message("receive", tensor, from, tag);
  ChannelReader& reader = readers_[static_cast<size_t>(from)];
  std::optional<Contents> sent;
  guard([&] {
    const auto ready = [&] {
      const bool done = reader.take(expected, tensor.data_ptr(), &sent);
      if (reader.moved()) board_.seat(from).bell.ring();
      return done;
    };
    wait_for_message(ready, from, "receive", expected);
  });
  EPL_CHECK(!sent, describe_mismatch(caller_.name(), from, *sent, caller_.rank(), expected));
}

}  // namespace epl::comm

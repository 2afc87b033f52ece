// BoardEnd: one member's end of a SharedBoard. It meets the others in rounds, sends and receives
// messages, and knows when it was given up.
//
//   end.run(call, [&] { return 4; },                  // rounds; asked once the calls were compared
//           [&](int64_t round) { ...fill end.offer(rank, round)... },
//           [&](int64_t round) { ...use end.offer(member, round) of the others... });
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/call.h"
#include "comm/channel.h"
#include "comm/communicator.h"
#include "comm/segment.h"
#include "comm/shared_board.h"
#include "comm/waiting.h"

namespace epl::comm {

class BoardEnd {
 public:
  BoardEnd(int rank, int size, Watch& watch, const Exchange& exchange,
           const CommunicatorOptions& options);
  ~BoardEnd();
  BoardEnd(const BoardEnd&) = delete;
  BoardEnd& operator=(const BoardEnd&) = delete;

  const Caller& caller() const { return caller_; }
  void set_about(int64_t about) { caller_.set_about(about); }
  Watch& watch() const { return waiting_.watch(); }

  // In step k a member offers round k, consumes round k - 1 and, where there is something to
  // collect, collects round k - 2: members seldom wait for each other.
  template <typename Count, typename Offer, typename Consume, typename Collect>
  void run(const MemberCall& call, const Count& count, const Offer& offer, const Consume& consume,
           const Collect& collect) {
    guard([&] { run_rounds(call, count, offer, consume, collect); });
  }
  template <typename Count, typename Offer, typename Consume>
  void run(const MemberCall& call, const Count& count, const Offer& offer, const Consume& consume) {
    run(call, count, offer, consume, Nothing());
  }
  // One round in which the members only meet.
  void meet(const MemberCall& call) {
    run(
        call, [] { return 1; }, Nothing(), Nothing());
  }

  // Of a round of the call that runs.
  char* offer(int member, int64_t round) const {
    return board_.offer(member, first_ + static_cast<uint64_t>(round));
  }
  char* result(int member, int64_t round) const {
    return board_.result(member, first_ + static_cast<uint64_t>(round));
  }
  const int64_t* rows(int member) const { return board_.rows(member, first_); }

  void send(const at::Tensor& tensor, int to, int tag);
  void receive(const at::Tensor& tensor, int from, int tag);

 private:
  struct Nothing {
    void operator()(int64_t) const {}
  };

  template <typename Count, typename Offer, typename Consume, typename Collect>
  void run_rounds(const MemberCall& call, const Count& count, const Offer& offer,
                  const Consume& consume, const Collect& collect);
  void publish(const MemberCall& call);
  void compare_calls(const MemberCall& call);
  void count_up(std::atomic<uint64_t> SharedSeat::*counter);
  void wait_for_all(std::atomic<uint64_t> SharedSeat::*counter, uint64_t wanted,
                    const MemberCall& call);

  template <typename Body>
  void guard(const Body& body);
  void throw_if_broken() const;
  void give_up(const std::string& why);
  void leave(SharedSeat::State state);

  template <typename Ready>
  void throw_if_gone(int member, const Ready& ready) const;
  void put_messages_aside();
  template <typename Ready>
  void wait_for_message(const Ready& ready, int peer, const char* call, const Contents& contents);

  SharedSeat& mine() const { return board_.seat(caller_.rank()); }

  Caller caller_;
  const Waiting waiting_;
  const Segment segment_;
  const SharedBoard board_;
  std::vector<ChannelWriter> writers_;  // to each member
  std::vector<ChannelReader> readers_;  // from each member
  uint64_t first_ = 0;                  // round of the call that runs
  std::string broken_;                  // why this end was given up
};

// A call that was given up leaves the counters where they are: nobody can go on from there.
template <typename Body>
void BoardEnd::guard(const Body& body) {
  throw_if_broken();
  try {
    body();
  } catch (const JobFailed& failure) {
    give_up(failure.what());
    throw;
  } catch (const Error&) {
    throw;  // all members have seen that their calls differ
  } catch (const std::exception& interrupt) {
    give_up(interrupt.what());
    throw;
  }
}

// A buffer is used again after three rounds:
//   offers   when all have consumed them, which is waited for;
//   results  when all have collected them: whoever offered round k has collected round k - 3.
template <typename Count, typename Offer, typename Consume, typename Collect>
void BoardEnd::run_rounds(const MemberCall& call, const Count& count, const Offer& offer,
                          const Consume& consume, const Collect& collect) {
  constexpr auto kOffered = &SharedSeat::offered, kConsumed = &SharedSeat::consumed;
  constexpr bool kCollects = !std::is_same_v<Collect, Nothing>;
  first_ = mine().offered.load(std::memory_order_relaxed);
  int64_t rounds = 1;
  for (int64_t step = 0; step < rounds + (kCollects ? 2 : 1); ++step) {
    const uint64_t number = first_ + static_cast<uint64_t>(step);
    if (step < rounds) {
      if (number >= SharedBoard::kBuffers)
        wait_for_all(kConsumed, number - SharedBoard::kBuffers + 1, call);
      if (step == 0) publish(call);
      offer(step);
      count_up(kOffered);
    }
    if (step == 0) {
      wait_for_all(kOffered, number + 1, call);
      compare_calls(call);
      rounds = count();
    } else if (step <= rounds) {
      wait_for_all(kOffered, number, call);
      consume(step - 1);
      count_up(kConsumed);
    }
    if constexpr (kCollects) {
      if (step < 2) continue;
      wait_for_all(kConsumed, number - 1, call);
      collect(step - 2);
    }
  }
}

}  // namespace epl::comm

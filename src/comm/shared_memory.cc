// The processes of one host. What they cannot read of each other goes through shared memory in
// rounds (stage.h).
#include <ATen/ops/zeros.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <optional>

#include "base/check.h"
#include "comm/call.h"
#include "comm/communicator.h"
#include "comm/reduce_kernels.h"
#include "comm/segment.h"
#include "comm/stage.h"
#include "comm/strip.h"
#include "comm/waiting.h"

namespace epl {
namespace {

// Up to this size every member sums all elements itself: one meeting instead of two. Between two
// members that is as little work as sharing it, at any size.
constexpr int64_t kSumAlone = 16 * 1024;

struct Nothing {
  void operator()(int64_t) const {}
};

class SharedMemoryCommunicator final : public Communicator {
 public:
  SharedMemoryCommunicator(int rank, int size, Watch& watch, const Exchange& exchange,
                           const CommunicatorOptions& options)
      : options_(options),
        caller_(rank, size, options.name),
        waiting_(watch, options.deadline, size),
        segment_(options.name, rank, Stage::bytes(size), exchange),
        stage_(segment_.data(), size) {
    for (int member = 0; member < size; ++member) {
      writers_.emplace_back(stage_.channel(rank, member));
      readers_.emplace_back(stage_.channel(member, rank));
    }
  }

  ~SharedMemoryCommunicator() override {
    if (broken_.empty()) leave(SharedSeat::kLeft);
  }

  int rank() const override { return caller_.rank(); }
  int size() const override { return caller_.size(); }
  const CommunicatorOptions& options() const override { return options_; }

  void all_reduce(const std::vector<at::Tensor>& tensors, ReduceOp op) override;
  void broadcast(const std::vector<at::Tensor>& tensors, int root) override;
  void reduce(const std::vector<at::Tensor>& tensors, ReduceOp op, int root) override;
  void reduce_scatter(const at::Tensor& whole, const at::Tensor& part,
                      const std::vector<int64_t>& rows, ReduceOp op) override;
  void all_gather(const at::Tensor& part, const at::Tensor& whole,
                  const std::vector<int64_t>& rows) override;
  void all_to_all(const at::Tensor& input, const at::Tensor& output,
                  const std::vector<int64_t>& rows_to,
                  const std::vector<int64_t>& rows_from) override;
  void send(const at::Tensor& tensor, int to, int tag) override;
  void receive(const at::Tensor& tensor, int from, int tag) override;
  void barrier() override { run(caller_.barrier(), one_round, Nothing(), Nothing()); }
  std::unique_ptr<Communicator> group(const std::vector<int>& ranks) override;

 private:
  static int64_t one_round() { return 1; }

  // --- rounds
  template <typename Count, typename Offer, typename Consume>
  void run(const Call& call, const Count& count, const Offer& offer, const Consume& consume) {
    guard([&] { run_rounds<false>(call, count, offer, consume, Nothing()); });
  }
  template <typename Count, typename Offer, typename Consume, typename Collect>
  void run(const Call& call, const Count& count, const Offer& offer, const Consume& consume,
           const Collect& collect) {
    guard([&] { run_rounds<true>(call, count, offer, consume, collect); });
  }
  template <bool kCollects, typename Count, typename Offer, typename Consume, typename Collect>
  void run_rounds(const Call& call, const Count& count, const Offer& offer, const Consume& consume,
                  const Collect& collect);
  void publish(const Call& call);
  void compare_calls(const Call& call);
  void count_up(std::atomic<uint64_t> SharedSeat::*counter);
  void wait_for_all(std::atomic<uint64_t> SharedSeat::*counter, uint64_t wanted, const Call& call);

  // Buffers of a round of the call that runs.
  char* offer_of(int member, int64_t round) const {
    return stage_.offer(member, first_ + static_cast<uint64_t>(round));
  }
  char* result_of(int member, int64_t round) const {
    return stage_.result(member, first_ + static_cast<uint64_t>(round));
  }
  static ByteRange piece(int64_t bytes, int64_t round, int64_t piece_bytes) {
    const int64_t begin = std::min(bytes, round * piece_bytes);
    return {begin, std::min(bytes, begin + piece_bytes)};
  }
  static int64_t pieces(int64_t bytes, int64_t piece_bytes) {
    return std::max<int64_t>(1, (bytes + piece_bytes - 1) / piece_bytes);
  }
  // What a member offers to each of the others in one round.
  int64_t private_piece() const { return Stage::kChunk / size() / 64 * 64; }

  // The piece of a strip that belongs to a round: copied to this member's offer, and replaced by
  // the sum of all members' pieces.
  void offer_strip(const Strip& strip, int64_t round) const;
  void sum_strip(const CallRecord& record, const Strip& strip, int64_t round) const;
  void all_reduce_shared(const Call& call, const Strip& strip);
  void sum_offers(const CallRecord& record, int64_t round, int64_t offset, int64_t bytes,
                  const char* mine, std::initializer_list<void*> targets) const;

  // --- failures
  template <typename Body>
  void guard(const Body& body);
  void leave(SharedSeat::State state);
  template <typename Ready>
  void throw_if_gone(int member, const Ready& ready) const;
  void put_messages_aside();
  template <typename Ready>
  void wait_for_message(const Ready& ready, int peer, const char* call, const Contents& contents);

  const CommunicatorOptions options_;
  const Caller caller_;
  const Waiting waiting_;
  const Segment segment_;
  const Stage stage_;
  std::vector<ChannelWriter> writers_;
  std::vector<ChannelReader> readers_;
  uint64_t first_ = 0;  // round of the call that runs
  std::string broken_;  // why this end was given up
};

// --- rounds ------------------------------------------------------------------------------------

// In step k a member offers round k, consumes round k - 1 and collects round k - 2, so that members
// seldom wait for each other. Before it consumes, the calls of all members are compared; count() is
// asked after that. A buffer is used again after three rounds:
//   offers   when all have consumed them, which is waited for;
//   results  when all have collected them: whoever offered round k has collected round k - 3.
template <bool kCollects, typename Count, typename Offer, typename Consume, typename Collect>
void SharedMemoryCommunicator::run_rounds(const Call& call, const Count& count, const Offer& offer,
                                          const Consume& consume, const Collect& collect) {
  constexpr auto kOffered = &SharedSeat::offered, kConsumed = &SharedSeat::consumed;
  constexpr int64_t kLag = kCollects ? 2 : 1;
  first_ = stage_.seat(rank()).offered.load(std::memory_order_relaxed);
  int64_t rounds = 1;
  for (int64_t step = 0; step < rounds + kLag; ++step) {
    const uint64_t number = first_ + static_cast<uint64_t>(step);
    if (step < rounds) {
      if (number >= Stage::kBuffers) wait_for_all(kConsumed, number - Stage::kBuffers + 1, call);
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

void SharedMemoryCommunicator::publish(const Call& call) {
  EPL_ASSERT(call.record.row_count <= stage_.row_limit(), "a record has at most two rows a member");
  stage_.record(rank(), first_) = call.record;
  std::copy(call.rows.begin(), call.rows.end(), stage_.rows(rank(), first_));
}

// Members that disagree have all offered one round, and nothing else. Whoever throws says first
// that it has read the records, so that all of them can go on.
void SharedMemoryCommunicator::compare_calls(const Call& call) {
  std::vector<CallView> views;
  views.reserve(static_cast<size_t>(size()));
  for (int member = 0; member < size(); ++member) {
    views.push_back({&stage_.record(member, first_), stage_.rows(member, first_)});
  }
  try {
    check_agreement(caller_, views);
  } catch (const Error&) {
    count_up(&SharedSeat::consumed);
    wait_for_all(&SharedSeat::consumed, first_ + 1, call);
    throw;
  }
}

void SharedMemoryCommunicator::count_up(std::atomic<uint64_t> SharedSeat::*counter) {
  std::atomic<uint64_t>& mine = stage_.seat(rank()).*counter;
  mine.store(mine.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
  for (int member = 0; member < size(); ++member) {
    if (member != rank()) stage_.seat(member).bell.ring();
  }
}

void SharedMemoryCommunicator::wait_for_all(std::atomic<uint64_t> SharedSeat::*counter,
                                            uint64_t wanted, const Call& call) {
  for (int member = 0; member < size(); ++member) {
    const std::atomic<uint64_t>& theirs = stage_.seat(member).*counter;
    const auto ready = [&] { return theirs.load(std::memory_order_seq_cst) >= wanted; };
    waiting_.until(
        stage_.seat(rank()).bell, ready,
        [&] {
          throw_if_gone(member, ready);
          put_messages_aside();
        },
        [&] {
          return concat("communicator \"", options_.name, "\": member ", member,
                        " did not come within ", options_.deadline.count(), " ms to ",
                        describe_call(call.view()), ", where member ", rank(), " waits (round ",
                        wanted, "; member ", member, " is at ",
                        theirs.load(std::memory_order_seq_cst), ")");
        });
  }
}

// --- operations --------------------------------------------------------------------------------

// Sums what all members have at `offset` of their offers, this one at `mine`.
void SharedMemoryCommunicator::sum_offers(const CallRecord& record, int64_t round, int64_t offset,
                                          int64_t bytes, const char* mine,
                                          std::initializer_list<void*> targets) const {
  c10::SmallVector<const void*, 16> sources;
  for (int member = 0; member < size(); ++member) {
    sources.push_back(member == rank() ? mine : offer_of(member, round) + offset);
  }
  reduce_elements(record.type, record.op, sources.data(), size(), targets.begin(),
                  static_cast<int>(targets.size()),
                  bytes / static_cast<int64_t>(c10::elementSize(record.type)));
}

void SharedMemoryCommunicator::offer_strip(const Strip& strip, int64_t round) const {
  const ByteRange range = piece(strip.bytes(), round, Stage::kChunk);
  char* offer = offer_of(rank(), round);
  strip.each(range.begin, range.end, [&](char* data, int64_t bytes, int64_t offset) {
    std::memcpy(offer + offset, data, static_cast<size_t>(bytes));
  });
}

void SharedMemoryCommunicator::sum_strip(const CallRecord& record, const Strip& strip,
                                         int64_t round) const {
  const ByteRange range = piece(strip.bytes(), round, Stage::kChunk);
  strip.each(range.begin, range.end, [&](char* data, int64_t bytes, int64_t offset) {
    sum_offers(record, round, offset, bytes, data, {data});
  });
}

void SharedMemoryCommunicator::all_reduce(const std::vector<at::Tensor>& tensors, ReduceOp op) {
  const Call call = caller_.all_reduce(tensors, op);
  const Strip strip(tensors);
  if (size() > 2 && strip.bytes() > kSumAlone) return all_reduce_shared(call, strip);
  run(
      call, [&] { return pieces(strip.bytes(), Stage::kChunk); },
      [&](int64_t round) { offer_strip(strip, round); },
      [&](int64_t round) { sum_strip(call.record, strip, round); });
}

// Each member sums its share of the round and hands the result to all.
void SharedMemoryCommunicator::all_reduce_shared(const Call& call, const Strip& strip) {
  // Calls f(data, bytes, offset in the round, offset in the share).
  const auto each_of_share = [&](int64_t round, int member, const auto& f) {
    const ByteRange range = piece(strip.bytes(), round, Stage::kChunk);
    const ByteRange share = share_of(range.end - range.begin, member, size());
    strip.each(range.begin + share.begin, range.begin + share.end,
               [&](char* data, int64_t bytes, int64_t offset) {
                 f(data, bytes, share.begin + offset, offset);
               });
  };
  run(
      call, [&] { return pieces(strip.bytes(), Stage::kChunk); },
      [&](int64_t round) {
        char* offer = offer_of(rank(), round);
        for (int member = 0; member < size(); ++member) {
          if (member == rank()) continue;
          each_of_share(round, member, [&](char* data, int64_t bytes, int64_t offset, int64_t) {
            std::memcpy(offer + offset, data, static_cast<size_t>(bytes));
          });
        }
      },
      [&](int64_t round) {
        char* result = result_of(rank(), round);
        each_of_share(round, rank(), [&](char* data, int64_t bytes, int64_t offset, int64_t place) {
          sum_offers(call.record, round, offset, bytes, data, {data, result + place});
        });
      },
      [&](int64_t round) {
        for (int member = 0; member < size(); ++member) {
          if (member == rank()) continue;
          const char* result = result_of(member, round);
          each_of_share(round, member, [&](char* data, int64_t bytes, int64_t, int64_t place) {
            std::memcpy(data, result + place, static_cast<size_t>(bytes));
          });
        }
      });
}

void SharedMemoryCommunicator::reduce(const std::vector<at::Tensor>& tensors, ReduceOp op,
                                      int root) {
  const Call call = caller_.reduce(tensors, op, root);
  const Strip strip(tensors);
  run(
      call, [&] { return pieces(strip.bytes(), Stage::kChunk); },
      [&](int64_t round) {
        if (rank() != root) offer_strip(strip, round);
      },
      [&](int64_t round) {
        if (rank() == root) sum_strip(call.record, strip, round);
      });
}

void SharedMemoryCommunicator::broadcast(const std::vector<at::Tensor>& tensors, int root) {
  const Call call = caller_.broadcast(tensors, root);
  const Strip strip(tensors);
  run(
      call, [&] { return pieces(strip.bytes(), Stage::kChunk); },
      [&](int64_t round) {
        if (rank() == root) offer_strip(strip, round);
      },
      [&](int64_t round) {
        if (rank() == root) return;
        const ByteRange range = piece(strip.bytes(), round, Stage::kChunk);
        const char* offer = offer_of(root, round);
        strip.each(range.begin, range.end, [&](char* data, int64_t bytes, int64_t offset) {
          std::memcpy(data, offer + offset, static_cast<size_t>(bytes));
        });
      });
}

void SharedMemoryCommunicator::reduce_scatter(const at::Tensor& whole, const at::Tensor& part,
                                              const std::vector<int64_t>& rows, ReduceOp op) {
  const Call call = caller_.reduce_scatter(whole, part, rows, op);
  const int64_t piece_bytes = private_piece();
  const Parts parts(whole, rows, call.row_bytes());
  run(
      call, [&] { return pieces(parts.largest(), piece_bytes); },
      [&](int64_t round) {
        for (int member = 0; member < size(); ++member) {
          if (member == rank()) continue;
          const ByteRange range = piece(parts.bytes(member), round, piece_bytes);
          copy_bytes(offer_of(rank(), round) + member * piece_bytes,
                     parts.data(member) + range.begin, range.end - range.begin);
        }
      },
      [&](int64_t round) {
        const ByteRange range = piece(parts.bytes(rank()), round, piece_bytes);
        sum_offers(call.record, round, rank() * piece_bytes, range.end - range.begin,
                   parts.data(rank()) + range.begin,
                   {static_cast<char*>(part.data_ptr()) + range.begin});
      });
}

void SharedMemoryCommunicator::all_gather(const at::Tensor& part, const at::Tensor& whole,
                                          const std::vector<int64_t>& rows) {
  const Call call = caller_.all_gather(part, whole, rows);
  const Parts parts(whole, rows, call.row_bytes());
  const char* mine = static_cast<char*>(part.data_ptr());
  run(
      call, [&] { return pieces(parts.largest(), Stage::kChunk); },
      [&](int64_t round) {
        const ByteRange range = piece(parts.bytes(rank()), round, Stage::kChunk);
        copy_bytes(offer_of(rank(), round), mine + range.begin, range.end - range.begin);
      },
      [&](int64_t round) {
        for (int member = 0; member < size(); ++member) {
          const ByteRange range = piece(parts.bytes(member), round, Stage::kChunk);
          const char* from = member == rank() ? mine + range.begin : offer_of(member, round);
          copy_bytes(parts.data(member) + range.begin, from, range.end - range.begin);
        }
      });
}

void SharedMemoryCommunicator::all_to_all(const at::Tensor& input, const at::Tensor& output,
                                          const std::vector<int64_t>& rows_to,
                                          const std::vector<int64_t>& rows_from) {
  const Call call = caller_.all_to_all(input, output, rows_to, rows_from);
  const int64_t piece_bytes = private_piece();
  const Parts to(input, rows_to, call.row_bytes()), from(output, rows_from, call.row_bytes());
  // All members must make as many rounds: the longest message between any two of them counts.
  const auto rounds = [&] {
    int64_t most = 0;
    for (int member = 0; member < size(); ++member) {
      const int64_t* rows = stage_.rows(member, first_);
      most = std::max(most, *std::max_element(rows, rows + size()));
    }
    return pieces(most * call.row_bytes(), piece_bytes);
  };
  run(
      call, rounds,
      [&](int64_t round) {
        for (int member = 0; member < size(); ++member) {
          if (member == rank()) continue;
          const ByteRange range = piece(to.bytes(member), round, piece_bytes);
          copy_bytes(offer_of(rank(), round) + member * piece_bytes, to.data(member) + range.begin,
                     range.end - range.begin);
        }
      },
      [&](int64_t round) {
        for (int member = 0; member < size(); ++member) {
          const ByteRange range = piece(from.bytes(member), round, piece_bytes);
          const char* source = member == rank() ? to.data(member) + range.begin
                                                : offer_of(member, round) + rank() * piece_bytes;
          copy_bytes(from.data(member) + range.begin, source, range.end - range.begin);
        }
      });
}

// --- messages ----------------------------------------------------------------------------------

// A sender may be unable to go on before its message is out of its hands.
void SharedMemoryCommunicator::put_messages_aside() {
  for (int member = 0; member < size(); ++member) {
    ChannelReader& reader = readers_[static_cast<size_t>(member)];
    reader.put_aside();
    if (reader.moved()) stage_.seat(member).bell.ring();
  }
}

template <typename Ready>
void SharedMemoryCommunicator::wait_for_message(const Ready& ready, int peer, const char* call,
                                                const Contents& contents) {
  // A message that was taken is not there to be taken again.
  bool done = false;
  const auto ready_once = [&] { return done || (done = ready()); };
  waiting_.until(
      stage_.seat(rank()).bell, ready_once,
      [&] {
        throw_if_gone(peer, ready_once);
        put_messages_aside();
      },
      [&] {
        return concat("communicator \"", options_.name, "\": member ", peer,
                      " did not answer within ", options_.deadline.count(), " ms to the ",
                      describe_message(call, contents), " of member ", rank());
      });
}

void SharedMemoryCommunicator::send(const at::Tensor& tensor, int to, int tag) {
  const Contents contents = caller_.message("send", tensor, to, tag);
  ChannelWriter& writer = writers_[static_cast<size_t>(to)];
  guard([&] {
    writer.begin(contents, tensor.data_ptr());
    const auto ready = [&] {
      const bool done = writer.advance();
      if (writer.moved()) stage_.seat(to).bell.ring();
      return done;
    };
    wait_for_message(ready, to, "send", contents);
  });
  const auto wanted = writer.refused();
  EPL_CHECK(!wanted, describe_mismatch(options_.name, rank(), contents, to, *wanted));
}

void SharedMemoryCommunicator::receive(const at::Tensor& tensor, int from, int tag) {
  const Contents expected = caller_.message("receive", tensor, from, tag);
  ChannelReader& reader = readers_[static_cast<size_t>(from)];
  std::optional<Contents> sent;
  guard([&] {
    const auto ready = [&] {
      const bool done = reader.take(expected, tensor.data_ptr(), &sent);
      if (reader.moved()) stage_.seat(from).bell.ring();
      return done;
    };
    wait_for_message(ready, from, "receive", expected);
  });
  EPL_CHECK(!sent, describe_mismatch(options_.name, from, *sent, rank(), expected));
}

// --- groups ------------------------------------------------------------------------------------

std::unique_ptr<Communicator> SharedMemoryCommunicator::group(const std::vector<int>& ranks) {
  run(caller_.group(ranks), one_round, Nothing(), Nothing());
  constexpr int64_t kText = 1024;
  const std::vector<int64_t> rows(static_cast<size_t>(size()), 1);
  const Exchange exchange = [&](const std::string& mine) {
    const at::Tensor text = at::zeros({1, kText}, at::kByte);
    const at::Tensor texts = at::zeros({size(), kText}, at::kByte);
    std::strncpy(static_cast<char*>(text.data_ptr()), mine.c_str(), kText - 1);
    all_gather(text, texts, rows);
    std::vector<std::string> all;
    for (const int member : ranks) {
      all.emplace_back(static_cast<const char*>(texts.data_ptr()) + member * kText);
    }
    return all;
  };
  const auto found = std::find(ranks.begin(), ranks.end(), rank());
  if (found == ranks.end()) {
    for (int i = 0; i < Segment::kExchanges; ++i) exchange("");
    return nullptr;
  }
  CommunicatorOptions options = options_;
  options.name += " [" + join(ranks, ", ") + "]";
  return std::make_unique<SharedMemoryCommunicator>(static_cast<int>(found - ranks.begin()),
                                                    static_cast<int>(ranks.size()),
                                                    waiting_.watch(), exchange, options);
}

// --- failures ----------------------------------------------------------------------------------

// A call that was given up leaves the counters where they are: nobody can go on from there.
template <typename Body>
void SharedMemoryCommunicator::guard(const Body& body) {
  waiting_.watch().check();
  if (!broken_.empty()) {
    throw JobFailed(concat("communicator \"", options_.name,
                           "\" is no longer whole, since a call of it was given up: ", broken_));
  }
  try {
    body();
  } catch (const JobFailed& failure) {
    broken_ = failure.what();
    leave(SharedSeat::kGaveUp);
    throw;
  }
}

void SharedMemoryCommunicator::leave(SharedSeat::State state) {
  stage_.seat(rank()).state.store(state, std::memory_order_seq_cst);
  for (int member = 0; member < size(); ++member) stage_.seat(member).bell.ring();
}

template <typename Ready>
void SharedMemoryCommunicator::throw_if_gone(int member, const Ready& ready) const {
  const uint32_t state = stage_.seat(member).state.load(std::memory_order_seq_cst);
  if (state == SharedSeat::kHere || ready()) return;
  if (waiting_.watch().has_judge()) waiting_.watch().await_cause();
  waiting_.watch().check();
  throw JobFailed(concat("member ", member, " of communicator \"", options_.name, "\" has ",
                         state == SharedSeat::kLeft ? "left" : "given up a call", ", while member ",
                         rank(), " waits for it"));
}

}  // namespace

std::unique_ptr<Communicator> make_shared_memory_communicator(int rank, int size, Watch& watch,
                                                              const Exchange& exchange,
                                                              const CommunicatorOptions& options) {
  EPL_CHECK(size > 0 && rank >= 0 && rank < size, concat("communicator \"", options.name, "\" of ",
                                                         size, " members has no member ", rank));
  return std::make_unique<SharedMemoryCommunicator>(rank, size, watch, exchange, options);
}

}  // namespace epl

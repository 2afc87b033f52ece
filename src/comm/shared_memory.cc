// The processes of one host. What they cannot read of each other goes through shared memory in
// rounds (shared_board.h, board_end.h).
#include <ATen/ops/zeros.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "base/check.h"
#include "comm/board_end.h"
#include "comm/byte_strip.h"
#include "comm/call.h"
#include "comm/communicator.h"
#include "comm/reduce_kernels.h"
#include "comm/segment.h"

namespace epl::comm {
namespace {

// Up to this size every member sums all elements itself: one meeting instead of two. Between two
// members that is as little work as sharing it, at any size.
constexpr int64_t kSumAlone = 16 * 1024;

class SharedMemoryCommunicator final : public Communicator {
 public:
  SharedMemoryCommunicator(int rank, int size, Watch& watch, const Exchange& exchange,
                           const CommunicatorOptions& options)
      : options_(options), end_(rank, size, watch, exchange, options) {}

  int rank() const override { return caller().rank(); }
  int size() const override { return caller().size(); }
  const CommunicatorOptions& options() const override { return options_; }

  void set_about(int64_t about) override { end_.set_about(about); }
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
  void send(const at::Tensor& tensor, int to, int tag) override { end_.send(tensor, to, tag); }
  void receive(const at::Tensor& tensor, int from, int tag) override {
    end_.receive(tensor, from, tag);
  }
  void barrier() override { end_.meet(caller().barrier()); }
  std::unique_ptr<Communicator> group(const std::vector<int>& ranks) override;

 private:
  const Caller& caller() const { return end_.caller(); }

  // Where round `round` begins and ends in memory that goes through the board piece by piece.
  static ByteRange piece(int64_t bytes, int64_t round, int64_t piece_bytes) {
    const int64_t begin = std::min(bytes, round * piece_bytes);
    return {begin, std::min(bytes, begin + piece_bytes)};
  }
  static int64_t pieces(int64_t bytes, int64_t piece_bytes) {
    return std::max<int64_t>(1, (bytes + piece_bytes - 1) / piece_bytes);
  }
  // What a member offers to each of the others in one round.
  int64_t private_piece() const { return SharedBoard::kChunk / size() / 64 * 64; }

  // The piece of a strip that belongs to a round: copied to this member's offer, and replaced by
  // the sum of all members' pieces.
  void offer_strip(const ByteStrip& strip, int64_t round) const;
  void sum_strip(const CallRecord& record, const ByteStrip& strip, int64_t round) const;
  void all_reduce_shared(const MemberCall& call, const ByteStrip& strip);
  void sum_offers(const CallRecord& record, int64_t round, int64_t offset, int64_t bytes,
                  const char* mine, std::initializer_list<void*> targets) const;

  const CommunicatorOptions options_;
  BoardEnd end_;
};

// Sums what all members have at `offset` of their offers, this one at `mine`.
void SharedMemoryCommunicator::sum_offers(const CallRecord& record, int64_t round, int64_t offset,
                                          int64_t bytes, const char* mine,
                                          std::initializer_list<void*> targets) const {
  c10::SmallVector<const void*, 16> sources;
  for (int member = 0; member < size(); ++member) {
    sources.push_back(member == rank() ? mine : end_.offer(member, round) + offset);
  }
  reduce_elements(record.type, record.op, sources.data(), size(), targets.begin(),
                  static_cast<int>(targets.size()),
                  bytes / static_cast<int64_t>(c10::elementSize(record.type)));
}

void SharedMemoryCommunicator::offer_strip(const ByteStrip& strip, int64_t round) const {
  const ByteRange range = piece(strip.bytes(), round, SharedBoard::kChunk);
  char* offer = end_.offer(rank(), round);
  strip.each(range.begin, range.end, [&](char* data, int64_t bytes, int64_t offset) {
    std::memcpy(offer + offset, data, static_cast<size_t>(bytes));
  });
}

void SharedMemoryCommunicator::sum_strip(const CallRecord& record, const ByteStrip& strip,
                                         int64_t round) const {
  const ByteRange range = piece(strip.bytes(), round, SharedBoard::kChunk);
  strip.each(range.begin, range.end, [&](char* data, int64_t bytes, int64_t offset) {
    sum_offers(record, round, offset, bytes, data, {data});
  });
}

void SharedMemoryCommunicator::all_reduce(const std::vector<at::Tensor>& tensors, ReduceOp op) {
  const MemberCall call = caller().all_reduce(tensors, op);
  const ByteStrip strip(tensors);
  if (size() > 2 && strip.bytes() > kSumAlone) return all_reduce_shared(call, strip);
  end_.run(
      call, [&] { return pieces(strip.bytes(), SharedBoard::kChunk); },
      [&](int64_t round) { offer_strip(strip, round); },
      [&](int64_t round) { sum_strip(call.record, strip, round); });
}

// Each member sums its share of the round and hands the result to all.
void SharedMemoryCommunicator::all_reduce_shared(const MemberCall& call, const ByteStrip& strip) {
  // Calls f(data, bytes, offset in the round, offset in the share).
  const auto each_of_share = [&](int64_t round, int member, const auto& f) {
    const ByteRange range = piece(strip.bytes(), round, SharedBoard::kChunk);
    const ByteRange share = share_of(range.end - range.begin, member, size());
    strip.each(range.begin + share.begin, range.begin + share.end,
               [&](char* data, int64_t bytes, int64_t offset) {
                 f(data, bytes, share.begin + offset, offset);
               });
  };
  end_.run(
      call, [&] { return pieces(strip.bytes(), SharedBoard::kChunk); },
      [&](int64_t round) {
        char* offer = end_.offer(rank(), round);
        for (int member = 0; member < size(); ++member) {
          if (member == rank()) continue;
          each_of_share(round, member, [&](char* data, int64_t bytes, int64_t offset, int64_t) {
            std::memcpy(offer + offset, data, static_cast<size_t>(bytes));
          });
        }
      },
      [&](int64_t round) {
        char* result = end_.result(rank(), round);
        each_of_share(round, rank(), [&](char* data, int64_t bytes, int64_t offset, int64_t place) {
          sum_offers(call.record, round, offset, bytes, data, {data, result + place});
        });
      },
      [&](int64_t round) {
        for (int member = 0; member < size(); ++member) {
          if (member == rank()) continue;
          const char* result = end_.result(member, round);
          each_of_share(round, member, [&](char* data, int64_t bytes, int64_t, int64_t place) {
            std::memcpy(data, result + place, static_cast<size_t>(bytes));
          });
        }
      });
}

void SharedMemoryCommunicator::reduce(const std::vector<at::Tensor>& tensors, ReduceOp op,
                                      int root) {
  const MemberCall call = caller().reduce(tensors, op, root);
  const ByteStrip strip(tensors);
  end_.run(
      call, [&] { return pieces(strip.bytes(), SharedBoard::kChunk); },
      [&](int64_t round) {
        if (rank() != root) offer_strip(strip, round);
      },
      [&](int64_t round) {
        if (rank() == root) sum_strip(call.record, strip, round);
      });
}

void SharedMemoryCommunicator::broadcast(const std::vector<at::Tensor>& tensors, int root) {
  const MemberCall call = caller().broadcast(tensors, root);
  const ByteStrip strip(tensors);
  end_.run(
      call, [&] { return pieces(strip.bytes(), SharedBoard::kChunk); },
      [&](int64_t round) {
        if (rank() == root) offer_strip(strip, round);
      },
      [&](int64_t round) {
        if (rank() == root) return;
        const ByteRange range = piece(strip.bytes(), round, SharedBoard::kChunk);
        const char* offer = end_.offer(root, round);
        strip.each(range.begin, range.end, [&](char* data, int64_t bytes, int64_t offset) {
          std::memcpy(data, offer + offset, static_cast<size_t>(bytes));
        });
      });
}

void SharedMemoryCommunicator::reduce_scatter(const at::Tensor& whole, const at::Tensor& part,
                                              const std::vector<int64_t>& rows, ReduceOp op) {
  const MemberCall call = caller().reduce_scatter(whole, part, rows, op);
  const int64_t piece_bytes = private_piece();
  const Parts parts(whole, rows, call.row_bytes());
  end_.run(
      call, [&] { return pieces(parts.largest(), piece_bytes); },
      [&](int64_t round) {
        for (int member = 0; member < size(); ++member) {
          if (member == rank()) continue;
          const ByteRange range = piece(parts.bytes(member), round, piece_bytes);
          copy_bytes(end_.offer(rank(), round) + member * piece_bytes,
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
  const MemberCall call = caller().all_gather(part, whole, rows);
  const Parts parts(whole, rows, call.row_bytes());
  const char* mine = static_cast<char*>(part.data_ptr());
  end_.run(
      call, [&] { return pieces(parts.largest(), SharedBoard::kChunk); },
      [&](int64_t round) {
        const ByteRange range = piece(parts.bytes(rank()), round, SharedBoard::kChunk);
        copy_bytes(end_.offer(rank(), round), mine + range.begin, range.end - range.begin);
      },
      [&](int64_t round) {
        for (int member = 0; member < size(); ++member) {
          const ByteRange range = piece(parts.bytes(member), round, SharedBoard::kChunk);
          const char* from = member == rank() ? mine + range.begin : end_.offer(member, round);
          copy_bytes(parts.data(member) + range.begin, from, range.end - range.begin);
        }
      });
}

void SharedMemoryCommunicator::all_to_all(const at::Tensor& input, const at::Tensor& output,
                                          const std::vector<int64_t>& rows_to,
                                          const std::vector<int64_t>& rows_from) {
  const MemberCall call = caller().all_to_all(input, output, rows_to, rows_from);
  const int64_t piece_bytes = private_piece();
  const Parts to(input, rows_to, call.row_bytes()), from(output, rows_from, call.row_bytes());
  // All members must make as many rounds: the longest message between any two of them counts.
  const auto rounds = [&] {
    int64_t most = 0;
    for (int member = 0; member < size(); ++member) {
      const int64_t* rows = end_.rows(member);
      most = std::max(most, *std::max_element(rows, rows + size()));
    }
    return pieces(most * call.row_bytes(), piece_bytes);
  };
  end_.run(
      call, rounds,
      [&](int64_t round) {
        for (int member = 0; member < size(); ++member) {
          if (member == rank()) continue;
          const ByteRange range = piece(to.bytes(member), round, piece_bytes);
          copy_bytes(end_.offer(rank(), round) + member * piece_bytes,
                     to.data(member) + range.begin, range.end - range.begin);
        }
      },
      [&](int64_t round) {
        for (int member = 0; member < size(); ++member) {
          const ByteRange range = piece(from.bytes(member), round, piece_bytes);
          const char* source = member == rank() ? to.data(member) + range.begin
                                                : end_.offer(member, round) + rank() * piece_bytes;
          copy_bytes(from.data(member) + range.begin, source, range.end - range.begin);
        }
      });
}

// --- groups ------------------------------------------------------------------------------------

std::unique_ptr<Communicator> SharedMemoryCommunicator::group(const std::vector<int>& ranks) {
  end_.meet(caller().group(ranks));
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
                                                    static_cast<int>(ranks.size()), end_.watch(),
                                                    exchange, options);
}

}  // namespace

std::unique_ptr<Communicator> make_shared_memory_communicator(int rank, int size, Watch& watch,
                                                              const Exchange& exchange,
                                                              const CommunicatorOptions& options) {
  EPL_CHECK(size > 0 && rank >= 0 && rank < size, concat("communicator \"", options.name, "\" of ",
                                                         size, " members has no member ", rank));
  return std::make_unique<SharedMemoryCommunicator>(rank, size, watch, exchange, options);
}

}  // namespace epl::comm

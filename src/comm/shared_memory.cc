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
  void reduce_scatter_in_place(const std::vector<at::Tensor>& tensors,
                               const std::vector<int64_t>& counts, ReduceOp op) override;
  void all_gather_in_place(const std::vector<at::Tensor>& tensors,
                           const std::vector<int64_t>& counts) override;
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

  // What a member offers to each of the others in one round, and where it lies in its offer.
  int64_t private_piece() const { return SharedBoard::kChunk / std::max(1, size() - 1) / 64 * 64; }
  char* private_offer(int from, int to, int64_t round) const {
    return end_.offer(from, round) + (to < from ? to : to - 1) * private_piece();
  }

  // The piece of a strip that belongs to a round: copied to this member's offer, and replaced by
  // the sum of all members' pieces.
  void offer_strip(const ByteStrip& strip, int64_t round) const;
  void sum_strip(const CallRecord& record, const ByteStrip& strip, int64_t round) const;
  void all_reduce_shared(const MemberCall& call, const ByteStrip& strip);

  // Of a strip that has the parts of all members. This one's lies in it, or at `part`.
  void sum_parts(const MemberCall& call, const ByteStrip& whole, char* part);
  void gather_parts(const MemberCall& call, const ByteStrip& whole, const char* part);

  template <typename OfferOf>
  void sum_offers(const CallRecord& record, const OfferOf& offer_of, int64_t bytes,
                  const char* mine, std::initializer_list<void*> targets) const;

  const CommunicatorOptions options_;
  BoardEnd end_;
};

// Sums what the other members have at `offer_of(member)`, and this one at `mine`.
template <typename OfferOf>
void SharedMemoryCommunicator::sum_offers(const CallRecord& record, const OfferOf& offer_of,
                                          int64_t bytes, const char* mine,
                                          std::initializer_list<void*> targets) const {
  c10::SmallVector<const void*, 16> sources;
  for (int member = 0; member < size(); ++member) {
    sources.push_back(member == rank() ? mine : offer_of(member));
  }
  reduce_elements(record.type, record.op, sources.data(), size(), targets.begin(),
                  static_cast<int>(targets.size()),
                  bytes / static_cast<int64_t>(c10::elementSize(record.type)));
}

void SharedMemoryCommunicator::offer_strip(const ByteStrip& strip, int64_t round) const {
  strip.copy_out(piece_of(strip.bytes(), round, SharedBoard::kChunk), end_.offer(rank(), round));
}

void SharedMemoryCommunicator::sum_strip(const CallRecord& record, const ByteStrip& strip,
                                         int64_t round) const {
  const ByteRange range = piece_of(strip.bytes(), round, SharedBoard::kChunk);
  strip.each(range.begin, range.end, [&](char* data, int64_t bytes, int64_t offset) {
    const auto offer_of = [&](int member) { return end_.offer(member, round) + offset; };
    sum_offers(record, offer_of, bytes, data, {data});
  });
}

void SharedMemoryCommunicator::all_reduce(const std::vector<at::Tensor>& tensors, ReduceOp op) {
  const MemberCall call = caller().all_reduce(tensors, op);
  const ByteStrip strip(tensors);
  if (size() > 2 && strip.bytes() > kSumAlone) return all_reduce_shared(call, strip);
  end_.run(
      call, [&] { return count_pieces(strip.bytes(), SharedBoard::kChunk); },
      [&](int64_t round) { offer_strip(strip, round); },
      [&](int64_t round) { sum_strip(call.record, strip, round); });
}

// Each member sums its share of the round and hands the result to all.
void SharedMemoryCommunicator::all_reduce_shared(const MemberCall& call, const ByteStrip& strip) {
  // Calls f(data, bytes, offset in the round, offset in the share).
  const auto each_of_share = [&](int64_t round, int member, const auto& f) {
    const ByteRange range = piece_of(strip.bytes(), round, SharedBoard::kChunk);
    const ByteRange share = share_of(range.bytes(), member, size());
    strip.each(range.begin + share.begin, range.begin + share.end,
               [&](char* data, int64_t bytes, int64_t offset) {
                 f(data, bytes, share.begin + offset, offset);
               });
  };
  end_.run(
      call, [&] { return count_pieces(strip.bytes(), SharedBoard::kChunk); },
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
          const auto offer_of = [&](int member) { return end_.offer(member, round) + offset; };
          sum_offers(call.record, offer_of, bytes, data, {data, result + place});
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
      call, [&] { return count_pieces(strip.bytes(), SharedBoard::kChunk); },
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
      call, [&] { return count_pieces(strip.bytes(), SharedBoard::kChunk); },
      [&](int64_t round) {
        if (rank() == root) offer_strip(strip, round);
      },
      [&](int64_t round) {
        if (rank() == root) return;
        strip.copy_in(piece_of(strip.bytes(), round, SharedBoard::kChunk), end_.offer(root, round));
      });
}

void SharedMemoryCommunicator::sum_parts(const MemberCall& call, const ByteStrip& whole,
                                         char* part) {
  const Borders borders(call.rows, call.row_bytes());
  const int64_t piece_bytes = private_piece();
  end_.run(
      call, [&] { return count_pieces(borders.largest(), piece_bytes); },
      [&](int64_t round) {
        for (int member = 0; member < size(); ++member) {
          if (member == rank()) continue;
          whole.copy_out(borders.piece(member, round, piece_bytes),
                         private_offer(rank(), member, round));
        }
      },
      [&](int64_t round) {
        const ByteRange range = borders.piece(rank(), round, piece_bytes);
        whole.each(range.begin, range.end, [&](char* data, int64_t bytes, int64_t offset) {
          const auto offer_of = [&](int member) {
            return private_offer(member, rank(), round) + offset;
          };
          char* target = data;
          if (part != nullptr) target = part + (range.begin - borders.begin(rank())) + offset;
          sum_offers(call.record, offer_of, bytes, data, {target});
        });
      });
}

void SharedMemoryCommunicator::gather_parts(const MemberCall& call, const ByteStrip& whole,
                                            const char* part) {
  const Borders borders(call.rows, call.row_bytes());
  const auto range_of = [&](int member, int64_t round) {
    return borders.piece(member, round, SharedBoard::kChunk);
  };
  const auto place_in_part = [&](const ByteRange& range) {
    return part + (range.begin - borders.begin(rank()));
  };
  end_.run(
      call, [&] { return count_pieces(borders.largest(), SharedBoard::kChunk); },
      [&](int64_t round) {
        const ByteRange range = range_of(rank(), round);
        char* offer = end_.offer(rank(), round);
        if (part == nullptr) return whole.copy_out(range, offer);
        copy_bytes(offer, place_in_part(range), range.bytes());
      },
      [&](int64_t round) {
        for (int member = 0; member < size(); ++member) {
          const ByteRange range = range_of(member, round);
          if (member != rank()) {
            whole.copy_in(range, end_.offer(member, round));
          } else if (part != nullptr) {
            whole.copy_in(range, place_in_part(range));
          }
        }
      });
}

void SharedMemoryCommunicator::reduce_scatter(const at::Tensor& whole, const at::Tensor& part,
                                              const std::vector<int64_t>& rows, ReduceOp op) {
  sum_parts(caller().reduce_scatter(whole, part, rows, op), ByteStrip(whole),
            static_cast<char*>(part.data_ptr()));
}

void SharedMemoryCommunicator::all_gather(const at::Tensor& part, const at::Tensor& whole,
                                          const std::vector<int64_t>& rows) {
  gather_parts(caller().all_gather(part, whole, rows), ByteStrip(whole),
               static_cast<const char*>(part.data_ptr()));
}

void SharedMemoryCommunicator::reduce_scatter_in_place(const std::vector<at::Tensor>& tensors,
                                                       const std::vector<int64_t>& counts,
                                                       ReduceOp op) {
  sum_parts(caller().reduce_scatter_in_place(tensors, counts, op), ByteStrip(tensors), nullptr);
}

void SharedMemoryCommunicator::all_gather_in_place(const std::vector<at::Tensor>& tensors,
                                                   const std::vector<int64_t>& counts) {
  gather_parts(caller().all_gather_in_place(tensors, counts), ByteStrip(tensors), nullptr);
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
    return count_pieces(most * call.row_bytes(), piece_bytes);
  };
  end_.run(
      call, rounds,
      [&](int64_t round) {
        for (int member = 0; member < size(); ++member) {
          if (member == rank()) continue;
          const ByteRange range = piece_of(to.bytes(member), round, piece_bytes);
          copy_bytes(private_offer(rank(), member, round), to.data(member) + range.begin,
                     range.bytes());
        }
      },
      [&](int64_t round) {
        for (int member = 0; member < size(); ++member) {
          const ByteRange range = piece_of(from.bytes(member), round, piece_bytes);
          const char* source = member == rank() ? to.data(member) + range.begin
                                                : private_offer(member, rank(), round);
          copy_bytes(from.data(member) + range.begin, source, range.bytes());
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

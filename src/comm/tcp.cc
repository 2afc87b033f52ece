// Processes of any hosts. Every operation cuts tensors into one share for each member, so that each
// of them sends and receives as little as a ring would, in one or two steps; and since a member has
// all contributions to its share at once, it sums them in the order of ranks.
//
// Why not Gloo, and figures: docs/notes/workers.md.
#include <cstring>
#include <numeric>
#include <sstream>

#include "base/check.h"
#include "comm/byte_strip.h"
#include "comm/call.h"
#include "comm/communicator.h"
#include "comm/peer_links.h"
#include "comm/reduce_kernels.h"

namespace epl::comm {
namespace {

// Below, one step in which everybody sends everything to all is faster than two with shares.
constexpr int64_t kSmall = 8192;
// What comes from all members in one phase of a reduction by parts: much against the time of a
// message, and little against the tensors.
constexpr int64_t kStaged = 4 << 20;
constexpr size_t kAddressBytes = 128;

char* address(const at::Tensor& tensor) { return static_cast<char*>(tensor.data_ptr()); }

Spans spans_of(const ByteStrip& strip, const ByteRange& range) {
  Spans spans;
  strip.each(range.begin, range.end, [&](char* data, int64_t bytes, int64_t /*offset*/) {
    spans.push_back({data, static_cast<size_t>(bytes)});
  });
  return spans;
}

class TcpCommunicator final : public Communicator {
 public:
  TcpCommunicator(std::unique_ptr<PeerLinks> mesh, std::string interface)
      : links_(std::move(mesh)), interface_(std::move(interface)) {}

  int rank() const override { return caller().rank(); }
  int size() const override { return caller().size(); }
  const CommunicatorOptions& options() const override { return links_->options(); }

  void set_about(int64_t about) override { links_->set_about(about); }

  void all_reduce(const std::vector<at::Tensor>& tensors, ReduceOp op) override {
    const MemberCall call = caller().all_reduce(tensors, op);
    const ByteStrip strip(tensors);
    if (strip.bytes() <= kSmall) {
      meet_whole(call, strip, -1);
      reduce_range(call, strip, {0, strip.bytes()}, nullptr);
      return;
    }
    meet_shares(call, strip);
    const ByteRange mine = share(strip, rank());
    reduce_range(call, strip, mine, nullptr);
    follow_shares(strip, -1);
  }

  void reduce(const std::vector<at::Tensor>& tensors, ReduceOp op, int root) override {
    const MemberCall call = caller().reduce(tensors, op, root);
    const ByteStrip strip(tensors);
    if (strip.bytes() <= kSmall) {
      meet_whole(call, strip, root);
      if (rank() == root) reduce_range(call, strip, {0, strip.bytes()}, nullptr);
      return;
    }
    meet_shares(call, strip);
    const ByteRange mine = share(strip, rank());
    // The tensors of the others stay as they were: their shares are made aside.
    char* aside = staging(size(), mine.end - mine.begin);
    reduce_range(call, strip, mine, rank() == root ? nullptr : aside);
    if (rank() == root) {
      links_->follow({}, parts_of_others([&](int from) { return share_spans(strip, from); }));
    } else {
      links_->follow({{root, {{aside, static_cast<size_t>(mine.end - mine.begin)}}}}, {});
    }
  }

  void broadcast(const std::vector<at::Tensor>& tensors, int root) override {
    const MemberCall call = caller().broadcast(tensors, root);
    const ByteStrip strip(tensors);
    const bool small = strip.bytes() <= kSmall;
    const auto piece = [&](int member) {
      return small ? spans_of(strip, {0, strip.bytes()}) : share_spans(strip, member);
    };
    if (rank() == root) {
      links_->meet(call, parts_of_others(piece), {});
    } else {
      links_->meet(call, {}, {{root, piece(rank())}});
    }
    if (!small) follow_shares(strip, root);
  }

  void reduce_scatter(const at::Tensor& whole, const at::Tensor& part,
                      const std::vector<int64_t>& rows, ReduceOp op) override {
    sum_parts(caller().reduce_scatter(whole, part, rows, op), ByteStrip(whole), address(part));
  }

  void all_gather(const at::Tensor& part, const at::Tensor& whole,
                  const std::vector<int64_t>& rows) override {
    const MemberCall call = caller().all_gather(part, whole, rows);
    gather_parts(call, ByteStrip(whole), {{address(part), part.nbytes()}});
    char* place = Parts(whole, rows, call.row_bytes()).data(rank());
    if (part.nbytes() > 0) std::memmove(place, address(part), part.nbytes());
  }

  void reduce_scatter_in_place(const std::vector<at::Tensor>& tensors,
                               const std::vector<int64_t>& counts, ReduceOp op) override {
    sum_parts(caller().reduce_scatter_in_place(tensors, counts, op), ByteStrip(tensors), nullptr);
  }

  void all_gather_in_place(const std::vector<at::Tensor>& tensors,
                           const std::vector<int64_t>& counts) override {
    const MemberCall call = caller().all_gather_in_place(tensors, counts);
    const ByteStrip strip(tensors);
    gather_parts(call, strip, spans_of(strip, Borders(counts, call.row_bytes()).range(rank())));
  }

  void all_to_all(const at::Tensor& input, const at::Tensor& output,
                  const std::vector<int64_t>& rows_to,
                  const std::vector<int64_t>& rows_from) override {
    const MemberCall call = caller().all_to_all(input, output, rows_to, rows_from);
    const Parts to(input, rows_to, call.row_bytes()), from(output, rows_from, call.row_bytes());
    links_->meet(call, parts_of_others([&](int other) { return rows_of(to, other); }),
                 parts_of_others([&](int other) { return rows_of(from, other); }));
    copy_bytes(from.data(rank()), to.data(rank()), to.bytes(rank()));
  }

  void send(const at::Tensor& tensor, int to, int tag) override { links_->send(tensor, to, tag); }
  void receive(const at::Tensor& tensor, int from, int tag) override {
    links_->receive(tensor, from, tag);
  }
  void barrier() override { links_->meet(caller().barrier(), {}, {}); }

  std::unique_ptr<Communicator> group(const std::vector<int>& ranks) override {
    const MemberCall call = caller().group(ranks);
    const auto place = std::find(ranks.begin(), ranks.end(), rank());
    if (place == ranks.end()) {
      exchange_addresses(call, "");
      return nullptr;
    }
    const Exchange exchange = [&](const std::string& mine) {
      const std::vector<std::string> all = exchange_addresses(call, mine);
      std::vector<std::string> texts;
      for (const int member : ranks) texts.push_back(all[static_cast<size_t>(member)]);
      return texts;
    };
    const Caller member(static_cast<int>(place - ranks.begin()), static_cast<int>(ranks.size()),
                        caller().name());
    return std::make_unique<TcpCommunicator>(
        connect_peers(member, links_->watch(), exchange, options(), interface_), interface_);
  }

 private:
  const Caller& caller() const { return links_->caller(); }

  ByteRange share(const ByteStrip& strip, int member) const {
    return share_of(strip.bytes(), member, size());
  }
  Spans share_spans(const ByteStrip& strip, int member) const {
    return spans_of(strip, share(strip, member));
  }
  static Spans rows_of(const Parts& parts, int member) {
    return {{parts.data(member), static_cast<size_t>(parts.bytes(member))}};
  }

  template <typename SpansOf>
  std::vector<Part> parts_of_others(const SpansOf& spans_of_member) const {
    std::vector<Part> parts;
    for (int member = 0; member < size(); ++member) {
      if (member != rank()) parts.push_back({member, spans_of_member(member)});
    }
    return parts;
  }

  // Memory for what comes from each member; it stays for the next call.
  void reserve_staging(int pieces, int64_t bytes) {
    stride_ = (bytes + 63) / 64 * 64;
    const int64_t needed = stride_ * pieces;
    if (!staging_.defined() || staging_.numel() < needed) {
      staging_ = at::empty({needed}, at::kByte);
    }
  }
  char* staging(int piece, int64_t bytes) {
    EPL_ASSERT(staging_.defined() && stride_ * piece + bytes <= staging_.numel(), "staging memory");
    return address(staging_) + stride_ * piece;
  }
  Spans staged(int from, int64_t bytes) {
    return {{staging(from, bytes), static_cast<size_t>(bytes)}};
  }

  // To each member its part of the strip, from each member ours, piece by piece: the sums are made
  // in the strip, or at `part`. A phase has no messages where there is nothing to say.
  void sum_parts(const MemberCall& call, const ByteStrip& whole, char* part) {
    const Borders borders(call.rows, call.row_bytes());
    const int64_t piece_bytes = std::max<int64_t>(4096, kStaged / size() / 64 * 64);
    reserve_staging(size(), std::min(piece_bytes, borders.bytes(rank())));
    for (int64_t round = 0; round < count_pieces(borders.largest(), piece_bytes); ++round) {
      const auto range_of = [&](int member) { return borders.piece(member, round, piece_bytes); };
      const ByteRange mine = range_of(rank());
      const std::vector<Part> sends =
          not_empty(parts_of_others([&](int to) { return spans_of(whole, range_of(to)); }));
      const std::vector<Part> receives =
          not_empty(parts_of_others([&](int from) { return staged(from, mine.bytes()); }));
      round == 0 ? links_->meet(call, sends, receives) : links_->follow(sends, receives);
      char* target = part == nullptr ? nullptr : part + (mine.begin - borders.begin(rank()));
      reduce_range(call, whole, mine, target);
    }
  }

  // What this member has of the strip, to all; from each of the others what it has.
  void gather_parts(const MemberCall& call, const ByteStrip& whole, const Spans& mine) {
    const Borders borders(call.rows, call.row_bytes());
    const auto part_of = [&](int from) { return spans_of(whole, borders.range(from)); };
    links_->meet(call, parts_of_others([&](int /*to*/) { return mine; }), parts_of_others(part_of));
  }

  static std::vector<Part> not_empty(std::vector<Part> parts) {
    const auto is_empty = [](const Part& part) { return bytes_of(part.spans) == 0; };
    parts.erase(std::remove_if(parts.begin(), parts.end(), is_empty), parts.end());
    return parts;
  }

  // Everything to all, or to the root alone.
  void meet_whole(const MemberCall& call, const ByteStrip& strip, int root) {
    reserve_staging(size(), strip.bytes());
    const Spans all = spans_of(strip, {0, strip.bytes()});
    const bool receives = root < 0 || root == rank();
    std::vector<Part> sends =
        parts_of_others([&](int to) { return root < 0 || root == to ? all : Spans(); });
    links_->meet(call, sends,
                 receives ? parts_of_others([&](int from) { return staged(from, strip.bytes()); })
                          : std::vector<Part>());
  }

  // To each member its share, from each member ours.
  void meet_shares(const MemberCall& call, const ByteStrip& strip) {
    const ByteRange mine = share(strip, rank());
    reserve_staging(size() + 1, mine.end - mine.begin);
    links_->meet(call, parts_of_others([&](int to) { return share_spans(strip, to); }),
                 parts_of_others([&](int from) { return staged(from, mine.end - mine.begin); }));
  }

  // Our share to all, from all theirs. A root has all of them and receives none.
  void follow_shares(const ByteStrip& strip, int root) {
    const auto not_root = [&](std::vector<Part> parts) {
      parts.erase(std::remove_if(parts.begin(), parts.end(),
                                 [&](const Part& part) { return part.peer == root; }),
                  parts.end());
      return parts;
    };
    const Spans mine = share_spans(strip, rank());
    std::vector<Part> receives;
    if (rank() != root) {
      receives = parts_of_others([&](int from) { return share_spans(strip, from); });
    }
    links_->follow(not_root(parts_of_others([&](int /*to*/) { return mine; })), receives);
  }

  // Own memory and what the others sent, in the order of ranks.
  std::vector<const void*> sources_of_share(char* own, int64_t bytes, int64_t offset) {
    std::vector<const void*> sources;
    for (int member = 0; member < size(); ++member) {
      sources.push_back(member == rank() ? own : staging(member, bytes) + offset);
    }
    return sources;
  }

  // Reduces [begin, end) of the strip, into itself or to `aside`.
  void reduce_range(const MemberCall& call, const ByteStrip& strip, const ByteRange& range,
                    char* aside) {
    const auto width = static_cast<int64_t>(c10::elementSize(call.record.type));
    strip.each(range.begin, range.end, [&](char* data, int64_t bytes, int64_t offset) {
      const std::vector<const void*> sources = sources_of_share(data, offset + bytes, offset);
      void* target = aside == nullptr ? data : aside + offset;
      reduce_elements(call.record.type, call.record.op, sources.data(), size(), &target, 1,
                      bytes / width);
    });
  }

  std::vector<std::string> exchange_addresses(const MemberCall& call, const std::string& mine) {
    EPL_ASSERT(mine.size() < kAddressBytes, "an address fits into its field");
    std::vector<char> fields(kAddressBytes * static_cast<size_t>(size()), '\0');
    const auto field = [&](int member) {
      return Spans{{fields.data() + kAddressBytes * static_cast<size_t>(member), kAddressBytes}};
    };
    std::memcpy(field(rank())[0].data, mine.data(), mine.size());
    links_->meet(call, parts_of_others([&](int /*to*/) { return field(rank()); }),
                 parts_of_others(field));
    std::vector<std::string> texts;
    for (int member = 0; member < size(); ++member) texts.emplace_back(field(member)[0].data);
    return texts;
  }

  std::unique_ptr<PeerLinks> links_;
  const std::string interface_;
  at::Tensor staging_;
  int64_t stride_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> make_tcp_communicator(int rank, int size, Watch& watch,
                                                    const Exchange& exchange,
                                                    const CommunicatorOptions& options,
                                                    const std::string& interface) {
  const Caller caller(rank, size, options.name);
  return std::make_unique<TcpCommunicator>(
      connect_peers(caller, watch, exchange, options, interface), interface);
}

}  // namespace epl::comm

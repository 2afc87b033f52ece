// Two levels: reduced inside of a group, exchanged between the first members, spread inside.
// Between hosts each byte goes once, however many workers a host has.
//
// Sums are made inside in the order of ranks, then between groups in the order of groups: another
// order than that of all ranks, but the same for all members and in every run. half and bfloat16
// travel as float on the way, so that they are rounded once.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "comm/byte_strip.h"
#include "comm/call.h"
#include "comm/communicator.h"

namespace epl::comm {
namespace {

at::ScalarType accumulation_type(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
}

using Tensors = std::vector<at::Tensor>;

// How many elements lie in copies at a time, where copies cannot be done without.
constexpr int64_t kCopied = 1 << 20;

// Several tensors as one strip of elements, of which views can be taken.
class ElementStrip {
 public:
  explicit ElementStrip(const Tensors& tensors) {
    for (const at::Tensor& tensor : tensors) {
      flat_.push_back(tensor.detach().view({-1}));
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + tensor.numel());
    }
  }

  int64_t elements() const { return ends_.empty() ? 0 : ends_.back(); }

  // The elements [begin, end), in order.
  Tensors views(int64_t begin, int64_t end) const {
    Tensors found;
    auto i =
        static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
    for (int64_t place = begin; place < end; ++i) {
      const int64_t last = std::min(end, ends_[i]);
      const int64_t first = ends_[i] - flat_[i].numel();
      if (last > place) found.push_back(flat_[i].narrow(0, place - first, last - place));
      place = last;
    }
    return found;
  }

 private:
  Tensors flat_;
  std::vector<int64_t> ends_;
};

class TwoLevelCommunicator final : public Communicator {
 public:
  TwoLevelCommunicator(TwoLevelParts parts, std::vector<std::vector<int>> ranks, int rank,
                       const CommunicatorOptions& options)
      : parts_(std::move(parts)),
        ranks_(std::move(ranks)),
        options_(options),
        caller_(rank, parts_.direct->size(), options.name) {
    for (const std::vector<int>& members : ranks_) {
      if (std::count(members.begin(), members.end(), rank) > 0) here_ = members;
    }
    EPL_ASSERT(!here_.empty() && parts_.inner->size() == static_cast<int>(here_.size()) &&
                   (parts_.outer != nullptr) == (here_[0] == rank),
               "a member of two levels has an inner group, and the first one the outer");
  }

  int rank() const override { return caller_.rank(); }
  int size() const override { return caller_.size(); }
  const CommunicatorOptions& options() const override { return options_; }

  void set_about(int64_t about) override {
    parts_.inner->set_about(about);
    if (parts_.outer) parts_.outer->set_about(about);
    parts_.direct->set_about(about);
  }

  void all_reduce(const std::vector<at::Tensor>& tensors, ReduceOp op) override {
    const MemberCall call = caller_.all_reduce(tensors, op);
    const std::vector<at::Tensor> wide = widened(tensors, call.record.type);
    parts_.inner->reduce(wide, without_mean(op), 0);
    if (parts_.outer) {
      parts_.outer->all_reduce(wide, without_mean(op));
      finish(wide, op);
    }
    parts_.inner->broadcast(wide, 0);
    copy_back(wide, tensors);
  }

  void reduce(const std::vector<at::Tensor>& tensors, ReduceOp op, int root) override {
    const MemberCall call = caller_.reduce(tensors, op, root);
    std::vector<at::Tensor> copies;
    for (const at::Tensor& tensor : tensors) {
      copies.push_back(tensor.to(accumulation_type(call.record.type), false, /*copy=*/true));
    }
    const auto [group, place] = find(root);
    parts_.inner->reduce(copies, without_mean(op), 0);
    if (parts_.outer) parts_.outer->reduce(copies, without_mean(op), group);
    if (here_ != ranks_[static_cast<size_t>(group)]) return;
    parts_.inner->broadcast(copies, 0);
    if (here_[static_cast<size_t>(place)] != rank()) return;
    finish(copies, op);
    copy_back(copies, tensors);
  }

  void broadcast(const std::vector<at::Tensor>& tensors, int root) override {
    caller_.broadcast(tensors, root);
    const auto [group, place] = find(root);
    const bool with_root = here_ == ranks_[static_cast<size_t>(group)];
    if (with_root) parts_.inner->broadcast(tensors, place);
    if (parts_.outer) parts_.outer->broadcast(tensors, group);
    if (!with_root) parts_.inner->broadcast(tensors, 0);
  }

  void reduce_scatter(const at::Tensor& whole, const at::Tensor& part,
                      const std::vector<int64_t>& rows, ReduceOp op) override {
    const MemberCall call = caller_.reduce_scatter(whole, part, rows, op);
    // In the order of groups, so that what a group gets lies together.
    const at::Tensor grouped = by_group(whole, rows).to(accumulation_type(call.record.type));
    const std::vector<int64_t> group_rows = rows_of_groups(rows);
    std::vector<int64_t> sizes = grouped.sizes().vec();
    sizes[0] = rows_in(here_, rows);
    const at::Tensor ours = at::empty(sizes, grouped.options());
    parts_.inner->reduce({grouped}, without_mean(op), 0);
    if (parts_.outer) {
      parts_.outer->reduce_scatter(grouped, ours, group_rows, without_mean(op));
      finish({ours}, op);
    }
    parts_.inner->broadcast({ours}, 0);
    int64_t before = 0;
    for (const int member : here_) {
      if (member == rank()) break;
      before += rows[static_cast<size_t>(member)];
    }
    part.copy_(ours.narrow(0, before, part.size(0)));
  }

  void all_gather(const at::Tensor& part, const at::Tensor& whole,
                  const std::vector<int64_t>& rows) override {
    caller_.all_gather(part, whole, rows);
    std::vector<int64_t> sizes = whole.sizes().vec();
    sizes[0] = rows_in(here_, rows);
    const at::Tensor ours = at::empty(sizes, whole.options());
    std::vector<int64_t> inner_rows;
    for (const int member : here_) inner_rows.push_back(rows[static_cast<size_t>(member)]);
    parts_.inner->all_gather(part.contiguous(), ours, inner_rows);
    const at::Tensor grouped = at::empty_like(whole);
    if (parts_.outer) parts_.outer->all_gather(ours, grouped, rows_of_groups(rows));
    parts_.inner->broadcast({grouped}, 0);
    from_groups(grouped, whole, rows);
  }

  // What a group owns lies together in the order of groups, so the outer communicator can scatter
  // it. Nothing is copied but what travels as float, a piece of each member's part at a time.
  void reduce_scatter_in_place(const Tensors& tensors, const std::vector<int64_t>& counts,
                               ReduceOp op) override {
    const MemberCall call = caller_.reduce_scatter_in_place(tensors, counts, op);
    agree(call);
    const ElementStrip strip(tensors);
    const Borders borders(counts, 1);  // in elements
    const bool as_it_is = accumulation_type(call.record.type) == call.record.type;
    const int64_t piece = std::max<int64_t>(1, as_it_is ? borders.largest() : kCopied / size());
    for (int64_t round = 0; round < count_pieces(borders.largest(), piece); ++round) {
      reduce_parts(parts_of(strip, borders, round, piece), call.record);
    }
  }

  void all_gather_in_place(const Tensors& tensors, const std::vector<int64_t>& counts) override {
    agree(caller_.all_gather_in_place(tensors, counts));
    gather_parts(tensors, counts);
  }

  void all_to_all(const at::Tensor& input, const at::Tensor& output,
                  const std::vector<int64_t>& rows_to,
                  const std::vector<int64_t>& rows_from) override {
    barrier();  // a member that calls something else is found here
    parts_.direct->all_to_all(input, output, rows_to, rows_from);
  }
  void send(const at::Tensor& tensor, int to, int tag) override {
    parts_.direct->send(tensor, to, tag);
  }
  void receive(const at::Tensor& tensor, int from, int tag) override {
    parts_.direct->receive(tensor, from, tag);
  }
  // On the way of the other operations, so that members that call different ones meet and say so.
  void barrier() override {
    parts_.inner->barrier();
    if (parts_.outer) parts_.outer->barrier();
    parts_.inner->barrier();
  }

  // Two levels again where members of the list are near each other, else as they are.
  std::unique_ptr<Communicator> group(const std::vector<int>& ranks) override {
    std::unique_ptr<Communicator> direct = parts_.direct->group(ranks);
    TwoLevelParts parts;
    std::vector<std::vector<int>> groups;  // ranks in the new communicator
    std::vector<int> firsts;               // ranks in the outer one
    bool near = false;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      std::vector<int> members, places;
      for (size_t place = 0; place < ranks.size(); ++place) {
        const auto found = std::find(ranks_[i].begin(), ranks_[i].end(), ranks[place]);
        if (found == ranks_[i].end()) continue;
        members.push_back(static_cast<int>(found - ranks_[i].begin()));
        places.push_back(static_cast<int>(place));
      }
      if (members.empty()) continue;
      near = near || members.size() > 1;
      groups.push_back(places);
      if (here_ == ranks_[i]) parts.inner = parts_.inner->group(members);
    }
    if (!near || groups.size() == 1) {
      return groups.size() == 1 && parts.inner ? std::move(parts.inner) : std::move(direct);
    }
    // The first members of the new groups need not be those of the old ones.
    std::sort(groups.begin(), groups.end());
    for (const std::vector<int>& places : groups)
      firsts.push_back(ranks[static_cast<size_t>(places[0])]);
    parts.outer = parts_.direct->group(firsts);
    if (!direct) return nullptr;
    const auto place = std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin();
    parts.direct = std::move(direct);
    return std::make_unique<TwoLevelCommunicator>(std::move(parts), std::move(groups),
                                                  static_cast<int>(place), options_);
  }

 private:
  struct Place {
    int group;
    int place;
  };
  Place find(int member) const {
    for (size_t group = 0; group < ranks_.size(); ++group) {
      const auto found = std::find(ranks_[group].begin(), ranks_[group].end(), member);
      if (found == ranks_[group].end()) continue;
      return {static_cast<int>(group), static_cast<int>(found - ranks_[group].begin())};
    }
    EPL_ASSERT(false, "every member is in a group");
  }

  // The mean of all is made at the end: of means of groups of different sizes it would be another.
  static ReduceOp without_mean(ReduceOp op) { return op == ReduceOp::kMean ? ReduceOp::kSum : op; }
  void finish(const std::vector<at::Tensor>& tensors, ReduceOp op) const {
    if (op != ReduceOp::kMean) return;
    for (const at::Tensor& tensor : tensors) at::Tensor(tensor).div_(size());
  }

  static std::vector<at::Tensor> widened(const std::vector<at::Tensor>& tensors,
                                         at::ScalarType type) {
    if (accumulation_type(type) == type) return tensors;
    std::vector<at::Tensor> wide;
    for (const at::Tensor& tensor : tensors) wide.push_back(tensor.to(accumulation_type(type)));
    return wide;
  }
  static void copy_back(const std::vector<at::Tensor>& from, const std::vector<at::Tensor>& to) {
    for (size_t i = 0; i < to.size(); ++i) {
      if (!from[i].is_same(to[i])) to[i].copy_(from[i]);
    }
  }

  // Piece `index` of the part of each member, by rank.
  std::vector<Tensors> parts_of(const ElementStrip& strip, const Borders& borders, int64_t index,
                                int64_t piece) const {
    std::vector<Tensors> parts;
    for (int member = 0; member < size(); ++member) {
      const ByteRange range = borders.piece(member, index, piece);
      parts.push_back(strip.views(range.begin, range.end));
    }
    return parts;
  }
  // Of these members, one after the other.
  static Tensors joined(const std::vector<Tensors>& parts, const std::vector<int>& members) {
    Tensors all;
    for (const int member : members) {
      const Tensors& part = parts[static_cast<size_t>(member)];
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }
  std::vector<int> members_by_group() const {
    std::vector<int> members;
    for (const std::vector<int>& group : ranks_) {
      members.insert(members.end(), group.begin(), group.end());
    }
    return members;
  }

  // Leaves in the part of this member what all_reduce would.
  void reduce_parts(const std::vector<Tensors>& parts, const CallRecord& record) {
    std::vector<Tensors> wide;
    std::vector<int64_t> elements;
    for (const Tensors& part : parts) {
      wide.push_back(widened(part, record.type));
      elements.push_back(ElementStrip(part).elements());
    }
    const Tensors grouped = joined(wide, members_by_group());
    const ReduceOp op = without_mean(record.op);
    parts_.inner->reduce(grouped, op, 0);
    if (parts_.outer) {
      parts_.outer->reduce_scatter_in_place(grouped, rows_of_groups(elements), op);
      finish(joined(wide, here_), record.op);
    }
    hand_out(wide);
    const auto mine = static_cast<size_t>(rank());
    copy_back(wide[mine], parts[mine]);
  }

  // From the first member of a group to the others, to each its part alone. Members may cut the
  // same elements into tensors in different ways, so what is sent lies in one.
  void hand_out(const std::vector<Tensors>& parts) {
    constexpr int kTag = 0;
    for (size_t place = 1; place < here_.size(); ++place) {
      if (rank() != here_[0] && rank() != here_[place]) continue;
      const ElementStrip part(parts[static_cast<size_t>(here_[place])]);
      for (int64_t begin = 0; begin < part.elements(); begin += kCopied) {
        const Tensors views = part.views(begin, std::min(begin + kCopied, part.elements()));
        const at::Tensor sent = views.size() == 1 ? views[0] : at::cat(views);
        if (rank() == here_[0]) {
          parts_.inner->send(sent, static_cast<int>(place), kTag);
        } else {
          parts_.inner->receive(sent, 0, kTag);
          if (views.size() > 1) spread(sent, views);
        }
      }
    }
  }

  static void spread(const at::Tensor& whole, const Tensors& views) {
    int64_t begin = 0;
    for (const at::Tensor& view : views) {
      view.copy_(whole.narrow(0, begin, view.numel()));
      begin += view.numel();
    }
  }

  void gather_parts(const Tensors& tensors, const std::vector<int64_t>& counts) {
    const Borders borders(counts, 1);
    std::vector<Tensors> parts =
        parts_of(ElementStrip(tensors), borders, 0, std::max<int64_t>(1, borders.largest()));
    std::vector<int64_t> counts_here;
    for (const int member : here_) counts_here.push_back(counts[static_cast<size_t>(member)]);
    parts_.inner->all_gather_in_place(joined(parts, here_), counts_here);
    if (parts_.outer) {
      parts_.outer->all_gather_in_place(joined(parts, members_by_group()), rows_of_groups(counts));
    }
    for (const int member : here_) parts[static_cast<size_t>(member)].clear();
    parts_.inner->broadcast(joined(parts, members_by_group()), 0);
  }

  // All members compare the whole call: their calls of the two levels do not tell who owns what. No
  // other operation begins with this one of the inner members: who calls another is found at once.
  void agree(const MemberCall& call) {
    constexpr int64_t kWords = (sizeof(CallRecord) + 7) / 8;
    const int64_t words = kWords + size();
    const at::Tensor records = at::zeros({size(), words}, at::kLong);
    const auto row = [&](int member) { return records.data_ptr<int64_t>() + member * words; };
    std::memcpy(row(rank()), &call.record, sizeof(CallRecord));
    std::copy(call.rows.begin(), call.rows.end(), row(rank()) + kWords);
    gather_parts({records}, std::vector<int64_t>(static_cast<size_t>(size()), words));
    std::vector<CallView> views;
    for (int member = 0; member < size(); ++member) {
      views.push_back({reinterpret_cast<const CallRecord*>(row(member)), row(member) + kWords});
    }
    check_agreement(caller_, views);
  }

  static int64_t rows_in(const std::vector<int>& members, const std::vector<int64_t>& rows) {
    return std::accumulate(
        members.begin(), members.end(), int64_t{0},
        [&](int64_t sum, int member) { return sum + rows[static_cast<size_t>(member)]; });
  }
  std::vector<int64_t> rows_of_groups(const std::vector<int64_t>& rows) const {
    std::vector<int64_t> sums;
    for (const std::vector<int>& members : ranks_) sums.push_back(rows_in(members, rows));
    return sums;
  }

  // The rows of each member, in the order of groups.
  std::vector<at::Tensor> slices_by_group(const at::Tensor& whole,
                                          const std::vector<int64_t>& rows) const {
    const std::vector<at::Tensor> slices = whole.split_with_sizes(rows);
    std::vector<at::Tensor> ordered;
    for (const std::vector<int>& members : ranks_) {
      for (const int member : members) ordered.push_back(slices[static_cast<size_t>(member)]);
    }
    return ordered;
  }
  at::Tensor by_group(const at::Tensor& whole, const std::vector<int64_t>& rows) const {
    return at::cat(slices_by_group(whole, rows));  // a copy: reductions work in place
  }
  void from_groups(const at::Tensor& grouped, const at::Tensor& whole,
                   const std::vector<int64_t>& rows) const {
    int64_t begin = 0;
    for (at::Tensor& slice : slices_by_group(whole, rows)) {
      slice.copy_(grouped.narrow(0, begin, slice.size(0)));
      begin += slice.size(0);
    }
  }

  TwoLevelParts parts_;
  const std::vector<std::vector<int>> ranks_;
  const CommunicatorOptions options_;
  const Caller caller_;
  std::vector<int> here_;  // the members of this one's group
};

}  // namespace

std::unique_ptr<Communicator> make_two_level_communicator(TwoLevelParts parts,
                                                          std::vector<std::vector<int>> ranks,
                                                          int rank,
                                                          const CommunicatorOptions& options) {
  return std::make_unique<TwoLevelCommunicator>(std::move(parts), std::move(ranks), rank, options);
}

}  // namespace epl::comm

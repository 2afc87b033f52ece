// Two levels: reduced inside of a group, exchanged between the first members, spread inside.
// Between hosts each byte goes once, however many workers a host has.
//
// Sums are made inside in the order of ranks, then between groups in the order of groups: another
// order than that of all ranks, but the same for all members and in every run. half and bfloat16
// travel as float on the way, so that they are rounded once.
#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "comm/call.h"
#include "comm/communicator.h"

namespace epl::comm {
namespace {

at::ScalarType accumulation_type(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
}

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

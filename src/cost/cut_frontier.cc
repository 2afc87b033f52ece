#include "cost/cut_frontier.h"

#include <cmath>

#include "cost/min_cut.h"

namespace epl {
namespace {

size_t as_index(int index) { return static_cast<size_t>(index); }

// A choice as a line over the price of time: bytes that are kept + price * seconds.
struct CutPlan {
  Again again;
  double bytes = 0;
  double seconds = 0;

  double cost(double price) const { return bytes + price * seconds; }
};

class CutFrontier {
 public:
  explicit CutFrontier(const RecomputeModel& model) : model_(model) {
    for (const auto& operation : model.operations) seconds_ += operation.seconds;
    for (const auto& storage : model.storages) bytes_ += static_cast<double>(storage.bytes);
  }

  std::vector<Again> run() {
    if (seconds_ <= 0 || bytes_ <= 0) return {};
    // Nearly for nothing, and never.
    const CutPlan least = cut(1e-4 * bytes_ / seconds_);
    const CutPlan most = cut(1e9 * bytes_ / seconds_);
    plans_.push_back(most.again);
    between(least, most);
    plans_.push_back(least.again);
    return std::move(plans_);
  }

 private:
  // Where the lines of two plans meet a third one may lie below them.
  void between(const CutPlan& less, const CutPlan& more) {
    constexpr int kMostCuts = 48;
    if (less.seconds <= more.seconds || cuts_ >= kMostCuts) return;
    const double price = (more.bytes - less.bytes) / (less.seconds - more.seconds);
    if (price <= 0) return;
    const CutPlan found = cut(price);
    const double there = less.cost(price);
    if (found.cost(price) >= there - 1e-6 * std::abs(there)) return;
    between(found, more);
    plans_.push_back(found.again);
    between(less, found);
  }

  int64_t weight(int storage) const {
    const auto& entry = model_.storages[as_index(storage)];
    const int part = entry.maker < 0 ? entry.given : model_.operations[as_index(entry.maker)].part;
    return entry.bytes * model_.in_flight[as_index(model_.parts[as_index(part)].chunk)];
  }

  // An operation is a vertex, with the sink where it runs again; a storage is one, with the sink
  // where backward has it. From an operation to what it makes: the bytes, if it is kept.
  CutPlan cut(double price) {
    ++cuts_;
    const auto operations = static_cast<int>(model_.operations.size());
    MinCut cut(operations + static_cast<int>(model_.storages.size()));
    for (int i = 0; i < operations; ++i) {
      const auto& operation = model_.operations[as_index(i)];
      const double paid = std::round(price * operation.seconds);
      const bool never = !operation.repeatable || paid >= static_cast<double>(MinCut::kNever);
      cut.add(MinCut::kSource, i, never ? MinCut::kNever : static_cast<int64_t>(paid));
      for (int storage : operation.makes) cut.add(i, operations + storage, weight(storage));
      for (int storage : operation.reads) {
        if (operation.backward) cut.add(operations + storage, MinCut::kSink, MinCut::kNever);
        if (operation.repeatable) cut.add(operations + storage, i, MinCut::kNever);
      }
    }
    for (size_t i = 0; i < model_.storages.size(); ++i) {
      const auto storage = static_cast<int>(i);
      const bool given = model_.storages[i].maker < 0;
      if (given) cut.add(MinCut::kSource, operations + storage, weight(storage));
    }
    return plan_of(cut.solve());
  }

  CutPlan plan_of(const std::vector<bool>& sink_side) const {
    CutPlan plan;
    const size_t operations = model_.operations.size();
    plan.again.assign(sink_side.begin(), sink_side.begin() + static_cast<int64_t>(operations));
    for (size_t i = 0; i < operations; ++i) {
      if (plan.again[i]) plan.seconds += model_.operations[i].seconds;
    }
    for (size_t i = 0; i < model_.storages.size(); ++i) {
      const int maker = model_.storages[i].maker;
      const bool kept = sink_side[operations + i] && (maker < 0 || !plan.again[as_index(maker)]);
      if (kept) plan.bytes += static_cast<double>(weight(static_cast<int>(i)));
    }
    return plan;
  }

  const RecomputeModel& model_;
  double seconds_ = 0;
  double bytes_ = 0;
  int cuts_ = 0;
  std::vector<Again> plans_;
};

}  // namespace

std::vector<Again> cut_frontier(const RecomputeModel& model) { return CutFrontier(model).run(); }

}  // namespace epl

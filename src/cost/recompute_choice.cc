#include "cost/recompute_choice.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>

#include "cost/cut_frontier.h"

namespace epl {
namespace {

size_t at(int index) { return static_cast<size_t>(index); }

// Operations that are changed together, and how they look at the peak.
struct Move {
  std::vector<int> operations;
  double rank = 0;
};

class Search {
 public:
  explicit Search(const RecomputeModel& model) : model_(model), memory_(model) {
    for (size_t i = 0; i < model.operations.size(); ++i) {
      const auto& operation = model.operations[i];
      if (operation.repeatable) kinds_[operation.kind].push_back(static_cast<int>(i));
    }
    // By number of measurements and not by the clock: all workers make the same choice.
    constexpr size_t kMostEntries = 20'000'000;
    budget_ = static_cast<int>(kMostEntries / (2 * model.operations.size() + 100));
    left_ = budget_;
  }

  RecomputeChoice measured(Again again, int64_t limit) {
    RecomputeChoice choice;
    choice.outcome = memory_.measure(again, limit);
    choice.again = memory_.ran_again();
    choice.fits = choice.outcome.peak <= limit;
    --left_;
    return choice;
  }

  // Changes single operations at the peak until it is at most `limit`, or no change helps.
  RecomputeChoice fit(Again again, int64_t limit) {
    RecomputeChoice now = measured(std::move(again), limit);
    RecomputeChoice best = now;
    std::vector<int> changed_at(model_.operations.size(), -kTabu);
    int in_vain = 0;
    for (int move = 0; !now.fits && in_vain < kMostInVain && left_ > 0; ++move) {
      const auto next = best_move(now, limit, move, changed_at);
      if (!next) break;
      now = *next;
      const bool better = now.outcome.excess < best.outcome.excess;
      in_vain = better ? 0 : in_vain + 1;
      if (better || now.fits) best = now;
    }
    return best;
  }

  // Keeps again whatever costs most seconds a byte, as long as the peak stays within the limit.
  RecomputeChoice keep_more(RecomputeChoice choice, int64_t limit) {
    std::vector<int> order;
    for (size_t i = 0; i < choice.again.size(); ++i) {
      if (choice.again[i]) order.push_back(static_cast<int>(i));
    }
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      const double of_a = seconds_a_byte(a);
      const double of_b = seconds_a_byte(b);
      return of_a != of_b ? of_a > of_b : a > b;
    });
    left_ = budget_;
    size_t group = 1;
    for (size_t begin = 0; begin < order.size() && left_ > 0;) {
      const size_t end = std::min(order.size(), begin + group);
      Again tried = choice.again;
      for (size_t i = begin; i < end; ++i) tried[at(order[i])] = false;
      RecomputeChoice next = measured(std::move(tried), limit);
      if (next.fits && next.outcome.seconds <= choice.outcome.seconds) {
        choice = std::move(next);
        begin = end;
        group *= 2;
      } else if (group > 1) {
        group = std::max<size_t>(1, group / 4);
      } else {
        ++begin;
      }
    }
    return choice;
  }

 private:
  static constexpr int kTabu = 6;  // moves for which what was changed stays
  static constexpr int kMostInVain = 12;
  static constexpr size_t kMostDrops = 16;
  static constexpr size_t kMostKeeps = 8;

  double bytes_of(int operation) const {
    double bytes = 1;
    for (int storage : model_.operations[at(operation)].makes) {
      bytes += static_cast<double>(model_.storages[at(storage)].bytes);
    }
    return bytes;
  }

  double seconds_a_byte(int operation) const {
    return model_.operations[at(operation)].seconds / bytes_of(operation);
  }

  void add_best(std::vector<Move> found, size_t most, std::vector<Move>& moves) const {
    std::stable_sort(found.begin(), found.end(),
                     [](const Move& a, const Move& b) { return a.rank > b.rank; });
    if (found.size() > most) found.resize(most);
    for (auto& move : found) moves.push_back(std::move(move));
  }

  // All operations of the same kind in the same state: layers that repeat are changed at once.
  Move with_its_kind(const Move& move, const Again& again) const {
    Move all;
    const int first = move.operations[0];
    for (int other : kinds_.at(model_.operations[at(first)].kind)) {
      if (again[at(other)] == again[at(first)]) all.operations.push_back(other);
    }
    return all;
  }

  // What may change: kept values at the peak that backward reads, values at the peak that were made
  // again, and what was made again of values at the peak, which live for its sake.
  std::vector<Move> moves_at_peak(const Again& again, const std::vector<bool>& free) const {
    std::vector<Move> drops, keeps;
    std::vector<bool> seen(model_.operations.size(), false);
    std::vector<bool> at_peak(model_.storages.size(), false);
    for (int storage : memory_.alive_at_peak()) {
      at_peak[at(storage)] = true;
      const int maker = model_.storages[at(storage)].maker;
      const bool wanted = maker >= 0 && free[at(maker)] && !again[at(maker)] &&
                          model_.operations[at(maker)].repeatable && !seen[at(maker)];
      if (!wanted) continue;
      seen[at(maker)] = true;
      drops.push_back({{maker}, -seconds_a_byte(maker)});
    }
    const auto keep = [&](int operation) {
      if (!free[at(operation)] || seen[at(operation)]) return;
      seen[at(operation)] = true;
      keeps.push_back({{operation}, seconds_a_byte(operation)});
    };
    for (int storage : memory_.remade_at_peak()) keep(model_.storages[at(storage)].maker);
    for (size_t i = 0; i < again.size(); ++i) {
      if (!again[i]) continue;
      const auto& reads = model_.operations[i].reads;
      const bool reads_peak = std::any_of(reads.begin(), reads.end(),
                                          [&](int storage) { return at_peak[at(storage)]; });
      if (reads_peak) keep(static_cast<int>(i));
    }
    std::vector<Move> moves;
    add_best(std::move(drops), kMostDrops, moves);
    add_best(std::move(keeps), kMostKeeps, moves);
    return moves;
  }

  // The one that takes away most bytes above the limit for a second; where all add to them, the one
  // that adds least.
  std::optional<RecomputeChoice> best_move(const RecomputeChoice& now, int64_t limit, int number,
                                           std::vector<int>& changed_at) {
    std::vector<bool> free(changed_at.size());
    for (size_t i = 0; i < free.size(); ++i) free[i] = changed_at[i] + kTabu <= number;
    memory_.measure(now.again, limit);
    std::vector<Move> moves = moves_at_peak(now.again, free);
    const size_t singles = moves.size();
    for (size_t i = 0; i < singles; ++i) {
      Move all = with_its_kind(moves[i], now.again);
      if (all.operations.size() > 1) moves.push_back(std::move(all));
    }
    std::optional<RecomputeChoice> best;
    double best_rank = 0;
    const Move* chosen = nullptr;
    for (const Move& move : moves) {
      Again tried = now.again;
      for (int operation : move.operations) tried[at(operation)] = !tried[at(operation)];
      RecomputeChoice next = measured(std::move(tried), limit);
      const double rank = rank_of(now.outcome, next.outcome);
      if (best && rank <= best_rank) continue;
      best = std::move(next);
      best_rank = rank;
      chosen = &move;
    }
    if (chosen == nullptr) return std::nullopt;
    for (int operation : chosen->operations) changed_at[at(operation)] = number;
    return best;
  }

  static double rank_of(const RecomputeOutcome& now, const RecomputeOutcome& next) {
    const auto gain = static_cast<double>(now.excess - next.excess);
    if (gain <= 0) return gain - 1;
    return gain / std::max(next.seconds - now.seconds, 1e-9);
  }

  const RecomputeModel& model_;
  RecomputeMemory memory_;
  std::map<int, std::vector<int>> kinds_;
  int budget_ = 0;  // measurements that a part of the search may make
  int left_ = 0;    // of them
};

bool is_better(const RecomputeChoice& a, const RecomputeChoice& b) {
  if (a.fits != b.fits) return a.fits;
  if (!a.fits) return a.outcome.peak < b.outcome.peak;
  return a.outcome.seconds < b.outcome.seconds;
}

// Those next to the limit: the cheapest that keep it, and the lowest that do not.
std::vector<Again> near(const RecomputeModel& model, const std::vector<Again>& starts,
                        int64_t limit, size_t most) {
  Search search(model);
  std::vector<RecomputeChoice> within, above;
  for (const Again& start : starts) {
    RecomputeChoice choice = search.measured(start, limit);
    auto& found = choice.fits ? within : above;
    const bool known = std::any_of(found.begin(), found.end(),
                                   [&](const auto& other) { return other.again == choice.again; });
    if (!known) found.push_back(std::move(choice));
  }
  std::vector<Again> chosen;
  for (auto* choices : {&within, &above}) {
    std::stable_sort(choices->begin(), choices->end(), is_better);
    for (size_t i = 0; i < std::min(most, choices->size()); ++i) {
      chosen.push_back((*choices)[i].again);
    }
  }
  return chosen;
}

// The best that is found from the starts near the limit, without taking anything back.
RecomputeChoice lowest_of(const RecomputeModel& model, const std::vector<Again>& starts,
                          int64_t limit, size_t most) {
  std::optional<RecomputeChoice> best;
  for (const Again& start : near(model, starts, limit, most)) {
    Search search(model);
    RecomputeChoice found = search.fit(start, limit);
    if (!best || found.outcome.peak < best->outcome.peak) best = std::move(found);
  }
  return std::move(*best);
}

RecomputeChoice best_of(const RecomputeModel& model, const std::vector<Again>& starts,
                        int64_t limit) {
  constexpr size_t kMost = 4;
  std::optional<RecomputeChoice> best;
  for (const Again& start : near(model, starts, limit, kMost)) {
    Search search(model);
    RecomputeChoice found = search.fit(start, limit);
    if (found.fits) found = search.keep_more(std::move(found), limit);
    if (!best || is_better(found, *best)) best = std::move(found);
  }
  return std::move(*best);
}

}  // namespace

const std::vector<Again>& RecomputeChooser::starts() {
  if (starts_.empty()) {
    starts_ = cut_frontier(model_);
    starts_.emplace_back(model_.operations.size(), false);
  }
  return starts_;
}

RecomputeChoice RecomputeChooser::cheapest_within(int64_t limit) {
  RecomputeChoice best = best_of(model_, starts(), limit);
  if (best.fits) return best;
  best = least_memory();
  best.fits = best.outcome.peak <= limit;
  return best;
}

const RecomputeChoice& RecomputeChooser::least_memory() {
  if (!least_) least_ = find_least();
  return *least_;
}

// Downhill in ever smaller steps: a limit tells the search where memory is too high.
RecomputeChoice RecomputeChooser::find_least() {
  std::vector<Again> known = starts();
  RecomputeChoice best = lowest_of(model_, known, 0, 4);
  const auto descend = [&](int64_t limit, size_t most) {
    known.push_back(best.again);
    RecomputeChoice next = lowest_of(model_, known, limit, most);
    if (next.outcome.peak >= best.outcome.peak) return false;
    best = std::move(next);
    return true;
  };
  const auto part_of_peak = [&](double part) {
    return static_cast<int64_t>(part * static_cast<double>(best.outcome.peak));
  };
  const auto descend_by_steps = [&] {
    for (const double step : {0.9, 0.97, 0.99, 0.997}) {
      while (descend(part_of_peak(step), 2)) {
      }
    }
    constexpr int kMostTimes = 8;
    for (int i = 0; i < kMostTimes && descend(best.outcome.peak - 1, 4); ++i) {
    }
  };
  descend_by_steps();
  // Where the way down has led into a valley, a limit far below may lead into another one, from
  // where the frontier is.
  for (const double part : {1.0, 0.98, 0.95, 0.9, 0.84, 0.75}) {
    for (;;) {
      RecomputeChoice other = best_of(model_, starts(), part_of_peak(part) - 1);
      if (other.outcome.peak >= best.outcome.peak) break;
      best = std::move(other);
      descend_by_steps();
    }
  }
  Search search(model_);
  return search.keep_more(search.measured(best.again, best.outcome.peak), best.outcome.peak);
}

RecomputeChoice RecomputeChooser::all_again() const {
  Search search(model_);
  Again again;
  for (const auto& operation : model_.operations) again.push_back(operation.repeatable);
  const RecomputeChoice all = search.measured(std::move(again), 0);
  return search.keep_more(search.measured(all.again, all.outcome.peak), all.outcome.peak);
}

RecomputeChoice cheapest_within(const RecomputeModel& model, int64_t limit) {
  return RecomputeChooser(model).cheapest_within(limit);
}

RecomputeChoice least_memory(const RecomputeModel& model) {
  return RecomputeChooser(model).least_memory();
}

RecomputeChoice all_again(const RecomputeModel& model) {
  return RecomputeChooser(model).all_again();
}

}  // namespace epl

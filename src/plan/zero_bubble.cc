#include "plan/zero_bubble.h"

#include <algorithm>
#include <optional>

#include "plan/list_schedule.h"

namespace epl {
namespace {

constexpr int kWorkOfSearch = 1'500'000;  // about a second

// Part of a mean task that a transfer takes at least. Where all tasks cost the same, a step without
// delays is as short as one that is planned for none, and delays of this size cost no more than
// once each way; planned for none, every micro batch would have to pay for them.
constexpr double kLeastTransfer = 0.1;

double mean_task(const std::vector<TaskCosts>& costs) {
  double sum = 0;
  for (const TaskCosts& cost : costs) sum += cost.forward + cost.backward + cost.weights;
  return sum / (3 * static_cast<double>(costs.size()));
}

struct Found {
  ListPolicy policy;
  ListedSchedule listed;
  int in_flight = 0;  // of all chunks together
};

// A shorter step is better; of equally short ones the one that needs less memory.
bool is_better(const Found& a, const Found& b) {
  const double same = 1e-9 * b.listed.seconds;
  if (a.listed.seconds < b.listed.seconds - same) return true;
  return a.listed.seconds < b.listed.seconds + same && a.in_flight < b.in_flight;
}

// Looks for the limits with which list_schedule() gives the best schedule: from several starts, one
// limit after another is moved by one as long as that helps.
class Search {
 public:
  Search(Schedule frame, const ScheduleRequest& request)
      : frame_(std::move(frame)),
        costs_(request.costs),
        most_(limit_of(request)),
        transfer_(std::max(request.transfer, kLeastTransfer * mean_task(costs_))),
        looks_left_(kWorkOfSearch / work_of_a_look()) {
    frame_.splits_backward = true;
  }

  Schedule run() {
    // A start without limits but that of memory mostly ends with the least memory. One with as many
    // forwards as fill the way to the last stage and back, or the way there alone, is sometimes
    // shorter: fewer forwards stand in the way of a backward.
    const int chunks = frame_.chunks();
    for (const int ways : {most_, 2, 1}) {
      for (const double patience : {0.0, 0.5, 1.0}) {
        ListPolicy policy;
        policy.transfer = transfer_;
        policy.patience = patience;
        policy.most_in_flight.assign(frame_.stage_of_chunk.size(), most_);
        for (int chunk = 0; chunk < chunks; ++chunk) {
          policy.most_active.push_back(bounded(ways * (chunks - 1 - chunk) + 1));
        }
        climb_from(policy);
      }
    }
    return std::move(best_->listed.schedule);
  }

 private:
  using Limits = std::vector<int> ListPolicy::*;

  static int limit_of(const ScheduleRequest& request) {
    const int chunks = request.stages * request.chunks_per_stage;
    const int most = request.most_in_flight > 0 ? request.most_in_flight : 2 * chunks - 1;
    return std::min(most, request.micro_batches);
  }

  // Tasks, each of which is compared with the next ones of all chunks of its stage.
  int work_of_a_look() const {
    const int chunks_per_stage = frame_.chunks() / static_cast<int>(frame_.stages.size());
    return 3 * frame_.chunks() * frame_.micro_batches * chunks_per_stage;
  }

  int bounded(int limit) const { return std::clamp(limit, 1, most_); }

  Found look_at(const ListPolicy& policy) {
    Found found{policy, list_schedule(frame_, costs_, policy)};
    for (int count : found.listed.schedule.in_flight) found.in_flight += count;
    --looks_left_;
    return found;
  }

  void climb_from(const ListPolicy& policy) {
    if (best_ && looks_left_ <= 0) return;
    Found found = look_at(policy);
    lower_all(found);
    while (improve(found)) {
    }
    if (!best_ || is_better(found, *best_)) best_ = std::move(found);
  }

  // One limit of memory for all chunks: the lowest with which the step is not longer, by halving.
  void lower_all(Found& found) {
    for (int low = 1, high = most_; low < high && looks_left_ > 0;) {
      const int middle = (low + high) / 2;
      ListPolicy policy = found.policy;
      std::fill(policy.most_in_flight.begin(), policy.most_in_flight.end(), middle);
      Found lowered = look_at(policy);
      if (is_better(lowered, found)) {
        found = std::move(lowered);
        high = middle;
      } else {
        low = middle + 1;
      }
    }
  }

  // Moves each limit as far as it helps; false where none did.
  bool improve(Found& found) {
    bool improved = false;
    for (const Limits limits : {&ListPolicy::most_in_flight, &ListPolicy::most_active}) {
      for (size_t chunk = frame_.stage_of_chunk.size(); chunk-- > 0;) {
        for (const int change : {-1, 1}) {
          while (improve(found, limits, chunk, change)) improved = true;
        }
      }
    }
    return improved;
  }

  bool improve(Found& found, Limits limits, size_t chunk, int change) {
    ListPolicy policy = found.policy;
    int& limit = (policy.*limits)[chunk];
    const int before = limit;
    limit = bounded(before + change);
    if (limit == before || looks_left_ <= 0) return false;
    Found changed = look_at(policy);
    const bool better = is_better(changed, found);
    if (better) found = std::move(changed);
    return better;
  }

  Schedule frame_;
  const std::vector<TaskCosts>& costs_;
  const int most_;  // in flight in a chunk
  const double transfer_;
  int looks_left_;  // so that the search takes a moment at most, however large the schedule is
  std::optional<Found> best_;
};

}  // namespace

Schedule zero_bubble(Schedule frame, const ScheduleRequest& request) {
  return Search(std::move(frame), request).run();
}

}  // namespace epl

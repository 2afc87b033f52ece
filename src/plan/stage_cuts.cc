#include "plan/stage_cuts.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "base/check.h"
#include "plan/stage_model.h"
#include "plan/stage_text.h"

namespace epl {
namespace {

constexpr double kImpossible = std::numeric_limits<double>::infinity();

// What a part costs as chunk number `chunk`.
class Prices {
 public:
  Prices(const StageModel& model, const StageCutsRequest& request)
      : request_(request), seconds_before_(1, 0) {
    for (double seconds : model.seconds)
      seconds_before_.push_back(seconds_before_.back() + seconds);
  }

  double seconds(int begin, int end) const { return at(end) - at(begin); }

  double pace(int begin, int end, int64_t received) const {
    return seconds(begin, end) + static_cast<double>(received) / request_.bytes_per_second;
  }

  double memory(int chunk, int64_t parameters, int64_t state, int64_t saved) const {
    return static_cast<double>(parameters) * (2 + request_.optimizer_state) +
           static_cast<double>(state) +
           static_cast<double>(saved) * request_.rows *
               request_.in_flight[static_cast<size_t>(chunk)];
  }

 private:
  double at(int position) const { return seconds_before_[static_cast<size_t>(position)]; }

  const StageCutsRequest& request_;
  std::vector<double> seconds_before_;  // by position, and behind the last one
};

// All parts that end at one position, while it moves from the first to the last.
struct Parts {
  explicit Parts(const StageModel& model)
      : received(model.received, model.positions()),
        parameters(model.parameters, model.positions()),
        state(model.state, model.positions()),
        saved(model.saved, model.positions()) {}

  void extend() {
    for (PartBytes* bytes : {&received, &parameters, &state, &saved}) bytes->extend();
  }

  PartBytes received, parameters, state, saved;
};

// Where the chunks begin: position 0 first.
using Begins = std::vector<int>;

// The cut into so many chunks that costs least, or none. The best cut into chunks [0, c] of the
// positions before `end` is found, for all c and end, from the best ones with a chunk less: since
// what a part costs depends on the part alone, dynamic programming over its ends finds the best of
// all. `extend(cost, chunk, begin, end, parts)` gives the cost with one more part behind a cut of
// `cost`, or kImpossible where the part may not be; `hopeless(begin, end, cost)` is whether no part
// that begins at or before `begin` can cost less than that.
template <typename Extend, typename Hopeless>
std::optional<Begins> find_best(const StageModel& model, int chunks, const Extend& extend,
                                const Hopeless& hopeless) {
  const int positions = model.positions();
  struct Best {
    double cost = kImpossible;
    int begin = -1;  // of the last chunk
  };
  std::vector<std::vector<Best>> best(static_cast<size_t>(chunks) + 1,
                                      std::vector<Best>(static_cast<size_t>(positions) + 1));
  best[0][0].cost = 0;
  Parts parts(model);
  for (int end = 1; end <= positions; ++end) {
    parts.extend();
    for (int chunk = 0; chunk < chunks; ++chunk) {
      if (end < positions && chunk + 1 == chunks) continue;  // the last one ends at the end
      const std::vector<Best>& before = best[static_cast<size_t>(chunk)];
      Best& found = best[static_cast<size_t>(chunk) + 1][static_cast<size_t>(end)];
      // Downwards, ties to the earlier one: right behind the last operator that costs anything,
      // before the views that prepare the next one.
      for (int begin = chunk == 0 ? 0 : end - 1; begin >= chunk; --begin) {
        if (hopeless(begin, end, found.cost)) break;
        const double cost = before[static_cast<size_t>(begin)].cost;
        if (cost > found.cost || cost == kImpossible) continue;
        const double with_part = extend(cost, chunk, begin, end, parts);
        if (with_part <= found.cost && with_part < kImpossible) found = {with_part, begin};
      }
    }
  }
  Begins begins;
  int end = positions;
  for (int chunk = chunks; chunk > 0; --chunk) {
    const Best& last = best[static_cast<size_t>(chunk)][static_cast<size_t>(end)];
    if (last.begin < 0) return std::nullopt;
    begins.push_back(last.begin);
    end = last.begin;
  }
  std::reverse(begins.begin(), begins.end());
  return begins;
}

// What a level of awkwardness may cost: as much as a cut that lies off the middle between two
// stages by two percent of what they take.
constexpr double kAwkwardness = 0.001;

double pace_of(const std::vector<ChosenChunk>& chunks) {
  double pace = 0;
  for (const ChosenChunk& chunk : chunks) pace = std::max(pace, chunk.pace);
  return pace;
}

class Chooser {
 public:
  Chooser(const StageModel& model, const StageCutsRequest& request)
      : model_(model),
        request_(request),
        prices_(model, request),
        chunks_(request.stages * request.chunks_per_stage) {}

  Begins choose() const {
    if (request_.device_bytes == 0) return *within(kImpossible);
    // A device holds all chunks of its stage. Chunks that may not take more than so many parts of
    // it each are tried until they fit together.
    const double device = static_cast<double>(request_.device_bytes);
    for (int parts = 1; parts <= request_.chunks_per_stage; ++parts) {
      const std::optional<Begins> begins = within(device / parts);
      if (begins && fits(*begins)) return *begins;
    }
    // With several chunks a stage the even shares above need not find every cut that fits.
    const Begins begins = leanest();
    if (!fits(begins)) refuse(begins);
    return begins;
  }

  std::vector<ChosenChunk> describe(const Begins& begins) const {
    std::vector<ChosenChunk> result;
    for (int chunk = 0; chunk < chunks_; ++chunk) {
      const int begin = begins[static_cast<size_t>(chunk)];
      const int end =
          chunk + 1 < chunks_ ? begins[static_cast<size_t>(chunk) + 1] : model_.positions();
      result.push_back(describe(chunk, begin, end));
    }
    return result;
  }

  // By stage, all of its chunks together.
  std::vector<int64_t> device_bytes(const Begins& begins) const {
    std::vector<int64_t> bytes(static_cast<size_t>(request_.stages));
    const std::vector<ChosenChunk> chunks = describe(begins);
    for (size_t i = 0; i < chunks.size(); ++i) bytes[i % bytes.size()] += chunks[i].device_bytes;
    return bytes;
  }

 private:
  ChosenChunk describe(int chunk, int begin, int end) const {
    ChosenChunk result;
    result.first_call = model_.calls[static_cast<size_t>(begin)];
    result.operators =
        std::accumulate(model_.operators.begin() + begin, model_.operators.begin() + end, 0);
    result.seconds = prices_.seconds(begin, end);
    result.received_bytes = bytes_of_part(model_.received, begin, end);
    result.parameter_bytes = bytes_of_part(model_.parameters, begin, end);
    result.saved_bytes = bytes_of_part(model_.saved, begin, end);
    const int64_t state = bytes_of_part(model_.state, begin, end);
    result.device_bytes = static_cast<int64_t>(
        prices_.memory(chunk, result.parameter_bytes, state, result.saved_bytes));
    result.pace = prices_.pace(begin, end, result.received_bytes);
    for (int64_t* bytes : {&result.received_bytes, &result.saved_bytes}) {
      *bytes = static_cast<int64_t>(static_cast<double>(*bytes) * request_.rows);
    }
    return result;
  }

  double memory(int chunk, int begin, const Parts& parts) const {
    return prices_.memory(chunk, parts.parameters[begin], parts.state[begin], parts.saved[begin]);
  }

  // The best cut whose chunks take at most so many bytes each.
  std::optional<Begins> within(double bytes) const {
    const bool limited = bytes < kImpossible;
    const auto too_large = [&](int chunk, int begin, const Parts& parts) {
      return limited && memory(chunk, begin, parts) > bytes;
    };
    const std::optional<Begins> fastest = find_best(
        model_, chunks_,
        [&](double pace, int chunk, int begin, int end, const Parts& parts) {
          if (too_large(chunk, begin, parts)) return kImpossible;
          return std::max(pace, prices_.pace(begin, end, parts.received[begin]));
        },
        [&](int begin, int end, double pace) { return prices_.seconds(begin, end) > pace; });
    if (!fastest) return std::nullopt;
    // Sums of the same costs in another order differ in their last bits.
    const double tolerance = std::max(request_.tolerance, 1e-9);
    const double limit = pace_of(describe(*fastest)) * (1 + tolerance);
    const double mean = std::max(prices_.seconds(0, model_.positions()) / chunks_, 1e-12);
    return find_best(
        model_, chunks_,
        [&](double squares, int chunk, int begin, int end, const Parts& parts) {
          const double pace = prices_.pace(begin, end, parts.received[begin]);
          if (pace > limit || too_large(chunk, begin, parts)) return kImpossible;
          return squares + pace / mean * (pace / mean) + kAwkwardness * model_.awkwardness(begin);
        },
        [&](int begin, int end, double) { return prices_.seconds(begin, end) > limit; });
  }

  bool fits(const Begins& begins) const {
    const std::vector<int64_t> bytes = device_bytes(begins);
    return *std::max_element(bytes.begin(), bytes.end()) <= request_.device_bytes;
  }

  Begins leanest() const {
    return *find_best(
        model_, chunks_,
        [&](double most, int chunk, int begin, int, const Parts& parts) {
          return std::max(most, memory(chunk, begin, parts));
        },
        [](int, int, double) { return false; });
  }

  // Sizes that look alike are told to the byte.
  [[noreturn]] void refuse(const Begins& begins) const {
    const std::vector<int64_t> bytes = device_bytes(begins);
    const int64_t device = request_.device_bytes;
    const bool alike = std::any_of(bytes.begin(), bytes.end(), [&](int64_t each) {
      return each > device && human_bytes(each) == human_bytes(device);
    });
    const auto text = [&](int64_t each) { return alike ? concat(each, " B") : human_bytes(each); };
    std::vector<std::string> needed;
    for (int64_t each : bytes) needed.push_back(text(each));
    throw Error(
        concat("no cut of the step into ", request_.stages,
               " stages fits into its devices: the leanest one takes ", join(needed, ", "),
               " for parameters, gradients, optimizer state and what ",
               join(request_.in_flight, ", "),
               " micro batches in flight save for backward, and a device has ", text(device)),
        request_.asked_by,
        "more stages (pipeline.num_stages), more and so smaller micro batches "
        "(pipeline.num_micro_batch), or an optimizer with less state");
  }

  const StageModel& model_;
  const StageCutsRequest& request_;
  const Prices prices_;
  const int chunks_;
};

void check_request(const StageCutsRequest& request, const StageModel& model) {
  EPL_ASSERT(request.stages >= 1 && request.chunks_per_stage >= 1 && request.micro_batches >= 1,
             "a pipeline has at least one of each");
  EPL_ASSERT(request.bytes_per_second > 0, "a transfer takes time");
  const int chunks = request.stages * request.chunks_per_stage;
  EPL_ASSERT(request.in_flight.size() == static_cast<size_t>(chunks), "one number a chunk");
  EPL_CHECK(chunks <= model.positions(),
            concat("a step of ", model.positions(), " forward operators cannot be cut into ",
                   chunks, request.chunks_per_stage > 1 ? " chunks" : " stages"),
            request.asked_by, "fewer stages (pipeline.num_stages)");
}

std::vector<int> in_flight_of_1f1b(int chunks, int micro_batches) {
  std::vector<int> result;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    result.push_back(std::min(micro_batches, chunks - chunk));
  }
  return result;
}

// The first micro batch passes all stages, every further one comes a pace behind. A stage with
// several chunks lets the next one begin after the first of them.
void find_times(StageCuts& cuts, const StageCutsRequest& request) {
  std::vector<double> stages(static_cast<size_t>(request.stages));
  double all = 0;
  double slowest_chunk = 0;
  for (size_t i = 0; i < cuts.chunks.size(); ++i) {
    stages[i % stages.size()] += cuts.chunks[i].pace;
    all += cuts.chunks[i].pace;
    slowest_chunk = std::max(slowest_chunk, cuts.chunks[i].pace);
  }
  cuts.pace = *std::max_element(stages.begin(), stages.end());
  cuts.step = cuts.pace * request.micro_batches + all / request.chunks_per_stage - slowest_chunk;
}

}  // namespace

StageCuts choose_stage_cuts(const Graph& graph, const NodeCosts& costs,
                            const StageCutsRequest& asked) {
  StageCutsRequest request = asked;
  if (request.in_flight.empty()) {
    request.in_flight =
        in_flight_of_1f1b(request.stages * request.chunks_per_stage, request.micro_batches);
  }
  const StageModel model = make_stage_model(graph, costs);
  check_request(request, model);
  const Chooser chooser(model, request);
  const Begins begins = chooser.choose();

  StageCuts result;
  result.chunks = chooser.describe(begins);
  find_times(result, request);
  for (size_t i = 1; i < begins.size(); ++i) {
    result.cuts.push_back(model.calls[static_cast<size_t>(begins[i])]);
  }
  result.explanation = explain_stages(model, begins, result, request, costs.measured);
  return result;
}

}  // namespace epl

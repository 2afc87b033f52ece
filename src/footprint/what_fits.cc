#include "footprint/what_fits.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "config/checks.h"
#include "config/config_keys.h"
#include "config/settings.h"

namespace epl {
namespace {

constexpr const char* kLimitKey = "memory.limit";
constexpr const char* kCheckpointKey = "gradient_checkpoint.type";
constexpr const char* kMicroBatchKey = "pipeline.num_micro_batch";

struct Candidate {
  std::vector<Setting> changes;
  // What is tried where no plan keeps to the changes: as few bytes as can be.
  std::vector<Setting> least = {};
  std::string note = {};
  bool changes_numbers = false;
  bool cuts_rows = false;
};

Setting change(const std::string& key, ConfigValue value) {
  return {key, std::move(value), SourceLocation{"epl::Trainer::what_fits", 0}};
}

std::string joined(const std::string& a, const std::string& b) {
  return a.empty() || b.empty() ? a + b : a + "; " + b;
}

std::vector<Setting> joined(std::vector<Setting> a, const std::vector<Setting>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Candidate both(const Candidate& a, const Candidate& b) {
  Candidate pair;
  pair.changes = joined(a.changes, b.changes);
  if (!a.least.empty() || !b.least.empty()) {
    pair.least =
        joined(a.least.empty() ? a.changes : a.least, b.least.empty() ? b.changes : b.least);
  }
  pair.note = joined(a.note, b.note);
  pair.changes_numbers = a.changes_numbers || b.changes_numbers;
  pair.cuts_rows = a.cuts_rows || b.cuts_rows;
  return pair;
}

bool share_a_key(const Candidate& a, const Candidate& b) {
  return std::any_of(a.changes.begin(), a.changes.end(), [&](const Setting& one) {
    return std::any_of(b.changes.begin(), b.changes.end(),
                       [&](const Setting& other) { return one.key == other.key; });
  });
}

// Where the program marks what is kept, EPL chooses instead.
Candidate recomputation(const Config& config, int64_t limit) {
  Candidate made;
  const Setting chooses = change(kCheckpointKey, "auto");
  if (config.get<std::string>(kCheckpointKey) == "collection") made.changes.push_back(chooses);
  made.changes.push_back(change(kLimitKey, limit));
  made.least = {chooses};
  return made;
}

// The values behind the one that is set.
std::vector<Candidate> further_levels(const Config& config, const char* key,
                                      const std::string& note) {
  const std::vector<std::string>& words = config_keys()[find_config_key(key)].domain.words;
  auto word = std::find(words.begin(), words.end(), config.get<std::string>(key));
  std::vector<Candidate> found;
  while (word != words.end() && ++word != words.end()) {
    found.push_back({{change(key, *word)}, {}, note});
  }
  return found;
}

std::vector<Candidate> further_zero_levels(const Config& config) {
  const char* const key = "zero.level";
  std::vector<Candidate> found = further_levels(config, key, "parameters travel after the update");
  for (Candidate& each : found) {
    if (!cuts_parameters(config.with(each.changes))) continue;
    each.note = "parameters travel in each step, and are whole between steps on request alone";
  }
  return found;
}

Candidate twice_the_micro_batches(const Config& config) {
  Candidate cut;
  cut.changes = {change(kMicroBatchKey, 2 * config.get<int64_t>(kMicroBatchKey))};
  cut.note = "sums and random numbers in another order";
  cut.cuts_rows = true;
  return cut;
}

Candidate mixed_precision_too() {
  Candidate lower;
  lower.changes = {change("amp.level", "O1")};
  lower.note = "other numbers: products in lower precision, whose speed the time does not know";
  lower.changes_numbers = true;
  return lower;
}

std::optional<Config> changed(const Config& config, const std::vector<Setting>& changes,
                              bool several_workers) {
  try {
    Config made = config.with(changes);
    check_available(made);
    check_available_on(several_workers ? 2 : 1, made);
    check_has_effect(made);
    return made;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string first_line(const std::exception& error) {
  std::string text = error.what();
  text = text.substr(0, text.find('\n'));
  const std::string prefix = "epl: ";
  return text.rfind(prefix, 0) == 0 ? text.substr(prefix.size()) : text;
}

class Fitting {
 public:
  explicit Fitting(const FittingRequest& request)
      : request_(request), base_(request.config.without(kLimitKey)) {}

  FittingReport run() {
    report_.limit = request_.limit;
    add_now();
    if (!report_.rows[0].fits) add_changes();
    report_.best = best();
    return std::move(report_);
  }

 private:
  // A limit that cannot be kept is mostly why somebody asks.
  void add_now() {
    FittingChange now;
    PlannedNeed need;
    try {
      need = request_.plan(request_.config);
    } catch (const JobFailed&) {
      throw;
    } catch (const Error&) {
      if (request_.config.get<int64_t>(kLimitKey) == 0) throw;
      need = request_.plan(base_);
      now.note = concat("without ", kLimitKey);
    }
    now_seconds_ = need.seconds;
    fill(need, now);
    report_.rows.push_back(std::move(now));
  }

  std::vector<Candidate> candidates() const {
    std::vector<Candidate> found = {recomputation(base_, request_.limit)};
    const auto add = [&](const std::vector<Candidate>& more) {
      std::copy_if(more.begin(), more.end(), std::back_inserter(found), [&](const auto& each) {
        return changed(base_, each.changes, request_.several_workers).has_value();
      });
    };
    if (request_.several_workers) {
      add(further_zero_levels(base_));
    }
    if (request_.rows_can_be_halved) add({twice_the_micro_batches(base_)});
    // Not from nothing: without a folder nothing would be saved on devices of the CPU.
    const bool has_file = !base_.get<std::string>("offload.path").empty();
    if (has_file || !base_.get<std::string>("offload.level").empty()) {
      add(further_levels(base_, "offload.level", "parameters travel in each step"));
    }
    if (!mixes_precisions(base_)) add({mixed_precision_too()});
    return found;
  }

  void add_changes() {
    const std::vector<Candidate> all = candidates();
    for (const Candidate& each : all) add(each);
    const std::vector<FittingChange> alone(report_.rows.begin() + 1, report_.rows.end());
    const bool keeps_all = base_.get<std::string>(kCheckpointKey).empty();
    for (size_t i = 0; i < all.size(); ++i) {
      for (size_t j = i + 1; j < all.size(); ++j) {
        // Within a limit that is kept without it nothing runs again.
        const bool same = i == 0 && alone[j].fits && keeps_all;
        const bool planned = alone[i].bytes > 0 && alone[j].bytes > 0;
        if (same || !planned || share_a_key(all[i], all[j])) continue;
        const Candidate pair = both(all[i], all[j]);
        if (changed(base_, pair.changes, request_.several_workers)) add(pair);
      }
    }
  }

  void add(const Candidate& candidate) { report_.rows.push_back(row_of(candidate)); }

  FittingChange row_of(const Candidate& candidate) const {
    FittingChange row;
    row.changes = candidate.changes;
    row.note = candidate.note;
    row.changes_numbers = candidate.changes_numbers;
    try {
      const PlannedNeed need =
          request_.plan(*changed(base_, candidate.changes, request_.several_workers));
      fill(need, row);
      if (candidate.cuts_rows && !need.by_rows.empty()) {
        row.changes_numbers = true;
        row.note = joined("other numbers: " + need.by_rows, row.note);
      }
    } catch (const JobFailed&) {
      throw;
    } catch (const std::exception& error) {
      if (!candidate.least.empty() && changed(base_, candidate.least, request_.several_workers)) {
        Candidate other = candidate;
        other.changes = std::exchange(other.least, {});
        return row_of(other);
      }
      row.note = first_line(error);
    }
    return row;
  }

  void fill(const PlannedNeed& need, FittingChange& row) const {
    row.bytes = need.bytes;
    row.seconds_vs_now = now_seconds_ > 0 ? need.seconds / now_seconds_ : 1;
    row.fits = need.bytes <= request_.limit;
  }

  // Of rows that are equal the first, which changes less.
  size_t best() const {
    const auto& rows = report_.rows;
    const auto rank = [&](const FittingChange& row) {
      return row.fits
                 ? std::make_tuple(0, row.changes_numbers, row.seconds_vs_now)
                 : std::make_tuple(row.bytes > 0 ? 1 : 2, false, static_cast<double>(row.bytes));
    };
    const auto found = std::min_element(
        rows.begin(), rows.end(),
        [&](const FittingChange& a, const FittingChange& b) { return rank(a) < rank(b); });
    return static_cast<size_t>(found - rows.begin());
  }

  const FittingRequest& request_;
  const Config base_;  // what is changed: without a limit
  FittingReport report_;
  double now_seconds_ = 0;
};

}  // namespace

FittingReport what_fits(const FittingRequest& request) {
  EPL_CHECK(request.limit > 0, concat("a limit of ", request.limit, " bytes a device"),
            "epl::Trainer::what_fits", "a number above 0");
  return Fitting(request).run();
}

}  // namespace epl

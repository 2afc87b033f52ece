#include "io/slice.h"

#include <epl/env.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/check.h"
#include "base/text.h"
#include "io/shares.h"

namespace epl {
namespace {

constexpr const char* kSlicing = "io.slicing";
constexpr const char* kDrop = "io.drop_last_files";
constexpr const char* kUnbalanced = "io.unbalanced_io_slicing";

// Replicas in their smallest terms: worker w reads unit[w] files of each round.
std::vector<int64_t> files_of_round(const WorkerShares& shares) {
  int64_t common = 0;
  for (const int replicas : shares.replicas) common = std::gcd(common, int64_t{replicas});
  std::vector<int64_t> unit;
  for (const int replicas : shares.replicas) unit.push_back(replicas / common);
  return unit;
}

int64_t sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

// Exact shares, rounded down, then up for as many workers as there are files left.
std::vector<int64_t> rounded_shares(int64_t files, const std::vector<int64_t>& unit) {
  const int64_t round = sum(unit);
  std::vector<int64_t> counts;
  std::vector<size_t> order;  // who is rounded up first
  for (const int64_t share : unit) {
    order.push_back(counts.size());
    counts.push_back(files * share / round);
  }
  const auto claim = [&](size_t worker) {
    return std::make_tuple(counts[worker] > 0, -(files * unit[worker] % round), worker);
  };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return claim(a) < claim(b); });
  order.resize(files - sum(counts));
  for (const size_t worker : order) ++counts[worker];
  return counts;
}

// init() has refused both at once.
FileRemainder remainder_of(const Config& config) {
  const bool drop = config.get<bool>(kDrop);
  const bool unbalanced = config.get<bool>(kUnbalanced);
  if (drop) return FileRemainder::kDrop;
  return unbalanced ? FileRemainder::kUnbalanced : FileRemainder::kError;
}

}  // namespace

std::vector<int64_t> files_per_worker(int64_t files, const WorkerShares& shares,
                                      FileRemainder remainder) {
  std::vector<int64_t> unit = files_of_round(shares);
  if (remainder == FileRemainder::kUnbalanced) return rounded_shares(files, unit);
  const int64_t rounds = files / sum(unit);
  for (int64_t& share : unit) share *= rounds;
  return unit;
}

namespace {

// The first worker without a file, or -1.
int64_t worker_without_file(int64_t files, const WorkerShares& shares, FileRemainder remainder) {
  const std::vector<int64_t> counts = files_per_worker(files, shares, remainder);
  const auto found = std::find(counts.begin(), counts.end(), 0);
  return found == counts.end() ? -1 : found - counts.begin();
}

// Every worker must have a file, and without an option the cut must be even. The hint names only
// options that would help.
void check_cut(int64_t files, const WorkerShares& shares, FileRemainder remainder,
               const std::string& asked_by) {
  const auto helps = [&](FileRemainder option) {
    return option != remainder && worker_without_file(files, shares, option) < 0;
  };
  const int64_t round = sum(files_of_round(shares));
  const int64_t left = files % round;
  const int64_t empty = worker_without_file(files, shares, remainder);
  const bool uneven = remainder == FileRemainder::kError && left != 0;
  if (!uneven && empty < 0) return;

  std::vector<std::string> hints;
  if (uneven && helps(FileRemainder::kDrop)) {
    hints.push_back(concat(kDrop, " = true, which leaves out the last ", left));
  }
  if (helps(FileRemainder::kUnbalanced)) {
    hints.push_back(concat(kUnbalanced, " = true, which gives some workers one more"));
  }
  if (hints.empty()) {
    hints.push_back(concat("more files, or ", kSlicing,
                           " = false with an epl::DistributedSampler, which cuts rows"));
  }
  throw Error(concat(files, files == 1 ? " file" : " files", " cannot be cut ",
                     uneven ? "evenly " : "", "over ", str(shares), ": ",
                     uneven ? concat("that takes a multiple of ", round)
                            : concat("worker ", empty, " would have none")),
              asked_by, join(hints, ", or "));
}

}  // namespace

std::vector<std::string> slice_files(const std::vector<std::string>& files,
                                     const WorkerShares& shares, FileRemainder remainder,
                                     const std::string& asked_by) {
  check_shares(shares);
  const int64_t file_count = static_cast<int64_t>(files.size());
  check_cut(file_count, shares, remainder, asked_by);
  const std::vector<int64_t> unit = files_of_round(shares);
  const std::vector<int64_t> counts = files_per_worker(file_count, shares, remainder);

  // Whole rounds first, then this worker's part of what is left.
  const size_t worker = static_cast<size_t>(shares.worker);
  const int64_t round = sum(unit);
  const int64_t rounds = file_count / round;
  std::vector<std::string> mine;
  int64_t next = std::accumulate(unit.begin(), unit.begin() + shares.worker, int64_t{0});
  for (int64_t i = 0; i < rounds; ++i, next += round) {
    mine.insert(mine.end(), files.begin() + next, files.begin() + next + unit[worker]);
  }
  next = rounds * round;
  for (size_t i = 0; i < worker; ++i) next += counts[i] - rounds * unit[i];
  const int64_t extra = counts[worker] - rounds * unit[worker];
  mine.insert(mine.end(), files.begin() + next, files.begin() + next + extra);
  return mine;
}

std::vector<std::string> slice_files(const std::vector<std::string>& files, SourceLocation where) {
  const Config& config = Env::get(where).config;
  if (!config.get<bool>(kSlicing)) return files;
  const FileRemainder remainder = remainder_of(config);
  return slice_files(
      files, worker_shares(where), remainder,
      concat("epl::slice_files() at ", where.str(), "\n            ", config.asked_by(kSlicing)));
}

}  // namespace epl

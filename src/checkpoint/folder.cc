#include "checkpoint/folder.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/check.h"
#include "checkpoint/damage.h"
#include "checkpoint/reader.h"

namespace epl {
namespace {

namespace fs = std::filesystem;

const char* const kPartial = ".partial";
const char* const kPrefix = "step-";

std::string step_name(int64_t step) {
  char text[32];
  std::snprintf(text, sizeof text, "%s%08lld", kPrefix, static_cast<long long>(step));
  return text;
}

// The step whose folder has this name; none for other names.
std::optional<int64_t> step_of(const std::string& name) {
  const std::string prefix = kPrefix;
  if (name.compare(0, prefix.size(), prefix) != 0) return std::nullopt;
  const std::string digits = name.substr(prefix.size());
  if (digits.size() < 8 || digits.size() > 18) return std::nullopt;
  if (digits.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  const int64_t step = std::stoll(digits);
  if (step_name(step) != name) return std::nullopt;  // two names of one step
  return step;
}

[[noreturn]] void cannot(const std::string& what, const std::string& path,
                         const std::string& reason) {
  throw Error(concat("cannot ", what, " ", path, ": ", reason), "saving a checkpoint",
              "a folder that may be written and has room");
}

void remove_folder(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) cannot("remove", path, error.message());
}

void rename_path(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) cannot("rename", from, std::strerror(errno));
}

// A folder cannot be renamed to one that is not empty; the two change their names at once, so that
// there is one at any time.
void replace_folder(const std::string& from, const std::string& to) {
  if (!fs::exists(to)) return rename_path(from, to);
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) != 0) {
    cannot("replace", to, std::strerror(errno));
  }
}

void write_text_file(const std::string& path, const std::string& text) {
  const std::string unfinished = path + kPartial;
  std::remove(unfinished.c_str());
  CheckedFileWriter file(unfinished);
  file.write(text.data(), text.size());
  file.finish();
  rename_path(unfinished, path);
}

// Under another name first: what is half removed is no checkpoint.
void remove_step(const SavedStep& saved) {
  const std::string partial = saved.path + kPartial;
  remove_folder(partial);
  rename_path(saved.path, partial);
  remove_folder(partial);
}

void remove_partial_before(const std::string& folder, int64_t step) {
  std::error_code error;
  std::vector<std::string> leftovers;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const size_t end = name.rfind(kPartial);
    if (end == std::string::npos || end + std::strlen(kPartial) != name.size()) continue;
    const auto of = step_of(name.substr(0, end));
    if (of && *of < step) leftovers.push_back(entry.path().string());
  }
  for (const std::string& path : leftovers) remove_folder(path);
}

bool is_good(const SavedStep& saved) { return faults_of_step(saved.path).empty(); }

// Those that are to stay by their numbers, and a good one.
std::set<int64_t> steps_that_stay(const std::vector<SavedStep>& steps, const Retention& retention) {
  std::set<int64_t> stay;
  const auto first_last = static_cast<int64_t>(steps.size()) - retention.keep_last;
  for (size_t i = 0; i < steps.size(); ++i) {
    const int64_t step = steps[i].step;
    const bool is_kept = retention.keep_every > 0 && step % retention.keep_every == 0;
    if (static_cast<int64_t>(i) >= first_last || is_kept) stay.insert(step);
  }
  if (stay.size() == steps.size()) return stay;
  // Newest first, as a job that resumes asks.
  const auto asked = [&](bool staying) {
    for (size_t i = steps.size(); i-- > 0;) {
      if ((stay.count(steps[i].step) != 0) == staying && is_good(steps[i])) return steps[i].step;
    }
    return int64_t{-1};
  };
  if (asked(true) >= 0) return stay;
  if (const int64_t good = asked(false); good >= 0) stay.insert(good);
  return stay;
}

}  // namespace

std::string begin_step(const std::string& folder, int64_t step) {
  EPL_ASSERT(step >= 0, "the number of a step");
  const std::string path = folder + "/" + step_name(step) + kPartial;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) cannot("make", folder, error.message());
  remove_folder(path);
  fs::create_directory(path, error);
  if (error) cannot("make", path, error.message());
  return path;
}

void commit_step(const std::string& folder, const Manifest& manifest) {
  const std::string name = step_name(manifest.step);
  const std::string partial = folder + "/" + name + kPartial;
  const std::string text = print_manifest(manifest);
  parse_manifest(text, partial + "/" + kManifestName);  // what is not whole is not committed
  CheckedFileWriter file(partial + "/" + kManifestName);
  file.write(text.data(), text.size());
  file.finish();
  sync_folder(partial);
  replace_folder(partial, folder + "/" + name);
  sync_folder(folder);
  write_text_file(folder + "/latest", name + "\n");
  sync_folder(folder);
  remove_folder(partial);  // what was replaced
}

std::vector<SavedStep> saved_steps(const std::string& folder) {
  std::vector<SavedStep> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const auto step = step_of(entry.path().filename().string());
    if (step && entry.is_directory(error)) steps.push_back({*step, entry.path().string()});
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw Error(concat("cannot read ", folder, ": ", error.message()), "reading checkpoints",
                "a folder that may be read");
  }
  std::sort(steps.begin(), steps.end(),
            [](const SavedStep& a, const SavedStep& b) { return a.step < b.step; });
  return steps;
}

std::vector<std::string> faults_of_step(const std::string& path) {
  try {
    std::vector<std::string> faults;
    CheckpointReader reader(path);
    const auto named = step_of(fs::path(path).filename().string());
    if (named && *named != reader.manifest().step) {
      faults.push_back(concat(kManifestName, ": it is of step ", reader.manifest().step));
    }
    for (const std::string& fault : reader.faults()) faults.push_back(fault);
    return faults;
  } catch (const DamagedCheckpoint& error) {
    return {error.what()};
  }
}

std::optional<SavedStep> newest_good(
    const std::string& folder,
    const std::function<void(const SavedStep&, const std::string& fault)>& on_damage) {
  const std::vector<SavedStep> steps = saved_steps(folder);
  for (size_t i = steps.size(); i-- > 0;) {
    const std::vector<std::string> faults = faults_of_step(steps[i].path);
    if (faults.empty()) return steps[i];
    on_damage(steps[i], faults.front());
  }
  return std::nullopt;
}

std::vector<int64_t> remove_old_steps(const std::string& folder, const Retention& retention) {
  EPL_ASSERT(retention.keep_last >= 0 && retention.keep_every >= 0, "numbers of checkpoints");
  const std::vector<SavedStep> steps = saved_steps(folder);
  if (!steps.empty()) remove_partial_before(folder, steps.back().step);
  if (retention.keep_last == 0) return {};
  const std::set<int64_t> stay = steps_that_stay(steps, retention);
  std::vector<int64_t> removed;
  for (const SavedStep& saved : steps) {
    if (stay.count(saved.step) != 0) continue;
    remove_step(saved);
    removed.push_back(saved.step);
  }
  return removed;
}

}  // namespace epl

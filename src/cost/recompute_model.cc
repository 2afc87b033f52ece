#include "cost/recompute_model.h"

#include <algorithm>
#include <limits>

namespace epl {
namespace {

size_t nth(int index) { return static_cast<size_t>(index); }

}  // namespace

RecomputeMemory::RecomputeMemory(const RecomputeModel& model)
    : model_(model), storages_(static_cast<int>(model.storages.size())) {}

RecomputeOutcome RecomputeMemory::measure(const Again& again, int64_t limit) {
  order(again);
  place_entries();
  find_last_uses();
  find_buffers();
  sum_up();
  return outcome(limit);
}

void RecomputeMemory::order(const Again& again) {
  entries_.clear();
  emitted_.assign(model_.operations.size(), false);
  for (size_t i = 0; i < model_.operations.size(); ++i) {
    const auto& operation = model_.operations[i];
    if (operation.backward) {
      for (int storage : operation.reads) emit(model_.storages[nth(storage)].maker, again);
    }
    entries_.push_back({static_cast<int>(i), false});
  }
}

// The operation, behind all that it reads and that runs again as well. Without recursion, since
// chains are as long as a network is deep.
void RecomputeMemory::emit(int operation, const Again& again) {
  const auto wanted = [&](int maker) {
    return maker >= 0 && again[nth(maker)] && !emitted_[nth(maker)];
  };
  if (!wanted(operation)) return;
  stack_.assign(1, operation);
  while (!stack_.empty()) {
    const int top = stack_.back();
    int missing = -1;
    for (int storage : model_.operations[nth(top)].reads) {
      const int maker = model_.storages[nth(storage)].maker;
      if (wanted(maker)) {
        missing = maker;
        break;
      }
    }
    if (missing >= 0) {
      stack_.push_back(missing);
      continue;
    }
    emitted_[nth(top)] = true;
    entries_.push_back({top, true});
    stack_.pop_back();
  }
}

int RecomputeMemory::version_read(const Entry& entry, int storage) const {
  const int maker = model_.storages[nth(storage)].maker;
  const bool in_backward = entry.again || model_.operations[nth(entry.operation)].backward;
  return in_backward && maker >= 0 && emitted_[nth(maker)] ? storage + storages_ : storage;
}

// What runs again does so in the first part that needs it. Each part ends with a moment in which
// what is handed on is read.
void RecomputeMemory::place_entries() {
  constexpr int kNone = std::numeric_limits<int>::max();
  part_again_.assign(model_.operations.size(), kNone);
  std::vector<int> sizes(model_.parts.size(), 0);
  const auto part_of_entry = [&](const Entry& entry) {
    return entry.again ? part_again_[nth(entry.operation)]
                       : model_.operations[nth(entry.operation)].part;
  };
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    const int part = part_of_entry(*entry);
    ++sizes[nth(part)];
    for (int storage : model_.operations[nth(entry->operation)].reads) {
      if (version_read(*entry, storage) < storages_) continue;
      int& maker = part_again_[nth(model_.storages[nth(storage)].maker)];
      maker = std::min(maker, part);
    }
  }
  begins_.assign(1, 0);
  for (int size : sizes) begins_.push_back(begins_.back() + size + 1);
  std::vector<int> next(begins_.begin(), begins_.end() - 1);
  by_position_.assign(nth(begins_.back()), entries_.size());
  for (size_t i = 0; i < entries_.size(); ++i) {
    entries_[i].position = next[nth(part_of_entry(entries_[i]))]++;
    by_position_[nth(entries_[i].position)] = i;
  }
}

void RecomputeMemory::find_last_uses() {
  last_use_.assign(2 * model_.storages.size(), -1);
  const auto note = [&](int version, int position) {
    last_use_[nth(version)] = std::max(last_use_[nth(version)], position);
  };
  for (const Entry& entry : entries_) {
    const auto& operation = model_.operations[nth(entry.operation)];
    for (int storage : operation.reads) note(version_read(entry, storage), entry.position);
    for (int storage : operation.makes) note(version_made(entry, storage), entry.position);
  }
  for (int i = 0; i < storages_; ++i) {
    const int until = model_.storages[nth(i)].until;
    if (until >= 0) note(i, begins_[nth(until) + 1] - 1);
  }
}

void RecomputeMemory::touch(int version, int64_t bytes, int position) {
  int& buffer = buffer_of_[nth(version)];
  if (buffer < 0) {
    buffer = static_cast<int>(buffers_.size());
    buffers_.push_back({bytes, position, position});
  }
  buffers_[nth(buffer)].last = std::max(buffers_[nth(buffer)].last, position);
}

// The version of a storage whose place the result may have, since this is its last reader; or -1.
int RecomputeMemory::take_place(const Entry& entry,
                                const RecomputeModel::Operation& operation) const {
  for (int storage : operation.may_take) {
    const int version = version_read(entry, storage);
    if (last_use_[nth(version)] == entry.position) return version;
  }
  return -1;
}

void RecomputeMemory::find_buffers() {
  buffer_of_.assign(2 * model_.storages.size(), -1);
  buffers_.clear();
  for (int i = 0; i < storages_; ++i) {
    const auto& storage = model_.storages[nth(i)];
    if (storage.maker < 0) touch(i, storage.bytes, begins_[nth(storage.given)]);
  }
  for (size_t index : by_position_) {
    if (index == entries_.size()) continue;  // the end of a part
    const Entry& entry = entries_[index];
    const auto& operation = model_.operations[nth(entry.operation)];
    for (int storage : operation.reads) {
      touch(version_read(entry, storage), model_.storages[nth(storage)].bytes, entry.position);
    }
    const int place = take_place(entry, operation);
    for (int storage : operation.makes) {
      const int made = version_made(entry, storage);
      if (place >= 0) buffer_of_[nth(made)] = buffer_of_[nth(place)];
      touch(made, model_.storages[nth(storage)].bytes, entry.position);
    }
  }
  for (int i = 0; i < storages_; ++i) {
    const auto& storage = model_.storages[nth(i)];
    if (storage.until >= 0) touch(i, storage.bytes, begins_[nth(storage.until) + 1] - 1);
  }
}

int RecomputeMemory::part_of(int position) const {
  const auto next = std::upper_bound(begins_.begin(), begins_.end(), position);
  return static_cast<int>(next - begins_.begin()) - 1;
}

void RecomputeMemory::sum_up() {
  transient_.assign(by_position_.size() + 1, 0);
  activations_.assign(by_position_.size() + 1, 0);
  const bool one_part = model_.parts.size() == 1;
  for (const Buffer& buffer : buffers_) {
    const bool inside = one_part || part_of(buffer.first) == part_of(buffer.last);
    auto& changes = inside ? transient_ : activations_;
    changes[nth(buffer.first)] += buffer.bytes;
    changes[nth(buffer.last) + 1] -= buffer.bytes;
  }
  for (auto* changes : {&transient_, &activations_}) {
    for (size_t i = 1; i < changes->size(); ++i) (*changes)[i] += (*changes)[i - 1];
    changes->pop_back();
  }
  peaks_.clear();
  kept_ = 0;
  for (size_t part = 0; part < model_.parts.size();) {
    const int chunk = model_.parts[part].chunk;
    const size_t first = part;
    while (part < model_.parts.size() && model_.parts[part].chunk == chunk) ++part;
    const auto most = std::max_element(activations_.begin() + begins_[first],
                                       activations_.begin() + begins_[part]);
    kept_ += *most * model_.in_flight[nth(chunk)];
    if (*most > 0) peaks_.push_back(static_cast<int>(most - activations_.begin()));
  }
  const auto most = std::max_element(transient_.begin(), transient_.end());
  peaks_.push_back(static_cast<int>(most - transient_.begin()));
}

RecomputeOutcome RecomputeMemory::outcome(int64_t limit) const {
  RecomputeOutcome outcome;
  for (size_t i = 0; i < emitted_.size(); ++i) {
    if (emitted_[i]) outcome.seconds += model_.operations[i].seconds;
  }
  for (int64_t bytes : transient_) {
    outcome.peak = std::max(outcome.peak, bytes + kept_);
    outcome.excess += std::max<int64_t>(0, bytes + kept_ - limit);
  }
  return outcome;
}

Again RecomputeMemory::ran_again() const { return emitted_; }

std::vector<int> RecomputeMemory::alive(bool remade) const {
  std::vector<int> found;
  for (int i = 0; i < storages_; ++i) {
    const int buffer = buffer_of_[nth(remade ? i + storages_ : i)];
    if (buffer < 0) continue;
    const bool alive = std::any_of(peaks_.begin(), peaks_.end(), [&](int position) {
      return buffers_[nth(buffer)].first <= position && position <= buffers_[nth(buffer)].last;
    });
    if (alive) found.push_back(i);
  }
  return found;
}

std::vector<int> RecomputeMemory::alive_at_peak() const { return alive(false); }
std::vector<int> RecomputeMemory::remade_at_peak() const { return alive(true); }

}  // namespace epl

#include <epl/memory.h>

#include <algorithm>
#include <iomanip>
#include <numeric>
#include <sstream>

#include "base/text.h"

namespace epl {
namespace {

constexpr int kNameColumn = 20;
constexpr int kColumn = 12;

std::string beside(const std::optional<int64_t>& measured) {
  return measured ? concat(" (measured ", human_bytes(*measured), ")") : "";
}

void print_row(std::ostream& out, const std::string& name, const std::vector<std::string>& cells) {
  out << "  " << std::left << std::setw(kNameColumn) << name << std::right;
  for (const std::string& cell : cells) out << std::setw(kColumn) << cell;
  out << "\n";
}

std::string cell(int64_t bytes) { return bytes == 0 ? "-" : human_bytes(bytes); }

void print_kinds(std::ostream& out, const MemoryReport::Worker& worker) {
  for (size_t i = 0; i < kMemoryKinds; ++i) {
    const auto kind = static_cast<MemoryKind>(i);
    std::vector<std::string> cells = {cell(worker.shared[kind])};
    int64_t sum = worker.shared[kind];
    for (const auto& device : worker.devices) {
      cells.push_back(cell(device.bytes[kind]));
      sum += device.bytes[kind];
    }
    if (sum != 0) print_row(out, memory_kind_name(kind), cells);
  }
}

void print_totals(std::ostream& out, const MemoryReport::Worker& worker) {
  std::vector<std::string> forecast = {cell(worker.shared.total())};
  std::vector<std::string> measured = {worker.measured_shared ? cell(*worker.measured_shared) : ""};
  for (const auto& device : worker.devices) {
    forecast.push_back(cell(device.bytes.total()));
    measured.push_back(device.measured ? cell(*device.measured) : "");
  }
  print_row(out, "peak", forecast);
  if (worker.measured()) print_row(out, "measured", measured);
}

// Devices that run the same program have the same peak: it is told once.
void print_moments(std::ostream& out, const MemoryReport::Worker& worker) {
  std::vector<std::string> told;
  for (const auto& device : worker.devices) {
    std::string line = concat("most lives at ", device.peak_at);
    if (!device.workspace_at.empty()) line += concat("; most workspace at ", device.workspace_at);
    if (std::find(told.begin(), told.end(), line) != told.end()) continue;
    told.push_back(line);
    out << "  device " << device.number << ": " << line << "\n";
  }
}

}  // namespace

const char* memory_kind_name(MemoryKind kind) {
  static constexpr std::array<const char*, kMemoryKinds> kNames = {
      "parameters",    "buffers",           "optimizer state", "batch",
      "gradients",     "saved activations", "temporary",       "windows",
      "communication", "kernel workspace",  "fragmentation"};
  return kNames[static_cast<size_t>(kind)];
}

int64_t MemoryBytes::total() const {
  return std::accumulate(bytes_.begin(), bytes_.end(), int64_t{0});
}

int64_t MemoryReport::Worker::peak() const {
  return std::accumulate(
      devices.begin(), devices.end(), shared.total(),
      [](int64_t sum, const Device& device) { return sum + device.bytes.total(); });
}

std::optional<int64_t> MemoryReport::Worker::measured() const {
  if (!measured_shared) return std::nullopt;
  int64_t sum = *measured_shared;
  for (const Device& device : devices) sum += device.measured.value_or(0);
  return sum;
}

std::string MemoryReport::str() const {
  std::ostringstream out;
  for (const Worker& worker : workers) {
    out << "worker " << worker.number << ": " << human_bytes(worker.peak())
        << beside(worker.measured()) << "\n";
    std::vector<std::string> head = {"shared"};
    for (const auto& device : worker.devices) head.push_back(concat("device ", device.number));
    print_row(out, "", head);
    print_kinds(out, worker);
    print_totals(out, worker);
    if (worker.host > 0)
      out << "  at rest in the host's memory: " << human_bytes(worker.host) << "\n";
    print_moments(out, worker);
  }
  if (recording > 0) out << "while recording: " << human_bytes(recording) << "\n";
  return out.str();
}

}  // namespace epl

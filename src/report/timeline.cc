#include <epl/timeline.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/text.h"

namespace epl {
namespace {

constexpr size_t kKinds = 5;                // of Span::Kind
constexpr size_t kBubble = kKinds;          // beside them
constexpr const char* kLetters = "FBWU~.";  // one a kind, and bubble

constexpr const char* kSharesHead = "  compute   update  communication   bubble";
constexpr int kLeastColumns = 72;  // as wide as the line that explains the letters

size_t index_of(Span::Kind kind) { return static_cast<size_t>(kind); }

// Seconds of each kind and, last, of bubble.
using Seconds = std::array<double, kKinds + 1>;

Timeline::Shares shares_of(const Seconds& seconds, double total) {
  Timeline::Shares shares;
  if (!(total > 0)) return shares;
  const auto part = [&](Span::Kind kind) { return seconds[index_of(kind)] / total; };
  shares.compute =
      part(Span::Kind::kForward) + part(Span::Kind::kBackward) + part(Span::Kind::kWeights);
  shares.update = part(Span::Kind::kUpdate);
  shares.communication = part(Span::Kind::kCommunication);
  shares.bubble = seconds[kBubble] / total;
  return shares;
}

// What a device did between two moments.
Seconds between(const std::vector<Span>& spans, double begin, double end) {
  Seconds seconds{};
  seconds[kBubble] = std::max(0.0, end - begin);
  for (const Span& span : spans) {
    const double length = std::min(span.end, end) - std::max(span.begin, begin);
    if (length <= 0) continue;
    seconds[index_of(span.kind)] += length;
    seconds[kBubble] = std::max(0.0, seconds[kBubble] - length);
  }
  return seconds;
}

// One letter a column: what the device did for the largest part of its time.
std::string bar_of(const std::vector<Span>& spans, double seconds, size_t columns) {
  if (!(seconds > 0)) return "";
  std::string bar;
  for (size_t column = 0; column < columns; ++column) {
    const double width = seconds / static_cast<double>(columns);
    const double begin = width * static_cast<double>(column);
    const Seconds parts = between(spans, begin, begin + width);
    bar += kLetters[std::max_element(parts.begin(), parts.end()) - parts.begin()];
  }
  return bar;
}

std::string format(const char* pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

std::string human_seconds(double seconds) {
  if (seconds >= 1) return format("%.3g s", seconds);
  if (seconds >= 1e-3) return format("%.3g ms", seconds * 1e3);
  return format("%.3g us", seconds * 1e6);
}

std::string percent(double share, size_t width) {
  const std::string text = format("%.1f %%", 100 * share);
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

std::string shares_row(const Timeline::Shares& shares) {
  return percent(shares.compute, 9) + percent(shares.update, 9) +
         percent(shares.communication, 15) + percent(shares.bubble, 9);
}

size_t name_width(const Timeline& timeline, size_t columns) {
  size_t width = std::string("all").size();
  for (const auto& device : timeline.devices) width = std::max(width, device.name.size());
  return std::min(width, std::min(columns / 3, columns - std::string(kSharesHead).size() - 2));
}

std::string fitted(std::string name, size_t width) {
  if (name.size() > width) name = name.substr(0, width - 2) + "..";
  name.resize(width, ' ');
  return name;
}

}  // namespace

Timeline::Shares Timeline::shares(size_t device) const {
  return shares_of(between(devices.at(device).spans, 0, seconds), seconds);
}

Timeline::Shares Timeline::shares() const {
  Seconds sum{};
  for (const Device& device : devices) {
    const Seconds seconds_of_device = between(device.spans, 0, seconds);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += seconds_of_device[i];
  }
  return shares_of(sum, seconds * static_cast<double>(devices.size()));
}

std::string Timeline::str(int columns) const {
  const size_t width = static_cast<size_t>(std::max(columns, kLeastColumns));
  const size_t names = name_width(*this, width);
  std::string text = concat(title, ": ", human_seconds(seconds), "\n");
  const auto add_row = [&text, names](const std::string& name, const std::string& row) {
    text += concat("  ", fitted(name, names), row, "\n");
  };
  if (devices.empty() || !(seconds > 0)) return text;
  for (const Device& device : devices) {
    add_row(device.name, "  " + bar_of(device.spans, seconds, width - names - 4));
  }
  text += "  F forward  B backward  W weights  U update  ~ communication  . bubble\n\n";
  add_row("", kSharesHead);
  for (size_t i = 0; i < devices.size(); ++i) add_row(devices[i].name, shares_row(shares(i)));
  if (devices.size() > 1) add_row("all", shares_row(shares()));
  return text;
}

}  // namespace epl

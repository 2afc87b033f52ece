// Memory over the time of a step, as a picture.
#include <epl/memory.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "base/check.h"
#include "base/text.h"

namespace epl {
namespace {

constexpr double kWidth = 640;  // of one frame
constexpr double kHeight = 200;
constexpr double kLeft = 64;
constexpr double kRight = 110;
constexpr double kTop = 34;         // above a frame
constexpr double kBelow = 30;       // below it
constexpr double kMomentWidth = 4;  // that moments are drawn in, at least
constexpr double kLetter = 7;       // about the width of one
constexpr double kUpdate = 0.125;   // of all time, at least: it has few moments and much to bring

// In the order in which they lie on each other.
constexpr std::array<MemoryKind, kMemoryKinds> kOrder = {
    MemoryKind::kParameters, MemoryKind::kBuffers,      MemoryKind::kOptimizerState,
    MemoryKind::kWindows,    MemoryKind::kBatch,        MemoryKind::kCommunication,
    MemoryKind::kGradients,  MemoryKind::kSaved,        MemoryKind::kTemporary,
    MemoryKind::kWorkspace,  MemoryKind::kFragmentation};
constexpr std::array<const char*, kMemoryKinds> kColors = {
    "#4878a8", "#8899aa", "#7fb2d5", "#35a0a8", "#c8c8c8", "#9f8fc0",
    "#e0a040", "#5aa469", "#b9d8a0", "#d86060", "#eeeeee"};

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

std::string escaped(const std::string& text) {
  std::string safe;
  for (char each : text) {
    if (each == '<') {
      safe += "&lt;";
    } else if (each == '&') {
      safe += "&amp;";
    } else {
      safe += each;
    }
  }
  return safe;
}

// --- what is drawn: from the moments of a step to columns ---------------------------------------

struct Column {
  double left = 0;
  double right = 0;
  MemoryBytes bytes;
};

struct Phase {
  std::string name;
  double left = 0;
  double right = 0;
};

struct Curve {
  std::vector<Column> columns;
  std::vector<Phase> phases;

  int64_t peak() const {
    int64_t most = 0;
    for (const Column& each : columns) most = std::max(most, each.bytes.total());
    return most;
  }
};

// What the worker counts of windows is the most of them, and a moment has its own.
MemoryBytes joined(MemoryBytes shared, const MemoryBytes& moment) {
  if (moment[MemoryKind::kWindows] > 0) shared[MemoryKind::kWindows] = 0;
  for (MemoryKind kind : kOrder) shared[kind] += moment[kind];
  return shared;
}

// Of each column the moment in which most lives.
void add_columns(const MemoryReport::Worker& worker, size_t begin, size_t end, const Phase& place,
                 std::vector<Column>& columns) {
  const std::vector<MemoryBytes>& moments = worker.devices.at(0).over_time;
  const size_t room = std::max<size_t>(1, std::lround((place.right - place.left) / kMomentWidth));
  const size_t count = std::min(room, end - begin);
  for (size_t i = 0; i < count; ++i) {
    const size_t first = begin + i * (end - begin) / count;
    const size_t last = begin + (i + 1) * (end - begin) / count;
    const auto at = [&](size_t k) { return moments.begin() + static_cast<std::ptrdiff_t>(k); };
    const auto most = std::max_element(
        at(first), at(last),
        [](const MemoryBytes& a, const MemoryBytes& b) { return a.total() < b.total(); });
    const double width = (place.right - place.left) / static_cast<double>(count);
    const double left = place.left + width * static_cast<double>(i);
    columns.push_back({left, left + width, joined(worker.shared, *most)});
  }
}

// How much of the time each phase is, by its moments.
std::vector<double> shares_of(const std::vector<size_t>& begins, bool updates) {
  std::vector<double> shares;
  const auto all = static_cast<double>(begins.back());
  for (size_t i = 0; i + 1 < begins.size(); ++i) {
    shares.push_back(static_cast<double>(begins[i + 1] - begins[i]) / all);
  }
  if (!updates || shares.size() == 1 || shares.back() >= kUpdate) return shares;
  const double others = 1 - shares.back();
  for (double& share : shares) share *= (1 - kUpdate) / others;
  shares.back() = kUpdate;
  return shares;
}

Curve curve_of(const MemoryReport& report) {
  const MemoryReport::Worker& worker = report.workers.at(0);
  const MemoryReport::Device& device = worker.devices.at(0);
  Curve curve;
  if (device.over_time.empty()) return curve;
  auto phases = device.phases;
  if (phases.empty()) phases.push_back({"", 0});
  std::vector<size_t> begins;
  for (const auto& phase : phases) begins.push_back(phase.begin);
  begins.push_back(device.over_time.size());
  const std::vector<double> shares = shares_of(begins, phases.back().name == "update");
  double left = kLeft;
  for (size_t i = 0; i < phases.size(); ++i) {
    const double right = left + kWidth * shares[i];
    curve.phases.push_back({phases[i].name, left, right});
    add_columns(worker, begins[i], begins[i + 1], curve.phases.back(), curve.columns);
    left = right;
  }
  return curve;
}

// --- how it is drawn ----------------------------------------------------------------------------

// Bytes between two lines of the grid: 1, 2 or 5 times a power of ten of a unit, four to ten of
// them.
int64_t grid_of(int64_t most) {
  int64_t unit = 1;
  while (unit <= most / 2 / 1024) unit *= 1024;
  for (int64_t ten = 1;; ten *= 10) {
    for (int64_t times : {1, 2, 5}) {
      if (most / (ten * times * unit) < 8) return ten * times * unit;
    }
  }
}

class Picture {
 public:
  Picture(int64_t most, int64_t limit)
      : grid_(grid_of(most)), top_bytes_((most + grid_ - 1) / grid_ * grid_), limit_(limit) {}

  void add(const std::string& title, const Curve& curve) {
    top_ += kTop;
    text(kLeft, top_ - 10, escaped(title) + ": " + human_bytes(curve.peak()),
         "font-weight=\"bold\"");
    add_grid();
    add_areas(curve.columns);
    add_phases(curve.phases);
    if (limit_ > 0) add_limit();
    out_ << "<rect x=\"" << kLeft << "\" y=\"" << top_ << "\" width=\"" << kWidth << "\" height=\""
         << kHeight << "\" fill=\"none\" stroke=\"#444\"/>\n";
    top_ += kHeight + kBelow;
  }

  std::string svg() {
    add_legend();
    std::ostringstream all;
    const double width = kLeft + kWidth + kRight;
    all << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << width << "\" height=\"" << top_
        << "\" viewBox=\"0 0 " << width << " " << top_
        << "\" font-family=\"sans-serif\" font-size=\"12\">\n"
        << "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        << out_.str() << "</svg>\n";
    return all.str();
  }

 private:
  double height_at(int64_t bytes) const {
    return top_ + kHeight * (1 - static_cast<double>(bytes) / static_cast<double>(top_bytes_));
  }

  void text(double x, double y, const std::string& words, const std::string& style) {
    out_ << "<text x=\"" << number(x) << "\" y=\"" << number(y) << "\" " << style << ">" << words
         << "</text>\n";
  }

  void line(double x1, double y1, double x2, double y2, const std::string& style) {
    out_ << "<path d=\"M" << number(x1) << "," << number(y1) << "L" << number(x2) << ","
         << number(y2) << "\" " << style << "/>\n";
  }

  void add_grid() {
    for (int64_t bytes = 0; bytes <= top_bytes_; bytes += grid_) {
      const double y = height_at(bytes);
      line(kLeft, y, kLeft + kWidth, y, "stroke=\"#ddd\"");
      const std::string words = bytes == 0 ? "0" : human_bytes(bytes);
      const size_t decimals = words.find(".0 ");  // lines of the grid have none
      text(kLeft - 6, y + 4,
           decimals == std::string::npos ? words
                                         : words.substr(0, decimals) + words.substr(decimals + 2),
           "text-anchor=\"end\"");
    }
  }

  // From the highest down: each area reaches to the ground, and what lies lower covers it.
  void add_areas(const std::vector<Column>& columns) {
    std::vector<int64_t> above;
    for (const Column& each : columns) above.push_back(each.bytes.total());
    for (size_t kind = kOrder.size(); kind-- > 0;) {
      const MemoryKind own = kOrder[kind];
      const bool any = std::any_of(columns.begin(), columns.end(),
                                   [&](const Column& each) { return each.bytes[own] > 0; });
      if (!any) continue;
      drawn_[kind] = true;
      add_area(columns, above, kColors[kind]);
      for (size_t i = 0; i < columns.size(); ++i) above[i] -= columns[i].bytes[own];
    }
  }

  // As steps: what lives, lives until the next moment.
  void add_area(const std::vector<Column>& columns, const std::vector<int64_t>& heights,
                const char* color) {
    out_ << "<path fill=\"" << color << "\" d=\"M" << number(columns[0].left) << ","
         << number(height_at(0));
    std::string now;
    for (size_t i = 0; i < columns.size(); ++i) {
      const std::string next = number(height_at(heights[i]));
      if (next == now) continue;
      if (i > 0) out_ << "H" << number(columns[i].left);
      out_ << "V" << next;
      now = next;
    }
    out_ << "H" << number(columns.back().right) << "V" << number(height_at(0)) << "Z\"/>\n";
  }

  // A line where each begins; its name where there is room.
  void add_phases(const std::vector<Phase>& phases) {
    const double ground = top_ + kHeight;
    for (const Phase& phase : phases) {
      if (phase.left > kLeft) {
        line(phase.left, top_, phase.left, ground + 5, "stroke=\"#444\" stroke-dasharray=\"1 3\"");
      }
      const double room = phase.right - phase.left;
      if (room < kLetter * static_cast<double>(phase.name.size())) continue;
      text(phase.left + room / 2, ground + 16, phase.name, "text-anchor=\"middle\"");
    }
  }

  void add_limit() {
    const double y = height_at(limit_);
    line(kLeft, y, kLeft + kWidth + 4, y,
         "stroke=\"#c00\" stroke-width=\"1.5\" stroke-dasharray=\"6 4\"");
    text(kLeft + kWidth + 8, y + 4, "limit " + human_bytes(limit_), "fill=\"#c00\"");
  }

  void add_legend() {
    double x = kLeft;
    top_ += 8;
    for (size_t kind = 0; kind < kOrder.size(); ++kind) {
      if (!drawn_[kind]) continue;
      const std::string name = memory_kind_name(kOrder[kind]);
      const double width = 30 + kLetter * static_cast<double>(name.size());
      if (x + width > kLeft + kWidth + kRight) {
        x = kLeft;
        top_ += 18;
      }
      out_ << "<rect x=\"" << number(x) << "\" y=\"" << top_
           << "\" width=\"10\" height=\"10\" fill=\"" << kColors[kind] << "\"/>\n";
      text(x + 14, top_ + 9, name, "");
      x += width;
    }
    top_ += 22;
  }

  const int64_t grid_;
  const int64_t top_bytes_;
  const int64_t limit_;
  double top_ = 0;  // of what is drawn next
  std::array<bool, kMemoryKinds> drawn_ = {};
  std::ostringstream out_;
};

}  // namespace

std::string memory_svg(const std::vector<std::pair<std::string, MemoryReport>>& reports,
                       int64_t limit) {
  std::vector<Curve> curves;
  int64_t most = std::max<int64_t>(1, limit);
  for (const auto& [title, report] : reports) {
    EPL_CHECK(!report.workers.empty() && !report.workers[0].devices.empty(),
              concat("the report \"", title, "\" has no device"), "epl::memory_svg",
              "a report of trainer.memory() or trainer.forecast()");
    curves.push_back(curve_of(report));
    most = std::max(most, curves.back().peak());
  }
  Picture picture(most, limit);
  for (size_t i = 0; i < reports.size(); ++i) picture.add(reports[i].first, curves[i]);
  return picture.svg();
}

}  // namespace epl

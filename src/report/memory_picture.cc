// Memory over the time of a step, as a picture.
#include <epl/memory.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "base/check.h"
#include "base/text.h"

namespace epl {
namespace {

constexpr int kWidth = 640;  // of one curve
constexpr int kHeight = 220;
constexpr int kLeft = 80;
constexpr int kTop = 30;
constexpr int kGap = 26;          // below a curve
constexpr size_t kColumns = 160;  // that a curve is drawn with

// In the order in which they lie on each other.
constexpr std::array<MemoryKind, kMemoryKinds> kOrder = {
    MemoryKind::kParameters, MemoryKind::kBuffers,      MemoryKind::kOptimizerState,
    MemoryKind::kWindows,    MemoryKind::kBatch,        MemoryKind::kCommunication,
    MemoryKind::kGradients,  MemoryKind::kSaved,        MemoryKind::kTemporary,
    MemoryKind::kWorkspace,  MemoryKind::kFragmentation};
constexpr std::array<const char*, kMemoryKinds> kColors = {
    "#4878a8", "#8899aa", "#7fb2d5", "#b5d3e7", "#c8c8c8", "#9f8fc0",
    "#e0a040", "#5aa469", "#b9d8a0", "#d86060", "#eeeeee"};

MemoryBytes sum(MemoryBytes a, const MemoryBytes& b) {
  for (MemoryKind kind : kOrder) a[kind] += b[kind];
  return a;
}

// Of each column the moment in which most lives.
std::vector<MemoryBytes> columns_of(const MemoryReport& report) {
  const MemoryReport::Worker& worker = report.workers.at(0);
  const std::vector<MemoryBytes>& moments = worker.devices.at(0).over_time;
  const size_t count = std::min(kColumns, moments.size());
  std::vector<MemoryBytes> columns;
  for (size_t i = 0; i < count; ++i) {
    const auto begin = moments.begin() + static_cast<std::ptrdiff_t>(i * moments.size() / count);
    const auto end =
        moments.begin() + static_cast<std::ptrdiff_t>((i + 1) * moments.size() / count);
    const auto most = std::max_element(begin, end, [](const MemoryBytes& a, const MemoryBytes& b) {
      return a.total() < b.total();
    });
    columns.push_back(sum(worker.shared, *most));
  }
  return columns;
}

class Picture {
 public:
  Picture(int64_t most, int64_t limit) : most_(std::max<int64_t>(1, most)), limit_(limit) {}

  void add(const std::string& title, const std::vector<MemoryBytes>& columns) {
    const int top = kTop + static_cast<int>(curves_) * (kHeight + kTop + kGap);
    ++curves_;
    out_ << "<text x=\"" << kLeft << "\" y=\"" << top - 10 << "\" font-weight=\"bold\">"
         << escaped(title) << ": " << human_bytes(peak_of(columns)) << "</text>\n";
    std::vector<int64_t> below(columns.size(), 0);
    for (size_t kind = 0; kind < kOrder.size(); ++kind) add_area(kind, top, columns, below);
    out_ << "<rect x=\"" << kLeft << "\" y=\"" << top << "\" width=\"" << kWidth << "\" height=\""
         << kHeight << "\" fill=\"none\" stroke=\"#444\"/>\n";
    label(top, most_);
    if (limit_ > 0) add_limit(top);
  }

  std::string svg() const {
    const int height = static_cast<int>(curves_) * (kHeight + kTop + kGap) + 40;
    std::ostringstream all;
    all << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << kLeft + kWidth + 20
        << "\" height=\"" << height << "\" font-family=\"sans-serif\" font-size=\"12\">\n"
        << "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        << out_.str();
    int x = kLeft;
    for (size_t kind = 0; kind < kOrder.size(); ++kind) {
      if (!drawn_[kind]) continue;
      const std::string name = memory_kind_name(kOrder[kind]);
      all << "<rect x=\"" << x << "\" y=\"" << height - 28
          << "\" width=\"10\" height=\"10\" fill=\"" << kColors[kind] << "\"/><text x=\"" << x + 14
          << "\" y=\"" << height - 19 << "\">" << name << "</text>\n";
      x += 26 + 7 * static_cast<int>(name.size());
    }
    all << "</svg>\n";
    return all.str();
  }

  static int64_t peak_of(const std::vector<MemoryBytes>& columns) {
    int64_t peak = 0;
    for (const MemoryBytes& each : columns) peak = std::max(peak, each.total());
    return peak;
  }

 private:
  static std::string escaped(const std::string& text) {
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

  double height_of(int64_t bytes) const {
    return kHeight * static_cast<double>(bytes) / static_cast<double>(most_);
  }

  // As steps: what lives, lives until the next moment.
  void add_area(size_t kind, int top, const std::vector<MemoryBytes>& columns,
                std::vector<int64_t>& below) {
    std::ostringstream up, down;
    up.precision(5);
    bool any = false;
    std::vector<std::string> back;
    for (size_t i = 0; i < columns.size(); ++i) {
      const int64_t bytes = columns[i][kOrder[kind]];
      any |= bytes > 0;
      const double left =
          kLeft + kWidth * static_cast<double>(i) / static_cast<double>(columns.size());
      const double right =
          kLeft + kWidth * static_cast<double>(i + 1) / static_cast<double>(columns.size());
      const double low = top + kHeight - height_of(below[i]);
      below[i] += bytes;
      const double high = top + kHeight - height_of(below[i]);
      up << left << "," << high << " " << right << "," << high << " ";
      std::ostringstream point;
      point.precision(5);
      point << right << "," << low << " " << left << "," << low << " ";
      back.push_back(point.str());
    }
    if (!any) return;
    drawn_[kind] = true;
    std::reverse(back.begin(), back.end());
    out_ << "<polygon fill=\"" << kColors[kind] << "\" points=\"" << up.str() << join(back, "")
         << "\"/>\n";
  }

  void label(int top, int64_t bytes) {
    const double y = top + kHeight - height_of(bytes);
    out_ << "<text x=\"" << kLeft - 6 << "\" y=\"" << y + 4 << "\" text-anchor=\"end\">"
         << human_bytes(bytes) << "</text>\n";
  }

  void add_limit(int top) {
    const double y = top + kHeight - height_of(limit_);
    out_ << "<line x1=\"" << kLeft << "\" x2=\"" << kLeft + kWidth << "\" y1=\"" << y << "\" y2=\""
         << y << "\" stroke=\"#c00\" stroke-dasharray=\"6 4\"/>\n";
    label(top, limit_);
  }

  const int64_t most_;
  const int64_t limit_;
  size_t curves_ = 0;
  std::array<bool, kMemoryKinds> drawn_ = {};
  std::ostringstream out_;
};

}  // namespace

std::string memory_svg(const std::vector<std::pair<std::string, MemoryReport>>& reports,
                       int64_t limit) {
  std::vector<std::vector<MemoryBytes>> curves;
  int64_t most = limit;
  for (const auto& [title, report] : reports) {
    EPL_CHECK(!report.workers.empty() && !report.workers[0].devices.empty(),
              concat("the report \"", title, "\" has no device"), "epl::memory_svg",
              "a report of trainer.memory() or trainer.forecast()");
    curves.push_back(columns_of(report));
    most = std::max(most, Picture::peak_of(curves.back()));
  }
  Picture picture(most, limit);
  for (size_t i = 0; i < reports.size(); ++i) picture.add(reports[i].first, curves[i]);
  return picture.svg();
}

}  // namespace epl

#include <epl/memory.h>

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "base/text.h"

namespace epl {
namespace {

constexpr int kBytesColumn = 12;
constexpr int kShortColumn = 8;

std::string times(double ratio) {
  std::ostringstream text;
  text << "x" << std::fixed << std::setprecision(2) << ratio;
  return text.str();
}

class FittingTable {
 public:
  explicit FittingTable(const FittingReport& report) {
    for (const FittingChange& row : report.rows) {
      name_column_ = std::max(name_column_, static_cast<int>(row.str().size()));
    }
  }

  void print(const std::string& name, const std::string& bytes, const std::string& fits,
             const std::string& time, const std::string& note) {
    std::ostringstream line;
    line << "  " << std::left << std::setw(name_column_) << name << std::right
         << std::setw(kBytesColumn) << bytes << std::setw(kShortColumn) << fits
         << std::setw(kShortColumn) << time << "  " << note;
    std::string text = line.str();
    text.erase(text.find_last_not_of(' ') + 1);
    out_ << text << "\n";
  }

  void print(const FittingChange& row) {
    const bool planned = row.bytes > 0;
    print(row.str(), planned ? human_bytes(row.bytes) : "-", row.fits ? "yes" : "no",
          planned ? times(row.seconds_vs_now) : "-", row.note);
  }

  std::string str() const { return out_.str(); }

 private:
  int name_column_ = 0;
  std::ostringstream out_;
};

std::string verdict(const FittingReport& report) {
  if (report.rows.empty()) return "nothing was planned\n";
  const FittingChange& best = report.recommended();
  if (best.changes.empty() && best.fits) return "it fits as it is\n";
  if (best.fits) return concat("recommended: ", best.str(), "\n");
  return concat("nothing that was tried fits; the least is ", human_bytes(best.bytes), ": ",
                best.str(), "\n");
}

}  // namespace

std::string FittingChange::str() const {
  if (changes.empty()) return "as it is";
  std::vector<std::string> texts;
  for (const Setting& change : changes) {
    texts.push_back(concat(change.key, " = ", change.value.str()));
  }
  return join(texts, ", ");
}

std::string FittingReport::str() const {
  FittingTable table(*this);
  table.print("", "a device", "fits", "time", "");
  for (const FittingChange& row : rows) table.print(row);
  return concat("a device may have ", human_bytes(limit), "\n", table.str(), verdict(*this));
}

}  // namespace epl

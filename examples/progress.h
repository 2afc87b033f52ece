// A line that shows how far a training run is: on a terminal redrawn in place, elsewhere (a log, a
// pipe) printed anew every few seconds.
//
//   epoch 1/3 [=======>            ]  38%  loss 0.6120  10234 images/s  ETA 0:14
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

class Progress {
 public:
  // `total` steps of `items` each, counted in `unit`.
  Progress(int64_t total, int64_t items, std::string unit)
      : total_(total), items_(items), unit_(std::move(unit)) {}

  // After step `done` of `total`. The loss shown, where work has one, is a running mean over the
  // last steps.
  void show(const std::string& title, int64_t done, std::optional<double> loss = {}) {
    if (loss) {
      const double keep = std::min(0.95, 1 - 1.0 / static_cast<double>(done));
      loss_ = keep * loss_ + (1 - keep) * *loss;
    }
    const double now = seconds_since(start_);
    if (done < total_ && shown_ > 0 && now - shown_ < (terminal_ ? 0.1 : 5.0)) return;
    shown_ = now;

    const double rate = static_cast<double>(done) / now;
    const int eta = static_cast<int>(static_cast<double>(total_ - done) / rate + 0.5);
    const int filled = static_cast<int>(20 * done / total_);
    const std::string bar = std::string(filled, '=') + (filled < 20 ? ">" : "");
    std::printf("%s%s [%-20s] %3d%%", terminal_ ? "\r" : "", title.c_str(), bar.c_str(),
                static_cast<int>(100 * done / total_));
    if (loss) std::printf("  loss %.4f", loss_);
    std::printf("  %.0f %s/s  ETA %d:%02d%s", rate * static_cast<double>(items_), unit_.c_str(),
                eta / 60, eta % 60, terminal_ ? "\x1b[K" : "\n");
    std::fflush(stdout);
  }

  // Makes room for other output: a finished line.
  void print(const std::string& line) {
    std::printf("%s%s\n", terminal_ ? "\r\x1b[K" : "", line.c_str());
    std::fflush(stdout);
  }

  double loss() const { return loss_; }
  double seconds() const { return seconds_since(start_); }

 private:
  using Clock = std::chrono::steady_clock;
  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  int64_t total_;
  int64_t items_;
  std::string unit_;
  bool terminal_ = isatty(STDOUT_FILENO) != 0;
  Clock::time_point start_ = Clock::now();
  double shown_ = 0;  // when the line was last drawn, in seconds since the start
  double loss_ = 0;
};

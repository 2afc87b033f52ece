// Progress: a word to whoever waits for slow work.
//
//   Progress progress("searching how to cut the step over 2 devices");
//   for (size_t i = 0; i < count; ++i) { ...; progress.reached(i + 1, count); }
//
//   epl: searching how to cut the step over 2 devices: 130 of 900 operators after 3 s
//
// Nothing is said of what takes less than `first` seconds, and the time between two lines doubles.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <utility>

namespace epl {

class Progress {
 public:
  explicit Progress(std::string what, double first = 3) : what_(std::move(what)), next_(first) {}

  void reached(size_t done, size_t all) {
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
    if (seconds < next_) return;
    std::clog << "epl: " << what_ << ": " << done << " of " << all << " operators after "
              << static_cast<int64_t>(seconds) << " s\n";
    next_ = seconds * 2;
  }

 private:
  const std::string what_;
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  double next_;
};

}  // namespace epl

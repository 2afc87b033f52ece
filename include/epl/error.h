// What EPL throws. A message says what cannot be, who asked for it, and what to try:
//
//   epl: cannot cut a batch of 10 rows into 4 micro batches
//     asked by: pipeline.num_micro_batch = 4 (from code)
//     try:      a batch size that 4 divides
#pragma once

#include <stdexcept>
#include <string>

namespace epl {

// The user's program, configuration or environment asks for something that cannot be.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what, const std::string& asked_by = "",
                 const std::string& hint = "")
      : std::runtime_error(compose(what, asked_by, hint)) {}

 private:
  static std::string compose(const std::string& what, const std::string& asked_by,
                             const std::string& hint) {
    std::string text = "epl: " + what;
    if (!asked_by.empty()) text += "\n  asked by: " + asked_by;
    if (!hint.empty()) text += "\n  try:      " + hint;
    return text;
  }
};

// The job cannot go on: another worker was killed, stopped, cut off or threw, and what() names it,
// where it ran and what it did last. Every worker that is left throws this, and none of them can go
// on.
class JobFailed : public Error {
 public:
  using Error::Error;
};

// EPL broke one of its own invariants.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace epl

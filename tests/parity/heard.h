// What EPL says to the user while it stands.
#pragma once

#include <iostream>
#include <sstream>
#include <string>

namespace epl::parity {

class Heard {
 public:
  Heard() : before_(std::clog.rdbuf(text_.rdbuf())) {}
  ~Heard() { std::clog.rdbuf(before_); }
  std::string str() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::streambuf* before_;
};

}  // namespace epl::parity

// Link: one connection of PeerLinks. Writes memory where it lies, reads ahead a little so that a
// small frame costs one call of the system, and never blocks.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "comm/socket.h"

namespace epl::comm {

struct Span {
  char* data = nullptr;
  size_t bytes = 0;
};
using Spans = std::vector<Span>;

size_t bytes_of(const Spans& spans);

class Link {
 public:
  explicit Link(Descriptor connection) : connection_(std::move(connection)) {}

  int descriptor() const { return connection_.get(); }
  bool closed() const { return closed_; }

  // The memory of `spans` must stay until everything is written.
  void queue(std::string head, const Spans& spans);
  void flush();
  bool has_unsent() const { return !closed_ && !unsent_.empty(); }

  // How many bytes came, at most `bytes`.
  size_t read(char* place, size_t bytes);

  // Forgets what was queued, and with it the memory of the caller.
  void close();
  // Nothing more is written.
  void finish_writing();
  // Ends the connection once the other side has what was written, or after `most`.
  void finish(std::chrono::milliseconds most);

 private:
  struct Unsent {
    std::string head;
    Spans spans;
    size_t sent = 0;
  };

  Descriptor connection_;
  bool closed_ = false;
  std::deque<Unsent> unsent_;
  std::array<char, 4096> ahead_;
  size_t ahead_begin_ = 0;
  size_t ahead_end_ = 0;
};

}  // namespace epl::comm

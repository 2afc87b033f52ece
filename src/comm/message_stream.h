// MessageStream: lists of texts over a connection, in both directions, without ever blocking.
//
//   stream.send({"beat", "step 17, reduce 2"});
//   stream.receive();                                    // takes what has come
//   while (auto message = stream.next()) handle(*message);
//
// What the other side does not take at once is kept and goes with the next send() or flush().
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "comm/socket.h"

namespace epl::comm {

using Message = std::vector<std::string>;

class MessageStream {
 public:
  explicit MessageStream(Descriptor connection) : connection_(std::move(connection)) {}

  const Descriptor& connection() const { return connection_; }
  // No more can be sent or received: the other side closed, or does not speak this protocol.
  bool closed() const { return closed_; }

  void send(const Message& message);
  void flush();
  bool has_unsent() const { return !closed_ && !unsent_.empty(); }
  // Tells the other side that nothing more comes from here.
  void finish_sending();

  void receive();
  std::optional<Message> next();

 private:
  Descriptor connection_;
  bool closed_ = false;
  std::string unsent_;
  std::string received_;
  size_t consumed_ = 0;
};

}  // namespace epl::comm

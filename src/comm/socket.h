// Sockets of the job's control channel: descriptors that close themselves, and connections that say
// why they did not come about.
#pragma once

#include <chrono>
#include <string>
#include <utility>

namespace epl::comm {

class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      reset();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }
  ~Descriptor() { reset(); }

  int get() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }
  void reset();

 private:
  int number_;
};

// Listens at the address of `host` where that is one of this machine (a job on 127.0.0.1 is then
// seen by nobody else), else at all addresses. Throws JobFailed where the port is taken.
Descriptor listen_at(const std::string& host, int port);

// A connection that does not block, or the reason why there is none.
struct Connection {
  Descriptor descriptor;
  std::string reason;  // "Connection refused"
};
Connection try_connect(const std::string& host, int port, std::chrono::milliseconds timeout);

// Takes a waiting connection; none where there is none.
Descriptor accept_connection(const Descriptor& listener);

// The address of this end of a connection, as text: "10.0.0.2".
std::string own_address(const Descriptor& descriptor);
int own_port(const Descriptor& descriptor);

// Wakes a thread that polls its descriptor.
class Bell {
 public:
  Bell();
  int descriptor() const { return descriptor_.get(); }
  void ring();
  void quiet();

 private:
  Descriptor descriptor_;
};

}  // namespace epl::comm

// A port of this machine that is kept for worker 0 until the job has ended.
//
// The launcher binds it but does not listen. No other program is given the port by chance then, and
// worker 0 can still listen there: its socket and ours both allow the address to be shared
// (SO_REUSEADDR, which the rendezvous of src/comm sets, and c10d).
#pragma once

namespace epl {

class ReservedPort {
 public:
  // Port 0: any free one. Throws Error where the port is taken.
  explicit ReservedPort(int port);
  ~ReservedPort();
  ReservedPort(const ReservedPort&) = delete;
  ReservedPort& operator=(const ReservedPort&) = delete;

  int port() const { return port_; }

 private:
  int socket_ = -1;
  int port_ = 0;
};

}  // namespace epl

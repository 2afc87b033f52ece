#include "launch/port.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/text.h"

namespace epl {

ReservedPort::ReservedPort(int port) {
  socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EPL_CHECK(socket_ >= 0, concat("cannot make a socket: ", std::strerror(errno)), "epl-launch",
            "a machine with a network of its own (loopback is enough)");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  if (bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    const int reason = errno;
    close(socket_);
    throw Error(
        concat("port ", port, ", where worker 0 is to listen, is not free on this machine: ",
               std::strerror(reason)),
        "--machine_list", "another port, or end the job that holds this one");
  }
  // Only now: a bind that shares the address would succeed on another launcher's port too.
  const int on = 1;
  setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  socklen_t size = sizeof address;
  getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
}

ReservedPort::~ReservedPort() { close(socket_); }

}  // namespace epl

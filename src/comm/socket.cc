#include "comm/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "comm/watch.h"

namespace epl::comm {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const std::string& host, int port, int* error) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  *error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  return Addresses(*error == 0 ? found : nullptr, &freeaddrinfo);
}

Descriptor open_socket(int family) {
  Descriptor made(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (made) {
    const int on = 1;
    setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    setsockopt(made.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  return made;
}

// 0, or what went wrong.
int bind_and_listen(const Descriptor& listener, const sockaddr* address, socklen_t length) {
  if (bind(listener.get(), address, length) != 0) return errno;
  if (listen(listener.get(), SOMAXCONN) != 0) return errno;
  return 0;
}

Descriptor listen_everywhere(int family, int port, int* error) {
  Descriptor listener = open_socket(family);
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(static_cast<uint16_t>(port));
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(static_cast<uint16_t>(port));
  *error = family == AF_INET6
               ? bind_and_listen(listener, reinterpret_cast<sockaddr*>(&v6), sizeof(v6))
               : bind_and_listen(listener, reinterpret_cast<sockaddr*>(&v4), sizeof(v4));
  return listener;
}

// "" once the connection stands.
std::string finish_connect(const Descriptor& connecting, std::chrono::milliseconds timeout) {
  pollfd waited{connecting.get(), POLLOUT, 0};
  const int ready = poll(&waited, 1, static_cast<int>(timeout.count()));
  if (ready == 0) return "it does not answer";
  if (ready < 0) return std::strerror(errno);
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(connecting.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error == 0 ? "" : std::strerror(error);
}

}  // namespace

void Descriptor::reset() {
  if (number_ >= 0) close(number_);
  number_ = -1;
}

Descriptor listen_at(const std::string& host, int port) {
  int error = 0;
  const Addresses addresses = resolve(host, port, &error);
  EPL_CHECK(addresses != nullptr && error == 0,
            concat("the host name \"", host, "\" is not known: ", gai_strerror(error)));
  Descriptor listener = open_socket(addresses->ai_family);
  error = bind_and_listen(listener, addresses->ai_addr, addresses->ai_addrlen);
  if (error == EADDRNOTAVAIL) {
    listener = listen_everywhere(addresses->ai_family, port, &error);
  }
  if (error == EADDRINUSE) {
    throw JobFailed(
        concat("port ", port, " of this host is taken by another process"),
        concat("worker 0, which listens there for the other workers (", host, ":", port, ")"),
        concat("another port, or `ss -ltnp 'sport = :", port, "'` to see who has it"));
  }
  if (error != 0) {
    throw JobFailed(
        concat("worker 0 cannot listen at ", host, ":", port, ": ", std::strerror(error)));
  }
  return listener;
}

Connection try_connect(const std::string& host, int port, std::chrono::milliseconds timeout) {
  int error = 0;
  const Addresses addresses = resolve(host, port, &error);
  if (!addresses) return {Descriptor(), gai_strerror(error)};
  Connection result;
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
    Descriptor connecting = open_socket(each->ai_family);
    const bool stands = connect(connecting.get(), each->ai_addr, each->ai_addrlen) == 0;
    if (!stands && errno != EINPROGRESS) {
      result.reason = std::strerror(errno);
      continue;
    }
    result.reason = stands ? "" : finish_connect(connecting, timeout);
    if (result.reason.empty()) {
      result.descriptor = std::move(connecting);
      break;
    }
  }
  return result;
}

Descriptor accept_connection(const Descriptor& listener) {
  Descriptor accepted(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const int on = 1;
  if (accepted) setsockopt(accepted.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return accepted;
}

std::string own_address(const Descriptor& descriptor) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (getsockname(descriptor.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) return "";
  char text[NI_MAXHOST] = {};
  if (getnameinfo(reinterpret_cast<sockaddr*>(&address), length, text, sizeof(text), nullptr, 0,
                  NI_NUMERICHOST) != 0) {
    return "";
  }
  return text;
}

int own_port(const Descriptor& descriptor) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (getsockname(descriptor.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

Bell::Bell() : descriptor_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  EPL_ASSERT(descriptor_, "eventfd");
}

void Bell::ring() {
  const uint64_t one = 1;
  // A bell that cannot take another ring is ringing.
  if (write(descriptor_.get(), &one, sizeof(one)) < 0) return;
}

void Bell::quiet() {
  uint64_t count = 0;
  if (read(descriptor_.get(), &count, sizeof(count)) < 0) return;
}

}  // namespace epl::comm

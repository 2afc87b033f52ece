#include "launch/port.h"

#include <epl/error.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace epl {
namespace {

// Listens as worker 0 does, on all addresses of both kinds.
int listen_at(int port) {
  const int file = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(static_cast<uint16_t>(port));
  if (bind(file, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
      listen(file, 1) == 0) {
    return file;
  }
  close(file);
  return -1;
}

TEST(ReservedPort, IsFreeForWorkerZero) {
  const ReservedPort reserved(0);
  EXPECT_GT(reserved.port(), 0);
  const int listener = listen_at(reserved.port());
  EXPECT_GE(listener, 0);
  close(listener);
}

TEST(ReservedPort, IsNotGivenTwice) {
  const ReservedPort reserved(0);
  EXPECT_THROW(ReservedPort again(reserved.port()), Error);
}

TEST(ReservedPort, IsRefusedWhereSomebodyListens) {
  int port = 0;
  { port = ReservedPort(0).port(); }
  const int listener = listen_at(port);
  ASSERT_GE(listener, 0);
  EXPECT_THROW(ReservedPort taken(port), Error);
  close(listener);
}

}  // namespace
}  // namespace epl

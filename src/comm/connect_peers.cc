#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <sstream>

#include "base/check.h"
#include "comm/peer_links.h"

namespace epl::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// What a member says first on a connection that it opens. The word is the listener's own, so that
// nobody else is let in.
struct Hello {
  uint64_t word = 0;
  int64_t rank = 0;
};

struct Address {
  std::string host;
  int port = 0;
  uint64_t word = 0;
};

uint64_t random_word() {
  std::random_device random;
  return (static_cast<uint64_t>(random()) << 32) | random();
}

Address parse_address(const std::string& text) {
  std::istringstream in(text);
  Address address;
  EPL_CHECK(in >> address.host >> address.port >> address.word,
            concat("\"", text, "\" is not the address of a member"));
  return address;
}

class MeshConnecting {
 public:
  MeshConnecting(const Caller& caller, Watch& watch, const CommunicatorOptions& options)
      : caller_(caller), watch_(watch), end_(Clock::now() + options.deadline) {}

  Descriptor call(int member, const Address& address) {
    while (true) {
      Connection connection = try_connect(address.host, address.port, milliseconds(500));
      if (connection.descriptor) {
        const Hello hello{address.word, caller_.rank()};
        const ssize_t sent =
            ::send(connection.descriptor.get(), &hello, sizeof(hello), MSG_NOSIGNAL);
        if (sent == sizeof(hello)) return std::move(connection.descriptor);
        connection.reason = "the connection closed";
      }
      look(concat("cannot reach member ", member, " at ", address.host, ":", address.port, ": ",
                  connection.reason));
      poll(nullptr, 0, 20);
    }
  }

  // Takes connections until all members of higher rank have called.
  void accept_all(const Descriptor& listener, uint64_t word, std::vector<Descriptor>& links) {
    for (int missing = caller_.size() - 1 - caller_.rank(); missing > 0;) {
      pollfd waited{listener.get(), POLLIN, 0};
      poll(&waited, 1, 20);
      look("waits for members of higher rank to connect");
      Descriptor accepted = accept_connection(listener);
      if (!accepted) continue;
      const Hello hello = hear_hello(accepted);
      const bool expected = hello.word == word && hello.rank > caller_.rank() &&
                            hello.rank < caller_.size() && !links[static_cast<size_t>(hello.rank)];
      if (!expected) continue;
      links[static_cast<size_t>(hello.rank)] = std::move(accepted);
      --missing;
    }
  }

 private:
  // A stranger that says nothing is not waited for.
  Hello hear_hello(const Descriptor& connection) {
    Hello hello;
    const Clock::time_point end = std::min(end_, Clock::now() + milliseconds(2000));
    while (Clock::now() < end) {
      pollfd waited{connection.get(), POLLIN, 0};
      poll(&waited, 1, 20);
      watch_.check();
      const ssize_t there = recv(connection.get(), &hello, sizeof(hello), MSG_PEEK | MSG_DONTWAIT);
      if (there == 0) break;
      if (there < static_cast<ssize_t>(sizeof(hello))) continue;
      if (recv(connection.get(), &hello, sizeof(hello), MSG_DONTWAIT) < 0) break;
      return hello;
    }
    return {};
  }

  void look(const std::string& what) const {
    watch_.check();
    if (Clock::now() <= end_) return;
    throw JobFailed(
        concat("member ", caller_.rank(), " of communicator \"", caller_.name(), "\" ", what));
  }

  const Caller& caller_;
  Watch& watch_;
  const Clock::time_point end_;
};

}  // namespace

std::unique_ptr<PeerLinks> connect_peers(const Caller& caller, Watch& watch,
                                         const Exchange& exchange,
                                         const CommunicatorOptions& options,
                                         const std::string& interface) {
  const std::string host = interface.empty() ? "127.0.0.1" : interface;
  const Descriptor listener = listen_at(host, 0);
  const uint64_t word = random_word();
  std::vector<Address> addresses;
  for (const std::string& text : exchange(concat(host, " ", own_port(listener), " ", word))) {
    addresses.push_back(parse_address(text));
  }
  EPL_ASSERT(static_cast<int>(addresses.size()) == caller.size(), "an address of each member");
  // Who has the lower rank is called by the others, so that there is one connection of each pair.
  MeshConnecting connecting(caller, watch, options);
  std::vector<Descriptor> links(addresses.size());
  for (int member = 0; member < caller.rank(); ++member) {
    const auto place = static_cast<size_t>(member);
    links[place] = connecting.call(member, addresses[place]);
  }
  connecting.accept_all(listener, word, links);
  return std::make_unique<PeerLinks>(caller, std::move(links), watch, options);
}

}  // namespace epl::comm

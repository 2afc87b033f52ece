// "host:port" as users and launchers write it: "10.0.0.1:2222", "node7:2222", "[fd00::1]:2222".
#pragma once

#include <optional>
#include <string>

namespace epl {

struct HostPort {
  std::string host;  // without brackets
  int port = 0;      // 1 to 65535
};

// Nothing where `text` is not of that form. A host that contains colons stands in brackets.
std::optional<HostPort> parse_host_port(const std::string& text);

// The form that parse_host_port() reads.
std::string host_port_text(const HostPort& place);

// Whether a host is this machine by its name alone: localhost, 127.x.x.x, ::1.
bool is_loopback(const std::string& host);

}  // namespace epl

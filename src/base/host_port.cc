#include "base/host_port.h"

#include <charconv>

namespace epl {
namespace {

constexpr int kMaxPort = 65535;

bool is_host(const std::string& host, bool in_brackets) {
  if (host.empty()) return false;
  if (!in_brackets && host.find(':') != std::string::npos) return false;
  return host.find_first_of("[]/, \t\n") == std::string::npos;
}

}  // namespace

std::optional<HostPort> parse_host_port(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  HostPort place;
  place.host = text.substr(0, colon);
  const bool in_brackets =
      place.host.size() > 2 && place.host.front() == '[' && place.host.back() == ']';
  if (in_brackets) place.host = place.host.substr(1, place.host.size() - 2);
  if (!is_host(place.host, in_brackets)) return std::nullopt;
  const char* begin = text.data() + colon + 1;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, place.port);
  if (error != std::errc() || stop != end || place.port < 1 || place.port > kMaxPort) {
    return std::nullopt;
  }
  return place;
}

std::string host_port_text(const HostPort& place) {
  const bool brackets = place.host.find(':') != std::string::npos;
  return (brackets ? "[" + place.host + "]" : place.host) + ":" + std::to_string(place.port);
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.compare(0, 4, "127.") == 0;
}

}  // namespace epl

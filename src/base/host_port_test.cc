#include "base/host_port.h"

#include <gtest/gtest.h>

namespace epl {
namespace {

TEST(HostPort, ReadsNamesAndAddresses) {
  for (const char* text : {"10.0.0.1:2222", "node-7.cluster:1", "[fd00::1]:65535", "a:29500"}) {
    const auto place = parse_host_port(text);
    ASSERT_TRUE(place.has_value()) << text;
    EXPECT_EQ(host_port_text(*place), text);
  }
  EXPECT_EQ(parse_host_port("[::1]:80")->host, "::1");
  EXPECT_EQ(parse_host_port("[::1]:80")->port, 80);
}

TEST(HostPort, RefusesWhatIsNotOfItsForm) {
  for (const char* text :
       {"", ":", "host", "host:", ":1", "host:0", "host:65536", "host:-1", "host:1x", "host: 1",
        "::1:80", "[]:80", "[::1]", "a b:1", "a,b:1", "http://a:1", "host:99999999999"}) {
    EXPECT_FALSE(parse_host_port(text).has_value()) << text;
  }
}

TEST(HostPort, KnowsTheLoopback) {
  EXPECT_TRUE(is_loopback("localhost"));
  EXPECT_TRUE(is_loopback("127.0.1.1"));
  EXPECT_TRUE(is_loopback("::1"));
  EXPECT_FALSE(is_loopback("10.0.0.1"));
  EXPECT_FALSE(is_loopback("localhost.example"));
}

}  // namespace
}  // namespace epl

#include "comm/host.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string>

#include "base/text.h"

namespace epl::comm {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string text;
  file >> text;
  return text;
}

uint64_t namespace_number(const char* path) {
  struct stat status {};
  return stat(path, &status) == 0 ? status.st_ino : 0;
}

}  // namespace

WorkerInfo describe_this_worker(int devices) {
  WorkerInfo info;
  info.host = host_name();
  info.host_key = concat(boot_id(), "/", namespace_number("/proc/self/ns/net"), "/",
                         namespace_number("/proc/self/ns/pid"), "/", getuid());
  info.pid = getpid();
  info.devices = devices;
  return info;
}

}  // namespace epl::comm

// Hosts for tests: network namespaces, with a switch between them and names of their own.
//
// A namespace lives as long as the process that holds it, so that nothing is left behind however a
// test ends: no name in /run/netns, no interface, no address.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/text.h"
#include "comm/socket.h"

namespace epl {

class TestHosts {
 public:
  // Hosts "host-0", "host-1", ... with the addresses 10.77.0.1, 10.77.0.2, ...
  explicit TestHosts(int count) {
    if (geteuid() != 0) {
      missing_ = "root, who may make network namespaces";
      return;
    }
    const pid_t bridge = hold("switch");
    if (bridge < 0) return;
    run_in(bridge, "ip link add name br0 type bridge && ip link set br0 up");
    for (int host = 0; host < count; ++host) {
      const pid_t holder = hold(concat("host-", host));
      if (holder < 0) return;
      run_in(bridge, concat("ip link add port", host, " type veth peer name eth0 netns ", holder,
                            " && ip link set port", host, " master br0 up"));
      run_in(holder, concat("ip link set lo up && ip addr add ", address(host),
                            "/24 dev eth0 && ip link set eth0 up"));
    }
  }

  ~TestHosts() {
    for (const pid_t holder : holders_) {
      kill(holder, SIGKILL);
      waitpid(holder, nullptr, 0);
    }
  }

  // What this machine lacks; empty where hosts could be made.
  const std::string& missing() const { return missing_; }

  static std::string address(int host) { return concat("10.77.0.", host + 1); }

  // Moves the calling process to a host.
  void enter(int host) const { enter_namespaces(holders_[static_cast<size_t>(host) + 1]); }

  // Pulls the host's plug out of the switch.
  void cut_off(int host) { run_in(holders_[0], concat("ip link set port", host, " down")); }

 private:
  // A process that sleeps in namespaces of its own.
  pid_t hold(const std::string& name) {
    int ends[2];
    if (pipe(ends) != 0) return fail("pipe");
    const pid_t parent = getpid();
    const pid_t holder = fork();
    if (holder == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      const bool made =
          unshare(CLONE_NEWNET | CLONE_NEWUTS) == 0 && sethostname(name.data(), name.size()) == 0;
      const char answer = made ? 0 : static_cast<char>(errno);
      if (write(ends[1], &answer, 1) != 1 || !made) _exit(1);
      while (true) pause();
    }
    close(ends[1]);
    const comm::Descriptor heard(ends[0]);
    if (holder < 0) return fail("fork");
    holders_.push_back(holder);
    char answer = 1;
    if (read(heard.get(), &answer, 1) != 1 || answer != 0) {
      errno = answer;
      return fail("unshare(CLONE_NEWNET)");
    }
    return holder;
  }

  pid_t fail(const std::string& what) {
    missing_ = concat(what, ": ", std::strerror(errno));
    return -1;
  }

  static void enter_namespaces(pid_t holder) {
    for (const char* kind : {"net", "uts"}) {
      const comm::Descriptor space(
          open(concat("/proc/", holder, "/ns/", kind).c_str(), O_RDONLY | O_CLOEXEC));
      if (setns(space.get(), 0) != 0) _exit(1);
    }
  }

  void run_in(pid_t holder, const std::string& command) {
    const pid_t child = fork();
    if (child == 0) {
      enter_namespaces(holder);
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0 && missing_.empty()) missing_ = concat("what `", command, "` needs (iproute2)");
  }

  std::vector<pid_t> holders_;  // first the switch, then the hosts
  std::string missing_;
};

}  // namespace epl

#include "runtime/side_by_side.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

namespace epl {
namespace {

using Kind = Instruction::Kind;

Program program_of(const std::vector<Kind>& kinds) {
  Program program;
  for (Kind kind : kinds) {
    program.instructions.emplace_back();
    program.instructions.back().kind = kind;
  }
  return program;
}

// Two visits: what the second one fetches, the third would read.
Program two_visits() {
  return program_of({Kind::kFetch, Kind::kWait, Kind::kRun, Kind::kStore, Kind::kFetch, Kind::kWait,
                     Kind::kRun, Kind::kStore, Kind::kFetch});
}

TEST(SideBySide, ADeviceWaitsForOthersThatAreARunBehind) {
  const Program program = two_visits();
  SideBySide devices(program, 2);
  devices.begin();
  const auto never = [] { throw std::logic_error("waits"); };
  devices.wait_for_others(0, program.instructions[0], never);
  devices.note_done(0);  // fetch
  devices.note_done(0);  // wait
  devices.note_done(0);  // store
  // The other has not even fetched for the run that this one has done.
  EXPECT_THROW(devices.wait_for_others(0, program.instructions[4], never), std::logic_error);
  devices.note_done(1);
  EXPECT_THROW(devices.wait_for_others(0, program.instructions[4], never), std::logic_error);
  devices.note_done(1);
  devices.wait_for_others(0, program.instructions[4], never);  // it runs now
  devices.wait_for_others(1, program.instructions[4], never);  // whoever is behind waits for nobody
  devices.begin();
  EXPECT_THROW(devices.wait_for_others(0, program.instructions[4], never), std::logic_error);
}

TEST(SideBySide, ThreadsGoOnTogether) {
  const Program program = two_visits();
  SideBySide devices(program, 3);
  std::atomic<int> passed{0};
  for (int round = 0; round < 50; ++round) {
    devices.begin();
    std::vector<std::thread> threads;
    for (int device = 0; device < 3; ++device) {
      threads.emplace_back([&, device] {
        for (const Instruction& each : program.instructions) {
          if (each.kind == Kind::kFetch) devices.wait_for_others(device, each, [] {});
          if (each.kind == Kind::kRun) continue;
          devices.note_done(device);
        }
        ++passed;
      });
    }
    for (auto& thread : threads) thread.join();
  }
  EXPECT_EQ(passed, 150);
}

}  // namespace
}  // namespace epl

// What the devices of this worker have of one trainer, besides its recorded steps.
#pragma once

#include <memory>
#include <vector>

#include "runtime/device_team.h"
#include "runtime/executor.h"
#include "runtime/random_streams.h"

namespace epl {

struct LocalReplica {
  LocalReplica(c10::Device device, int number) : arena(device), streams(number) {}

  Arena arena;      // shared by the steps of all shapes: only one of them runs
  at::Tensor sums;  // pages of the sums that the worker keeps (WorkerSums): shared likewise
  RandomStreams streams;
};

struct LocalReplicas {
  // `first`: the number of this worker's first device in the job.
  LocalReplicas(DeviceTeam& team, c10::Device device, int first) : team(team), first(first) {
    for (int i = 0; i < team.size(); ++i) {
      each.push_back(std::make_unique<LocalReplica>(device, first + i));
    }
  }

  int size() const { return team.size(); }
  LocalReplica& operator[](int device) const { return *each[static_cast<size_t>(device)]; }

  // Before each run of a step that draws random numbers.
  void begin_step() const {
    for (const auto& replica : each) replica->streams.begin_step(step);
  }

  // Before a step that runs without them: the memory of a plain step and that of a replayed one are
  // never held at once. The next replay takes it again.
  void release_arenas() const {
    for (const auto& replica : each) replica->arena.release();
  }

  // How many numbers each device drew since then; asked a second time, none.
  std::vector<uint64_t> take_drawn() const {
    std::vector<uint64_t> drawn;
    for (const auto& replica : each) drawn.push_back(replica->streams.take_drawn());
    return drawn;
  }

  DeviceTeam& team;
  const int first;
  int64_t step = 0;  // that the random streams are at: goes on where a training is resumed
  std::vector<std::unique_ptr<LocalReplica>> each;
};

}  // namespace epl

// Env: what this process knows of its job.
//
//   int main() {
//     epl::init(epl::Config{{"pipeline.num_micro_batch", 4}});
//     int devices = epl::Env::get().cluster.total_gpu_num;
//     ...
//
// The devices of a process are set by EPL_DEVICES; without it there is one.
#pragma once

#include <epl/cluster.h>
#include <epl/config.h>
#include <epl/source_location.h>

namespace epl {

struct Env {
  Cluster cluster;
  Config config;

  // What the last epl::init() found. Before it there is none: an error. The reference stays good; a
  // further init() changes what it shows.
  static const Env& get(SourceLocation where = SourceLocation::current());
};

// Once per process, from the thread that trains, before the model is built. A second call resets
// everything: configuration, cluster, default strategy, collections. It throws, and leaves all as
// it was, where a setting is not available yet and where it stands inside of a scope or a step
// function.
void init(const Config& config = {}, SourceLocation where = SourceLocation::current());

}  // namespace epl

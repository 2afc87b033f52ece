// How long does it take to plan the step of a GPT for a cluster that is not here, and how much
// memory?
//
//   bench_compile [--split 8] [--stages 8] [--replicas 8] [--micro-batches 16] [--layers 16]
//
// Records the GPT of examples/ once on this machine, then compiles it for split * stages * replicas
// devices on workers of eight, on one core, and checks the Plan: every role has its Program, all of
// them pass the verifier, every parameter is updated, and the pieces that the devices of a stage
// hold make up the whole. Prints seconds, and the peak of the process's memory before and after as
// the system counts it.
#include "compile/compile.h"

#include <ATen/Parallel.h>
#include <epl/epl.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <set>
#include <stdexcept>

#include "capture/capture.h"
#include "examples/gpt/gpt.h"
#include "program/text.h"
#include "program/verify.h"

namespace {

using epl::Cluster;
using epl::CompiledStep;
using epl::Program;

struct Size {
  int split = 8;
  int stages = 8;
  int replicas = 8;
  int micro_batches = 16;
  int64_t layers = 16;

  int devices() const { return split * stages * replicas; }
};

Cluster cluster_of(int devices) {
  constexpr int kOfAWorker = 8;
  Cluster cluster;
  cluster.worker_num = (devices + kOfAWorker - 1) / kOfAWorker;
  cluster.total_gpu_num = devices;
  cluster.worker_devices.assign(static_cast<size_t>(cluster.worker_num), kOfAWorker);
  cluster.worker_devices.back() = devices - kOfAWorker * (cluster.worker_num - 1);
  cluster.worker_hosts.clear();
  for (int i = 0; i < cluster.worker_num; ++i) {
    cluster.worker_hosts.push_back("host" + std::to_string(i));
  }
  return cluster;
}

epl::Graph record(const Size& size) {
  gpt::GptOptions options;
  options.layers = size.layers;
  options.width = 256;
  options.heads = 8;
  options.split = size.split;
  options.stages = size.stages;
  gpt::Gpt net(options);
  const torch::Tensor tokens = torch::randint(options.vocabulary, {2, 64}, torch::kLong);
  const epl::StepFunction step = [&](const epl::Batch& batch) {
    return net->loss(batch[0], batch[1]);
  };
  epl::NamedTensors parameters;
  epl::NamedTensors state;
  for (const auto& entry : net->named_parameters()) {
    parameters.emplace_back(entry.key(), entry.value());
  }
  for (const auto& entry : net->named_buffers()) state.emplace_back(entry.key(), entry.value());
  return epl::capture_step({step, {tokens, tokens.roll(1, 1)}, parameters, state}).graph;
}

void check(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("the plan is wrong: " + what);
}

void check_plan(const CompiledStep& step, const epl::Graph& recorded, const Size& size) {
  const epl::Plan& plan = step.plan;
  check(static_cast<int>(plan.roles()) == size.split * size.stages, "a role a part of a stage");
  check(plan.replicas == size.replicas, "replicas");
  epl::verify_plan(plan);
  // By parameter: elements along the dimension in which it is cut, of those that update a piece.
  std::map<std::string, int64_t> updated;
  std::map<std::string, int64_t> whole;
  for (const Program& program : plan.programs) {
    for (const auto& gradient : program.gradients) {
      const auto& leaf = program.leaves[static_cast<size_t>(gradient.leaf)];
      if (leaf.shard.is_cut()) {
        updated[leaf.name] += program.roles * leaf.shard.piece.length;
        whole[leaf.name] = leaf.shard.whole;
      } else {
        updated[leaf.name] = whole[leaf.name] = 1;
      }
    }
  }
  check(updated == whole, "pieces make up the whole");
  size_t parameters = 0;
  for (const auto& leaf : recorded.leaves) {
    parameters += leaf.kind == epl::Leaf::Kind::kParameter ? 1 : 0;
  }
  check(updated.size() == parameters, "every parameter is updated");
}

double peak_megabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

}  // namespace

int main(int argc, char** argv) {
  Size size;
  CLI::App options("Plans the step of a GPT for a cluster that is not here.");
  options.add_option("--split", size.split);
  options.add_option("--stages", size.stages);
  options.add_option("--replicas", size.replicas);
  options.add_option("--micro-batches", size.micro_batches);
  options.add_option("--layers", size.layers);
  CLI11_PARSE(options, argc, argv);
  at::set_num_threads(1);
  epl::init();

  const epl::Graph recorded = record(size);
  const epl::Config config{{"pipeline.num_micro_batch", size.micro_batches}};
  const double before = peak_megabytes();
  const auto begin = std::chrono::steady_clock::now();
  const CompiledStep step = epl::compile(recorded, cluster_of(size.devices()), config);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const double after = peak_megabytes();
  check_plan(step, recorded, size);

  std::printf(
      "%d devices: %zu operators, %zu programs, %zu transfers; %.2f s, %.0f MB on top of %.0f\n",
      size.devices(), recorded.nodes.size(), step.plan.programs.size(), step.plan.transfers.size(),
      seconds, after - before, before);
  std::printf(
      "{\"bench\": \"compile\", \"devices\": %d, \"nodes\": %zu, \"programs\": %zu, \"seconds\": "
      "%.3f, "
      "\"peak_mb_before\": %.0f, \"peak_mb\": %.0f}\n",
      size.devices(), recorded.nodes.size(), step.plan.programs.size(), seconds, before, after);
  return 0;
}

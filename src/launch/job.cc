#include "launch/job.h"

#include <algorithm>
#include <cctype>

#include "base/check.h"
#include "config/job_variables.h"

namespace epl {
namespace {

std::string base_name(const std::string& program) {
  const std::string file = program.substr(program.rfind('/') + 1);
  const size_t dot = file.rfind('.');
  return dot == std::string::npos || dot == 0 ? file : file.substr(0, dot);
}

}  // namespace

std::vector<WorkerPlan> plan_workers(const LaunchOptions& options, const HostPort& master,
                                     int cores, const Variables& environment) {
  const WorkerRange range = workers_of_machine(options);
  const int devices = range.count * options.gpu_per_worker;
  std::vector<WorkerPlan> plans;
  for (int local = 0; local < range.count; ++local) {
    WorkerPlan plan;
    plan.index = range.first + local;
    plan.added = {{kWorkerIndexVariable, std::to_string(plan.index)},
                  {kWorkerNumVariable, std::to_string(options.num_workers)},
                  {kMasterVariable, host_port_text(master)},
                  {kLocalIndexVariable, std::to_string(local)},
                  {kLocalNumVariable, std::to_string(range.count)},
                  {kDevicesVariable, std::to_string(options.gpu_per_worker)}};
    if (environment.count("OMP_NUM_THREADS") == 0) {
      plan.added["OMP_NUM_THREADS"] = std::to_string(std::max(1, cores / devices));
    }
    // Python keeps what it prints to itself for kilobytes where it prints to a pipe.
    if (environment.count("PYTHONUNBUFFERED") == 0) plan.added["PYTHONUNBUFFERED"] = "1";
    plan.environment = environment;
    for (const auto& [name, value] : plan.added) plan.environment[name] = value;
    plans.push_back(std::move(plan));
  }
  return plans;
}

void check_devices_variable(const LaunchOptions& options, const Variables& environment) {
  const auto found = environment.find(kDevicesVariable);
  // A worker that starts a job of its own has the variables of the job that it belongs to.
  if (found == environment.end() || environment.count(kWorkerIndexVariable) != 0) return;
  EPL_CHECK(
      found->second == std::to_string(options.gpu_per_worker),
      concat(kDevicesVariable, "=", found->second, " has no effect: epl-launch gives every worker ",
             options.gpu_per_worker, options.gpu_per_worker == 1 ? " device" : " devices"),
      concat(kDevicesVariable, "=", found->second, " (environment)"),
      concat("--gpu_per_worker ", found->second, " in place of ", kDevicesVariable));
}

std::string job_folder_name(const std::string& label, const std::string& program,
                            const std::string& time) {
  std::string name = label.empty() ? base_name(program) : label;
  std::replace_if(
      name.begin(), name.end(),
      [](unsigned char c) { return !std::isalnum(c) && std::string("._-").find(c) > 2; }, '_');
  if (name.empty() || name[0] == '.') name.insert(0, "job");
  return name + "-" + time;
}

}  // namespace epl

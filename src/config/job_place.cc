// How a process finds its place in the job: from the variables of whoever started it.
#include <algorithm>
#include <charconv>
#include <climits>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/host_port.h"
#include "base/text.h"
#include "config/environment.h"
#include "config/job_variables.h"
#include "config/slurm_text.h"

namespace epl {
namespace {

constexpr const char* kLocalHost = "127.0.0.1";
constexpr int kMaxPort = 65535;

// Ports that are derived lie below those which Linux hands out by itself (from 32768 on).
constexpr int kFirstPort = 20000;
constexpr int kPorts = 12000;

// Slurm numbers the steps that srun starts from 0; the numbers above are those of the batch script
// and of an interactive shell, in which nobody has started any tasks.
constexpr int64_t kMaxStep = 0xfffffff0;

std::string origin(const std::string& name, const std::string& value) {
  return concat(name, "=", value, " (environment)");
}

// The environment, read with checks whose messages name the variable.
class Variables {
 public:
  explicit Variables(const std::map<std::string, std::string>& all) : all_(all) {}

  bool has(const std::string& name) const { return all_.count(name) != 0; }

  const std::string& text(const std::string& name) const { return all_.find(name)->second; }

  // `because` says where the bounds come from, where that is another variable.
  template <typename Integer = int>
  Integer integer(const std::string& name, Integer low, Integer high,
                  const std::string& because = "") const {
    const std::string& value = text(name);
    Integer number = 0;
    const char* end = value.data() + value.size();
    const auto [stop, error] = std::from_chars(value.data(), end, number);
    EPL_CHECK(
        error == std::errc() && stop == end && number >= low && number <= high,
        concat(name, " must be an integer ",
               high == std::numeric_limits<Integer>::max() ? concat("of at least ", low)
                                                           : concat("from ", low, " to ", high),
               because.empty() ? "" : " (" + because + ")", ", not \"", value, "\""),
        origin(name, value), "the same launcher's values for all of its variables, or none");
    return number;
  }

  std::string host(const std::string& name) const {
    const std::string& value = text(name);
    EPL_CHECK(!value.empty() && value.find_first_of(" \t,/[]") == std::string::npos,
              concat(name, " must be the name or the address of one host, not \"", value, "\""),
              origin(name, value), concat(name, "=", kLocalHost, " where all workers run here"));
    return value;
  }

  int port(const std::string& name) const { return integer(name, 1, kMaxPort); }

  // Launchers set these names together; one alone is a slip that would leave workers on their own.
  void check_all_or_none(const std::vector<std::string>& names) const {
    const auto set = [&](const std::string& name) { return has(name); };
    const auto here = std::find_if(names.begin(), names.end(), set);
    const auto gone = std::find_if_not(names.begin(), names.end(), set);
    EPL_CHECK(here == names.end() || gone == names.end(),
              concat(*here, " is set and ", *gone, " is not"), origin(*here, text(*here)),
              concat("set ", *gone, " too, or unset ", *here));
  }

 private:
  const std::map<std::string, std::string>& all_;
};

// The same port for all workers of a job, other ports for other jobs: FNV-1a of the job's name.
int port_of(const std::string& job) {
  uint32_t hash = 2166136261u;
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return kFirstPort + static_cast<int>(hash % kPorts);
}

struct CountNames {
  std::string index, num, local_index, local_num;
};

// Where nobody says how many workers share this machine: all of them if worker 0 is known to be
// here, else this one alone.
void guess_local(JobPlace& place) {
  const bool all_here = place.worker_num == 1 || is_loopback(place.master_host);
  place.local_num = all_here ? place.worker_num : 1;
  place.local_index = all_here ? place.worker_index : 0;
}

std::string setting(const Variables& variables, const std::string& name) {
  return name + "=" + variables.text(name);
}

void read_local(const Variables& variables, const CountNames& names, JobPlace& place) {
  place.local_num =
      variables.integer(names.local_num, 1, place.worker_num, setting(variables, names.num));
  place.local_index = variables.integer(names.local_index, 0, place.local_num - 1,
                                        setting(variables, names.local_num));
}

// The four numbers that every launcher but Slurm gives plainly. The local ones may be absent, then
// the caller guesses once it knows the master.
JobPlace read_counts(const Variables& variables, const CountNames& names) {
  variables.check_all_or_none({names.index, names.num});
  variables.check_all_or_none({names.local_index, names.local_num});
  JobPlace place;
  place.worker_num = variables.integer(names.num, 1, INT_MAX);
  place.worker_index =
      variables.integer(names.index, 0, place.worker_num - 1, setting(variables, names.num));
  if (variables.has(names.local_num)) read_local(variables, names, place);
  return place;
}

void use_master_variables(const Variables& variables, JobPlace& place) {
  if (variables.has("MASTER_ADDR")) place.master_host = variables.host("MASTER_ADDR");
  if (variables.has("MASTER_PORT")) place.master_port = variables.port("MASTER_PORT");
}

// --- epl-launch ------------------------------------------------------------------------------
const CountNames kOwn{kWorkerIndexVariable, kWorkerNumVariable, kLocalIndexVariable,
                      kLocalNumVariable};

std::optional<JobPlace> place_by_epl_launch(const Variables& variables) {
  const std::vector<std::string> names = {kOwn.index, kOwn.num, kOwn.local_index, kOwn.local_num,
                                          kMasterVariable};
  const auto first = std::find_if(names.begin(), names.end(),
                                  [&](const std::string& name) { return variables.has(name); });
  if (first == names.end()) return std::nullopt;
  variables.check_all_or_none({*first, kOwn.index});
  JobPlace place = read_counts(variables, kOwn);
  if (place.worker_num > 1) variables.check_all_or_none({kOwn.num, kMasterVariable});
  if (variables.has(kMasterVariable)) {
    const std::string& text = variables.text(kMasterVariable);
    const auto master = parse_host_port(text);
    EPL_CHECK(master.has_value(),
              concat(kMasterVariable, " must be host:port with a port from 1 to ", kMaxPort,
                     ", not \"", text, "\""),
              origin(kMasterVariable, text), concat(kMasterVariable, "=", kLocalHost, ":29500"));
    place.master_host = master->host;
    place.master_port = master->port;
  }
  if (!variables.has(kOwn.local_num)) guess_local(place);
  place.found_by = "epl-launch";
  return place;
}

// --- torchrun --------------------------------------------------------------------------------
std::optional<JobPlace> place_by_torchrun(const Variables& variables) {
  const CountNames names{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
  if (!variables.has(names.index) && !variables.has(names.num)) return std::nullopt;
  JobPlace place = read_counts(variables, names);
  if (place.worker_num > 1) {
    variables.check_all_or_none({names.num, "MASTER_ADDR"});
    variables.check_all_or_none({names.num, "MASTER_PORT"});
    use_master_variables(variables, place);
  }
  // torchrun itself listens at the master's port where it says so; EPL's worker 0 needs another.
  const std::string agent = "TORCHELASTIC_USE_AGENT_STORE";
  if (variables.has(agent) && variables.text(agent) == "True") {
    std::string job = concat("torchrun ", place.master_port);
    for (const char* name : {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}) {
      if (variables.has(name)) job += " " + variables.text(name);
    }
    place.master_port = port_of(job);
  }
  if (!variables.has(names.local_num)) guess_local(place);
  place.found_by = "torchrun";
  return place;
}

// --- Open MPI --------------------------------------------------------------------------------
std::optional<JobPlace> place_by_open_mpi(const Variables& variables) {
  const CountNames names{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                         "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
  if (!variables.has(names.index) && !variables.has(names.num)) return std::nullopt;
  variables.check_all_or_none({names.index, names.num, names.local_index, names.local_num});
  JobPlace place = read_counts(variables, names);
  place.found_by = "Open MPI";
  if (place.worker_num == 1) return place;

  if (place.local_num == place.worker_num) place.master_host = kLocalHost;
  for (const char* name : {"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"}) {
    if (variables.has(name)) place.master_port = port_of("mpirun " + variables.text(name));
  }
  use_master_variables(variables, place);
  EPL_CHECK(!place.master_host.empty() && place.master_port != 0,
            concat("mpirun does not say where worker 0 of ", place.worker_num, " listens (",
                   place.local_num, " of them run on this machine)"),
            origin(names.num, variables.text(names.num)),
            "export MASTER_ADDR=<host of rank 0> MASTER_PORT=<a free port there>, and "
            "mpirun -x MASTER_ADDR -x MASTER_PORT ...");
  return place;
}

// --- Slurm -----------------------------------------------------------------------------------

// An allocation alone starts nothing: only srun starts tasks, each with the number of its step. A
// batch script has SLURM_PROCID=0 and SLURM_NTASKS=n as well, but no step, or one of the special
// numbers; waiting there for n - 1 others would be waiting for nobody.
bool is_slurm_task(const Variables& variables) {
  const char* step = variables.has("SLURM_STEP_ID") ? "SLURM_STEP_ID" : "SLURM_STEPID";
  if (!variables.has("SLURM_PROCID") || !variables.has(step)) return false;
  const auto id = variables.integer<int64_t>(step, INT64_MIN, INT64_MAX);
  return id >= 0 && id < kMaxStep;
}

int slurm_local_num(const Variables& variables, int worker_num) {
  const char* list = "SLURM_STEP_TASKS_PER_NODE";
  if (!variables.has(list)) {
    const char* each = "SLURM_NTASKS_PER_NODE";
    return variables.has(each) ? std::min(worker_num, variables.integer(each, 1, INT_MAX))
                               : worker_num;
  }
  const std::string& text = variables.text(list);
  const auto counts = slurm_counts(text);
  EPL_CHECK(counts.has_value(), concat(list, " must be counts such as 2(x3),1, not \"", text, "\""),
            origin(list, text));
  const int64_t sum = std::accumulate(counts->begin(), counts->end(), int64_t{0});
  EPL_CHECK(sum == worker_num,
            concat(list, " counts ", sum, " tasks, Slurm's step has ", worker_num),
            origin(list, text));
  if (!variables.has("SLURM_NODEID")) return counts->front();
  const int nodes = static_cast<int>(counts->size());
  const int node = variables.integer("SLURM_NODEID", 0, nodes - 1, setting(variables, list));
  return (*counts)[static_cast<size_t>(node)];
}

std::string slurm_master(const Variables& variables) {
  const char* list =
      variables.has("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
  EPL_CHECK(variables.has(list), "Slurm does not say on which nodes the step runs",
            "SLURM_PROCID (environment)", "export MASTER_ADDR=<host of task 0>");
  const std::string& text = variables.text(list);
  const auto host = first_slurm_host(text);
  EPL_CHECK(host.has_value(),
            concat(list, " must be a list of nodes such as node[01-04,7], not \"", text, "\""),
            origin(list, text), "export MASTER_ADDR=<host of task 0>");
  return *host;
}

std::string slurm_job(const Variables& variables) {
  std::string job = "slurm";
  for (const char* name : {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEPID"}) {
    if (variables.has(name)) job += " " + variables.text(name);
  }
  return job;
}

std::optional<JobPlace> place_by_slurm(const Variables& variables) {
  if (!is_slurm_task(variables)) return std::nullopt;
  const char* num = variables.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  variables.check_all_or_none({"SLURM_PROCID", num, "SLURM_LOCALID"});
  JobPlace place;
  place.found_by = "Slurm";
  place.worker_num = variables.integer(num, 1, INT_MAX);
  place.worker_index =
      variables.integer("SLURM_PROCID", 0, place.worker_num - 1, setting(variables, num));
  place.local_num = slurm_local_num(variables, place.worker_num);
  place.local_index =
      variables.integer("SLURM_LOCALID", 0, place.local_num - 1,
                        concat("Slurm starts ", place.local_num, " tasks on this node"));
  if (place.worker_num == 1) return place;
  place.master_port = port_of(slurm_job(variables));
  use_master_variables(variables, place);
  if (place.master_host.empty()) {
    place.master_host = place.local_num == place.worker_num ? kLocalHost : slurm_master(variables);
  }
  return place;
}

}  // namespace

JobPlace find_job_place(const std::map<std::string, std::string>& environment) {
  const Variables variables(environment);
  for (const auto& find :
       {place_by_epl_launch, place_by_torchrun, place_by_open_mpi, place_by_slurm}) {
    std::optional<JobPlace> place = find(variables);
    if (!place) continue;
    if (place->worker_num == 1) {
      place->master_host.clear();
      place->master_port = 0;
    }
    return *std::move(place);
  }
  return JobPlace{};
}

JobPlace find_job_place() { return find_job_place(process_environment()); }

}  // namespace epl

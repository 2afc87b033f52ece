#include <gtest/gtest.h>

#include "base/text.h"
#include "config/slurm_text.h"
#include "config/test_environment.h"

namespace epl {
namespace {

using Environment = std::map<std::string, std::string>;

// "epl-launch: worker 1 of 4, local 1 of 2, master 10.0.0.1:2222".
std::string text_of(const JobPlace& place) {
  const std::string master =
      place.master_host.empty() ? "none" : concat(place.master_host, ":", place.master_port);
  return concat(place.found_by.empty() ? "nobody" : place.found_by, ": worker ", place.worker_index,
                " of ", place.worker_num, ", local ", place.local_index, " of ", place.local_num,
                ", master ", master);
}

std::string found(const Environment& environment) { return text_of(find_job_place(environment)); }

std::string fault(const Environment& environment) {
  return error_of([&] { find_job_place(environment); });
}

// `changes` replace or add; an empty value takes a variable away.
Environment with(Environment environment, const Environment& changes) {
  for (const auto& [name, value] : changes) {
    if (value.empty()) {
      environment.erase(name);
    } else {
      environment[name] = value;
    }
  }
  return environment;
}

const Environment kOwn = {{"EPL_WORKER_INDEX", "3"},       {"EPL_WORKER_NUM", "4"},
                          {"EPL_LOCAL_INDEX", "1"},        {"EPL_LOCAL_NUM", "2"},
                          {"EPL_MASTER", "10.0.0.1:2222"}, {"EPL_DEVICES", "2"}};
const Environment kTorchrun = {{"RANK", "3"},
                               {"WORLD_SIZE", "4"},
                               {"LOCAL_RANK", "1"},
                               {"LOCAL_WORLD_SIZE", "2"},
                               {"MASTER_ADDR", "node1"},
                               {"MASTER_PORT", "29500"}};
const Environment kMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                          {"OMPI_COMM_WORLD_SIZE", "2"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                          {"PMIX_NAMESPACE", "557056001"}};
const Environment kSlurm = {{"SLURM_JOB_ID", "77"},
                            {"SLURM_STEP_ID", "0"},
                            {"SLURM_PROCID", "3"},
                            {"SLURM_NTASKS", "4"},
                            {"SLURM_STEP_NUM_TASKS", "4"},
                            {"SLURM_LOCALID", "1"},
                            {"SLURM_NODEID", "1"},
                            {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                            {"SLURM_STEP_NODELIST", "node[01-02]"}};

TEST(JobPlace, IsOneWorkerWhereNobodySaysAnything) {
  EXPECT_EQ(found({}), "nobody: worker 0 of 1, local 0 of 1, master none");
  EXPECT_EQ(found({{"EPL_DEVICES", "4"}, {"MASTER_ADDR", "node1"}, {"LOCAL_RANK", "1"}}),
            "nobody: worker 0 of 1, local 0 of 1, master none");
}

TEST(JobPlace, IsWhatEplLaunchSays) {
  EXPECT_EQ(found(kOwn), "epl-launch: worker 3 of 4, local 1 of 2, master 10.0.0.1:2222");
  EXPECT_EQ(found(with(kOwn, {{"EPL_MASTER", "[fd00::1]:80"}})),
            "epl-launch: worker 3 of 4, local 1 of 2, master fd00::1:80");
}

TEST(JobPlace, NeedsNoMasterForOneWorker) {
  EXPECT_EQ(found({{"EPL_WORKER_INDEX", "0"}, {"EPL_WORKER_NUM", "1"}}),
            "epl-launch: worker 0 of 1, local 0 of 1, master none");
  EXPECT_EQ(found({{"RANK", "0"}, {"WORLD_SIZE", "1"}}),
            "torchrun: worker 0 of 1, local 0 of 1, master none");
}

TEST(JobPlace, GuessesWhoIsOnTheSameMachine) {
  const Environment by_hand = with(kOwn, {{"EPL_LOCAL_INDEX", ""}, {"EPL_LOCAL_NUM", ""}});
  EXPECT_EQ(found(by_hand), "epl-launch: worker 3 of 4, local 0 of 1, master 10.0.0.1:2222");
  EXPECT_EQ(found(with(by_hand, {{"EPL_MASTER", "localhost:2222"}})),
            "epl-launch: worker 3 of 4, local 3 of 4, master localhost:2222");
}

TEST(JobPlace, PrefersTheLauncherThatIsNearest) {
  Environment all = kSlurm;
  EXPECT_EQ(find_job_place(all).found_by, "Slurm");
  all.insert(kMpi.begin(), kMpi.end());
  EXPECT_EQ(find_job_place(all).found_by, "Open MPI");
  all.insert(kTorchrun.begin(), kTorchrun.end());
  EXPECT_EQ(find_job_place(all).found_by, "torchrun");
  all.insert(kOwn.begin(), kOwn.end());
  EXPECT_EQ(find_job_place(all).found_by, "epl-launch");
}

TEST(JobPlace, NamesAVariableThatIsMissing) {
  for (const char* name :
       {"EPL_WORKER_INDEX", "EPL_WORKER_NUM", "EPL_MASTER", "EPL_LOCAL_INDEX", "EPL_LOCAL_NUM"}) {
    EXPECT_NE(fault(with(kOwn, {{name, ""}})).find(concat(name, " is not\n")), std::string::npos)
        << fault(with(kOwn, {{name, ""}}));
  }
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"}) {
    EXPECT_NE(fault(with(kTorchrun, {{name, ""}})).find(concat(name, " is not\n")),
              std::string::npos);
  }
  EXPECT_EQ(fault({{"EPL_MASTER", "a:1"}}),
            "epl: EPL_MASTER is set and EPL_WORKER_INDEX is not\n"
            "  asked by: EPL_MASTER=a:1 (environment)\n"
            "  try:      set EPL_WORKER_INDEX too, or unset EPL_MASTER");
}

TEST(JobPlace, NamesAVariableThatIsMalformed) {
  for (const char* value : {"-1", "4", "x", "1.0", " 1", "99999999999"}) {
    EXPECT_EQ(fault(with(kOwn, {{"EPL_WORKER_INDEX", value}})),
              concat("epl: EPL_WORKER_INDEX must be an integer from 0 to 3 (EPL_WORKER_NUM=4), not "
                     "\"",
                     value, "\"\n  asked by: EPL_WORKER_INDEX=", value,
                     " (environment)\n"
                     "  try:      the same launcher's values for all of its variables, or none"));
  }
  for (const char* value : {"0", "-2", "many"}) {
    EXPECT_NE(fault(with(kTorchrun, {{"WORLD_SIZE", value}}))
                  .find(concat("WORLD_SIZE must be an integer of at least 1, not \"", value, "\"")),
              std::string::npos);
  }
  for (const char* value : {"host", "host:", "host:0", "host:65536", ":1", "::1:80"}) {
    EXPECT_NE(fault(with(kOwn, {{"EPL_MASTER", value}}))
                  .find(concat("EPL_MASTER must be host:port with a port from 1 to 65535, not \"",
                               value, "\"")),
              std::string::npos);
  }
  EXPECT_NE(fault(with(kTorchrun, {{"MASTER_PORT", "65536"}})).find("MASTER_PORT"),
            std::string::npos);
  EXPECT_NE(fault(with(kTorchrun, {{"MASTER_ADDR", "a b"}})).find("MASTER_ADDR"),
            std::string::npos);
}

TEST(JobPlace, RefusesNumbersThatContradictEachOther) {
  EXPECT_NE(fault(with(kOwn, {{"EPL_LOCAL_NUM", "5"}})).find("from 1 to 4 (EPL_WORKER_NUM=4)"),
            std::string::npos);
  EXPECT_NE(fault(with(kOwn, {{"EPL_LOCAL_INDEX", "2"}})).find("from 0 to 1 (EPL_LOCAL_NUM=2)"),
            std::string::npos);
  EXPECT_NE(fault(with(kMpi, {{"OMPI_COMM_WORLD_RANK", "2"}})).find("(OMPI_COMM_WORLD_SIZE=2)"),
            std::string::npos);
  EXPECT_NE(fault(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "2,3"}})).find("counts 5 tasks"),
            std::string::npos);
}

TEST(JobPlace, IsWhatTorchrunSays) {
  EXPECT_EQ(found(kTorchrun), "torchrun: worker 3 of 4, local 1 of 2, master node1:29500");
}

TEST(JobPlace, LeavesTorchrunItsOwnPort) {
  const Environment served = with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                              {"TORCHELASTIC_RUN_ID", "none"},
                                              {"TORCHELASTIC_RESTART_COUNT", "0"}});
  const JobPlace place = find_job_place(served);
  EXPECT_NE(place.master_port, 29500);
  EXPECT_EQ(place.master_host, "node1");
  EXPECT_EQ(find_job_place(with(served, {{"RANK", "0"}})).master_port, place.master_port);
  EXPECT_NE(find_job_place(with(served, {{"TORCHELASTIC_RESTART_COUNT", "1"}})).master_port,
            place.master_port);
  EXPECT_EQ(find_job_place(with(served, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).master_port,
            29500);
}

TEST(JobPlace, IsWhatMpirunSays) {
  const JobPlace place = find_job_place(kMpi);
  EXPECT_EQ(text_of(place),
            concat("Open MPI: worker 1 of 2, local 1 of 2, master 127.0.0.1:", place.master_port));
  EXPECT_GE(place.master_port, 20000);
  EXPECT_LT(place.master_port, 32768);
  EXPECT_NE(find_job_place(with(kMpi, {{"PMIX_NAMESPACE", "557056002"}})).master_port,
            place.master_port);
  EXPECT_EQ(found(with(kMpi, {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "5"}})),
            "Open MPI: worker 1 of 2, local 1 of 2, master a:5");
}

TEST(JobPlace, AsksForAMasterWhereMpirunSpansMachines) {
  const Environment far =
      with(kMpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}});
  EXPECT_EQ(fault(far),
            "epl: mpirun does not say where worker 0 of 2 listens (1 of them run on this machine)\n"
            "  asked by: OMPI_COMM_WORLD_SIZE=2 (environment)\n"
            "  try:      export MASTER_ADDR=<host of rank 0> MASTER_PORT=<a free port there>, and "
            "mpirun -x MASTER_ADDR -x MASTER_PORT ...");
  EXPECT_EQ(found(with(far, {{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "2222"}})),
            "Open MPI: worker 1 of 2, local 0 of 1, master node1:2222");
}

TEST(JobPlace, IsWhatSrunSays) {
  const JobPlace place = find_job_place(kSlurm);
  EXPECT_EQ(text_of(place),
            concat("Slurm: worker 3 of 4, local 1 of 2, master node01:", place.master_port));
  EXPECT_EQ(find_job_place(with(kSlurm, {{"SLURM_PROCID", "0"}})).master_port, place.master_port);
  EXPECT_NE(find_job_place(with(kSlurm, {{"SLURM_STEP_ID", "1"}})).master_port, place.master_port);
  EXPECT_NE(find_job_place(with(kSlurm, {{"SLURM_JOB_ID", "78"}})).master_port, place.master_port);
  EXPECT_EQ(found(with(kSlurm, {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "5"}})),
            "Slurm: worker 3 of 4, local 1 of 2, master a:5");
}

TEST(JobPlace, CountsTheTasksOfItsSlurmNode) {
  const Environment uneven =
      with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "3,1"}, {"SLURM_LOCALID", "0"}});
  EXPECT_EQ(find_job_place(uneven).local_num, 1);
  EXPECT_EQ(find_job_place(with(uneven, {{"SLURM_NODEID", "0"}})).local_num, 3);
  const Environment older =
      with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", ""}, {"SLURM_NTASKS_PER_NODE", "2"}});
  EXPECT_EQ(find_job_place(older).local_num, 2);
}

TEST(JobPlace, UsesTheLoopbackOnOneSlurmNode) {
  const Environment one_node = with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "4"},
                                             {"SLURM_NODEID", "0"},
                                             {"SLURM_LOCALID", "3"},
                                             {"SLURM_STEP_NODELIST", "node01"}});
  EXPECT_EQ(find_job_place(one_node).master_host, "127.0.0.1");
}

TEST(JobPlace, DoesNotWaitForTasksThatSlurmNeverStarted) {
  const std::string alone = "nobody: worker 0 of 1, local 0 of 1, master none";
  const Environment allocation = {
      {"SLURM_JOB_ID", "77"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_NODELIST", "node[1-2]"}};
  EXPECT_EQ(found(allocation), alone);  // the shell that salloc opens
  const Environment batch =
      with(allocation, {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "0"}});
  EXPECT_EQ(found(batch), alone);  // the script of sbatch
  for (const char* step : {"4294967290", "4294967291", "-5", "-6"}) {
    EXPECT_EQ(found(with(batch, {{"SLURM_STEP_ID", step}})), alone) << step;
  }
  // A shell that srun --pty opened: one task in an allocation of four.
  const Environment shell = with(batch, {{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}});
  EXPECT_EQ(find_job_place(shell).worker_num, 1);
}

TEST(SlurmText, NamesTheFirstHost) {
  const Environment first = {{"node1", "node1"},
                             {"node1,node2", "node1"},
                             {"node[01-04,7]", "node01"},
                             {"node[7,9-12],login", "node7"},
                             {"rack[1-2]-node[3-4]", "rack1-node3"},
                             {"gpu-a[5]x", "gpu-a5x"}};
  for (const auto& [nodes, host] : first) EXPECT_EQ(first_slurm_host(nodes), host) << nodes;
  for (const char* nodes : {"", ",", "node[", "node[1-2", "node[]", "node]"}) {
    EXPECT_FALSE(first_slurm_host(nodes).has_value()) << nodes;
  }
}

TEST(SlurmText, ReadsCounts) {
  EXPECT_EQ(slurm_counts("4"), (std::vector<int>{4}));
  EXPECT_EQ(slurm_counts("2(x3),1"), (std::vector<int>{2, 2, 2, 1}));
  EXPECT_EQ(slurm_counts("1,2(x2)"), (std::vector<int>{1, 2, 2}));
  for (const char* text :
       {"", "0", "-1", "2(x", "2(x)", "2(x0)", "2(x3", "2,", ",2", "a", "2 ", "2(x99999999)"}) {
    EXPECT_FALSE(slurm_counts(text).has_value()) << text;
  }
}

class FoundJobPlace : public EnvironmentFixture {};

TEST_F(FoundJobPlace, ComesFromTheEnvironmentOfTheProcess) {
  EXPECT_EQ(text_of(find_job_place()), "nobody: worker 0 of 1, local 0 of 1, master none");
  for (const auto& [name, value] : kOwn) set(name, value);
  EXPECT_EQ(text_of(find_job_place()), found(kOwn));
  check_variable_names(epl_environment());
  set("EPL_WORKERS_NUM", "4");
  EXPECT_NE(error_of([] { check_variable_names(epl_environment()); }).find("EPL_WORKER_NUM"),
            std::string::npos);
}

}  // namespace
}  // namespace epl

#include "launch/options.h"

#include <epl/error.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "launch/job.h"

namespace epl {
namespace {

template <typename Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string fault(const std::vector<std::string>& arguments) {
  return error_of([&] { parse_options(arguments); });
}

using Words = std::vector<std::string>;

TEST(LaunchOptions, TakeBothFormsOfValues) {
  for (const Words& words : {Words{"--num_workers", "2", "--gpu_per_worker", "4", "train.sh"},
                             Words{"--num_workers=2", "--gpu_per_worker=4", "train.sh"}}) {
    const LaunchOptions options = parse_options(words);
    EXPECT_EQ(options.num_workers, 2);
    EXPECT_EQ(options.gpu_per_worker, 4);
    EXPECT_EQ(options.command, Words{"train.sh"});
  }
}

TEST(LaunchOptions, LeaveTheProgramItsArguments) {
  const Words program = {"train", "--num_workers", "7", "--debug", "--", "-x", "--help"};
  Words words = {"--num_workers", "2"};
  words.insert(words.end(), program.begin(), program.end());
  LaunchOptions options = parse_options(words);
  EXPECT_EQ(options.command, program);
  EXPECT_EQ(options.num_workers, 2);
  EXPECT_FALSE(options.debug);

  words.insert(words.begin() + 2, "--");
  EXPECT_EQ(parse_options(words).command, program);
}

TEST(LaunchOptions, ExplainThemselves) {
  const LaunchOptions options = parse_options({"--help"});
  EXPECT_NE(options.help.find("--gpu_per_worker"), std::string::npos);
  EXPECT_NE(options.help.find("epl-launch --num_workers 2 --gpu_per_worker 1 train.sh"),
            std::string::npos);
}

TEST(LaunchOptions, NameTheNearestOption) {
  EXPECT_EQ(fault({"--num_worker", "2", "train.sh"}),
            "epl: there is no option --num_worker\n"
            "  asked by: the command line of epl-launch\n"
            "  try:      --num_workers, or epl-launch --help; options of the program follow its "
            "name");
  EXPECT_NE(fault({"--gpus_per_worker=2", "a"}).find("try:      --gpu_per_worker"),
            std::string::npos);
}

TEST(LaunchOptions, RefuseWhatIsMissingOrWrong) {
  EXPECT_NE(fault({}).find("there is no program to run"), std::string::npos);
  EXPECT_NE(fault({"train.sh"}).find("--num_workers is missing"), std::string::npos);
  EXPECT_NE(fault({"--num_workers", "2"}).find("there is no program"), std::string::npos);
  for (const char* value : {"0", "-1", "two", "1.5", "99999999999"}) {
    EXPECT_NE(fault({concat("--num_workers=", value), "a"})
                  .find(concat("--num_workers must be an integer from 1 to 4096, not \"", value)),
              std::string::npos);
    EXPECT_NE(fault({"--num_workers=1", concat("--gpu_per_worker=", value), "a"})
                  .find("--gpu_per_worker must be an integer"),
              std::string::npos);
  }
}

TEST(LaunchOptions, CheckTheListOfMachines) {
  const auto with_list = [](const std::string& list) {
    return fault({"--num_workers=4", "--machine_list=" + list, "--machine_rank=0", "a"});
  };
  EXPECT_EQ(with_list("10.0.0.1:2222,node2:2222"), "no error");
  EXPECT_EQ(with_list("[fd00::1]:2222,[fd00::2]:2222"), "no error");
  for (const char* list : {"", "10.0.0.1", "a:1,,b:1", "a:1,b", "a:0,b:1", "a:1,"}) {
    EXPECT_NE(fault({"--num_workers=4", "--machine_list", list, "--machine_rank=0", "a"})
                  .find("is no host:port"),
              std::string::npos)
        << list;
  }
  EXPECT_NE(with_list("a:1,a:1").find("names a:1 twice"), std::string::npos);
  EXPECT_NE(fault({"--num_workers=4", "--machine_list=a:1,b:1", "x"}).find("--machine_rank is"),
            std::string::npos);
  EXPECT_NE(fault({"--num_workers=4", "--machine_list=a:1,b:1", "--machine_rank=2", "x"})
                .find("from 0 to 1, not \"2\""),
            std::string::npos);
  EXPECT_NE(fault({"--num_workers=4", "--machine_rank=1", "x"}).find("without --machine_list"),
            std::string::npos);
}

TEST(LaunchOptions, RefuseWorkersThatDoNotSpreadEvenly) {
  EXPECT_EQ(fault({"--num_workers=3", "--machine_list=a:1,b:1", "--machine_rank=0", "x"}),
            "epl: cannot spread 3 workers evenly over 2 machines\n"
            "  asked by: --num_workers 3, --machine_list of 2\n"
            "  try:      --num_workers 4: it counts the workers of the whole job");
}

TEST(Workers, LieOnMachinesInOrder) {
  for (int rank = 0; rank < 3; ++rank) {
    const LaunchOptions options = parse_options(
        {"--num_workers=6", "--machine_list=a:1,b:1,c:1", concat("--machine_rank=", rank), "x"});
    EXPECT_EQ(workers_of_machine(options).first, 2 * rank);
    EXPECT_EQ(workers_of_machine(options).count, 2);
  }
  const LaunchOptions one = parse_options({"--num_workers=5", "x"});
  EXPECT_EQ(workers_of_machine(one).first, 0);
  EXPECT_EQ(workers_of_machine(one).count, 5);
}

TEST(Workers, AreToldTheirPlace) {
  const LaunchOptions options = parse_options(
      {"--num_workers=4", "--gpu_per_worker=2", "--machine_list=a:1,b:1", "--machine_rank=1", "x"});
  const auto plans = plan_workers(options, {"a", 1}, 16, {{"HOME", "/h"}, {"EPL_DEVICES", "9"}});
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_EQ(plans[1].environment, (Variables{{"HOME", "/h"},
                                             {"EPL_WORKER_INDEX", "3"},
                                             {"EPL_WORKER_NUM", "4"},
                                             {"EPL_MASTER", "a:1"},
                                             {"EPL_LOCAL_INDEX", "1"},
                                             {"EPL_LOCAL_NUM", "2"},
                                             {"EPL_DEVICES", "2"},
                                             {"OMP_NUM_THREADS", "4"},
                                             {"PYTHONUNBUFFERED", "1"}}));
}

TEST(Workers, HaveTheDevicesOfTheOptionAndNotOfTheEnvironment) {
  const LaunchOptions options = parse_options({"--num_workers=2", "x"});
  EXPECT_EQ(error_of([&] {
              check_devices_variable(options, {{"EPL_DEVICES", "4"}});
            }),
            "epl: EPL_DEVICES=4 has no effect: epl-launch gives every worker 1 device\n"
            "  asked by: EPL_DEVICES=4 (environment)\n"
            "  try:      --gpu_per_worker 4 in place of EPL_DEVICES");
  check_devices_variable(options, {{"EPL_DEVICES", "1"}});
  check_devices_variable(options, {{"EPL_DEVICES", "4"}, {"EPL_WORKER_INDEX", "0"}});
}

TEST(Workers, KeepTheThreadsThatTheUserWants) {
  const LaunchOptions options = parse_options({"--num_workers=4", "x"});
  EXPECT_EQ(plan_workers(options, {"a", 1}, 16, {{"OMP_NUM_THREADS", "3"}})[0].environment.at(
                "OMP_NUM_THREADS"),
            "3");
  EXPECT_EQ(plan_workers(options, {"a", 1}, 2, {})[0].environment.at("OMP_NUM_THREADS"), "1");
}

TEST(LogFolder, SaysJobAndTime) {
  EXPECT_EQ(job_folder_name("", "scripts/train_dp.sh", "T"), "train_dp-T");
  EXPECT_EQ(job_folder_name("bert base/1", "x", "T"), "bert_base_1-T");
  EXPECT_EQ(job_folder_name("..", "x", "T"), "job..-T");
}

}  // namespace
}  // namespace epl

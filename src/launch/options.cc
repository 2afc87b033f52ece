#include "launch/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <limits>

#include "base/check.h"
#include "base/text.h"
#include "config/spelling.h"

namespace epl {
namespace {

constexpr int kMaxWorkers = 4096;  // of one job: more is a slip of the fingers

const char* const kExamples = R"(
Examples:
  epl-launch --num_workers 2 --gpu_per_worker 1 train.sh --epochs 3
      two workers on this machine; worker 0's output is shown, all output is in ./epl-logs/

  epl-launch --num_workers 4 --machine_list 10.0.0.1:2222,10.0.0.2:2222 --machine_rank 0 ./train
      two workers on each of two machines; run it on the other one with --machine_rank 1

A worker that fails ends the whole job, with its exit code.)";

const std::string kAsker = "the command line of epl-launch";

// All values are texts here, so that every message has the same form.
struct Texts {
  std::string num_workers, gpu_per_worker, machine_list, machine_rank;
  bool has_machine_list = false;  // an empty list is a mistake, no list is one machine
};

int read_number(const std::string& option, const std::string& text, int low, int high) {
  int number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  EPL_CHECK(error == std::errc() && stop == end && number >= low && number <= high,
            concat(option, " must be an integer from ", low, " to ", high, ", not \"", text, "\""),
            kAsker, concat(option, " ", low));
  return number;
}

std::vector<HostPort> read_machines(const std::string& list) {
  std::vector<HostPort> machines;
  std::vector<std::string> seen;
  std::stringstream entries(list + ",");
  for (std::string entry; std::getline(entries, entry, ',');) {
    const auto machine = parse_host_port(entry);
    EPL_CHECK(machine.has_value(),
              concat("--machine_list must be host:port,host:port,... and \"", entry,
                     "\" is no host:port with a port from 1 to 65535"),
              concat("--machine_list ", list), "--machine_list 10.0.0.1:2222,10.0.0.2:2222");
    EPL_CHECK(std::find(seen.begin(), seen.end(), entry) == seen.end(),
              concat("--machine_list names ", entry, " twice"), concat("--machine_list ", list),
              "each machine once; more workers on each by --num_workers");
    seen.push_back(entry);
    machines.push_back(*machine);
  }
  return machines;
}

void check_spread(const LaunchOptions& options) {
  const int machines = static_cast<int>(options.machines.size());
  if (machines == 0) return;
  EPL_CHECK(
      options.num_workers % machines == 0,
      concat("cannot spread ", options.num_workers, " workers evenly over ", machines, " machines"),
      concat("--num_workers ", options.num_workers, ", --machine_list of ", machines),
      concat("--num_workers ", (options.num_workers / machines + 1) * machines,
             ": it counts the workers of the whole job"));
}

// CLI11 hands over everything from the first word that it does not know: that word is the program,
// or an option that does not exist.
void check_program(const std::vector<std::string>& command, bool after_mark) {
  EPL_CHECK(!command.empty(), "there is no program to run", kAsker,
            "epl-launch --num_workers 2 train.sh");
  const std::string& word = command.front();
  if (after_mark || word.size() < 2 || word[0] != '-') return;
  const std::string option = word.substr(0, word.find('='));
  const std::vector<std::string> known = {
      "--num_workers", "--gpu_per_worker", "--machine_list", "--machine_rank",
      "--task_label",  "--log_dir",        "--debug",        "--help"};
  throw Error(concat("there is no option ", option), kAsker,
              concat(nearest_word(option, known), ", or epl-launch --help; options of the program follow its name"));
}

LaunchOptions check(LaunchOptions options, const Texts& texts) {
  EPL_CHECK(!texts.num_workers.empty(), "--num_workers is missing", kAsker,
            "epl-launch --num_workers 2 --gpu_per_worker 1 train.sh");
  options.num_workers = read_number("--num_workers", texts.num_workers, 1, kMaxWorkers);
  options.gpu_per_worker =
      read_number("--gpu_per_worker", texts.gpu_per_worker, 1, std::numeric_limits<short>::max());
  if (texts.has_machine_list) options.machines = read_machines(texts.machine_list);
  const int machines = static_cast<int>(options.machines.size());
  EPL_CHECK(machines <= 1 || !texts.machine_rank.empty(),
            concat("--machine_rank is missing: which of the ", machines, " machines is this?"),
            concat("--machine_list ", texts.machine_list),
            concat("--machine_rank 0 on ", machines ? options.machines[0].host : "", ", 1 on ",
                   machines > 1 ? options.machines[1].host : "", ", ..."));
  EPL_CHECK(texts.machine_rank.empty() || machines > 0,
            "--machine_rank says nothing without --machine_list",
            concat("--machine_rank ", texts.machine_rank),
            "--machine_list 10.0.0.1:2222,10.0.0.2:2222");
  if (!texts.machine_rank.empty()) {
    options.machine_rank = read_number("--machine_rank", texts.machine_rank, 0, machines - 1);
  }
  check_spread(options);
  return options;
}

}  // namespace

LaunchOptions parse_options(const std::vector<std::string>& arguments) {
  LaunchOptions options;
  Texts texts;
  texts.gpu_per_worker = "1";
  CLI::App app(
      "Starts the workers of an EPL job on this machine and watches over them:\n"
      "  epl-launch --num_workers W [options] [--] program [arguments]",
      "epl-launch");
  app.prefix_command();
  app.footer(kExamples);
  app.add_option("--num_workers", texts.num_workers, "workers of the whole job, all machines")
      ->type_name("W");
  app.add_option("--gpu_per_worker", texts.gpu_per_worker, "devices of each worker (1)")
      ->type_name("G");
  app.add_option("--machine_list", texts.machine_list,
                 "all machines, the same list on each; worker 0 listens at the first")
      ->type_name("HOST:PORT,...");
  app.add_option("--machine_rank", texts.machine_rank, "which of them this is, from 0")
      ->type_name("R");
  app.add_option("--task_label", options.task_label, "name of the job in its log folder")
      ->type_name("L");
  app.add_option("--log_dir", options.log_dir,
                 "folder of logs (./epl-logs/<label or program>-<date>-<time>)")
      ->type_name("D");
  app.add_flag("--debug", options.debug,
               "shows the output of all workers, and what is started with which variables");
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    options.help = app.help();
    return options;
  } catch (const CLI::ParseError& error) {
    throw Error(error.what(), kAsker, "epl-launch --help");
  }
  texts.has_machine_list = app.count("--machine_list") != 0;
  options.command = app.remaining();
  const bool after_mark = !options.command.empty() && options.command.front() == "--";
  if (after_mark) options.command.erase(options.command.begin());
  check_program(options.command, after_mark);
  return check(std::move(options), texts);
}

WorkerRange workers_of_machine(const LaunchOptions& options) {
  const int machines = std::max<int>(1, static_cast<int>(options.machines.size()));
  const int each = options.num_workers / machines;
  return {options.machine_rank * each, each};
}

}  // namespace epl

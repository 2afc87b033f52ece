// epl-plan: what a machine can do (docs/planner.md).
//
//   epl-plan --calibrate -o machine.json       # machine.json and machine.costs.json
#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "base/check.h"
#include "calibrate/calibrate.h"
#include "config/cluster_file.h"
#include "config/json_fields.h"
#include "config/spelling.h"
#include "cost/cost_table.h"
#include "ir/text.h"

namespace epl {
namespace {

namespace fs = std::filesystem;

constexpr int kWrongUse = 2;
const std::string kAsker = "the command line of epl-plan";

const char* const kExamples = R"(
Examples:
  epl-plan --calibrate -o machine.json
      measures this machine, half a minute; then EPL_CLUSTER_DESCRIPTION=machine.json ./train

  epl-plan --calibrate --graph step.graph -o machine.json
      and the operators of a step, which trainer.graph() prints)";

struct PlanOptions {
  std::string help;  // not empty: to be printed, and no more
  bool calibrate = false;
  bool quick = false;
  std::string output;
  std::string graph;
};

// CLI11 hands over the first word that it does not know.
void check_known(const CLI::App& app) {
  const std::vector<std::string> unknown = app.remaining();
  if (unknown.empty()) return;
  const std::vector<std::string> known = {"--calibrate", "--quick", "--graph", "--output",
                                          "--help"};
  throw Error(concat("there is no option ", unknown.front()), kAsker,
              concat(nearest_word(unknown.front(), known), ", or epl-plan --help"));
}

PlanOptions parse_plan_options(const std::vector<std::string>& arguments) {
  PlanOptions options;
  CLI::App app("Measures what this machine can do, for EPL to plan with.", "epl-plan");
  app.allow_extras();
  app.footer(kExamples);
  app.add_flag("--calibrate", options.calibrate,
               "measures this machine and describes it as a cluster");
  app.add_flag("--quick", options.quick, "a few seconds, and rough");
  app.add_option("-o,--output", options.output,
                 "where the description goes; costs go beside it (printed, without costs)")
      ->type_name("FILE");
  app.add_option("--graph", options.graph, "a printed graph, whose operators are timed as well")
      ->type_name("FILE");
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    options.help = app.help();
    return options;
  } catch (const CLI::ParseError& error) {
    throw Error(error.what(), kAsker, "epl-plan --help");
  }
  check_known(app);
  EPL_CHECK(options.calibrate, "nothing to do", kAsker, "epl-plan --calibrate -o machine.json");
  return options;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  EPL_CHECK(file, concat("cannot write ", path), kAsker, "-o with a file that can be written");
}

// Before anything is measured.
void check_can_be_written(const std::string& path) {
  const bool is_new = !fs::exists(path);
  const bool can = static_cast<bool>(std::ofstream(path, std::ios::binary | std::ios::app));
  EPL_CHECK(can, concat("cannot write ", path), kAsker, "-o with a file that can be written");
  if (is_new) fs::remove(path);
}

// What an earlier run measured of this machine stays.
CostTable joined_with_file(const CostTable& costs, const std::string& path) {
  if (!fs::exists(path)) return costs;
  const std::string asked_by = "-o: " + path + " is there already";
  CostTable table =
      parse_cost_table(read_text_file(path, asked_by, "another file"), path, asked_by);
  table.merge(costs, asked_by);
  return table;
}

int calibrate_machine(const PlanOptions& options) {
  CalibrateOptions wanted;
  wanted.quick = options.quick;
  wanted.progress = [](const std::string& line) { std::cerr << "epl-plan: " << line << "\n"; };
  std::optional<Graph> graph;
  if (!options.graph.empty()) {
    graph = parse_graph(read_text_file(options.graph, kAsker, "--graph with a printed graph"));
    wanted.graph = &*graph;
  }
  const fs::path costs = fs::path(options.output).replace_extension(".costs.json");
  if (!options.output.empty()) {
    check_can_be_written(options.output);
    joined_with_file({}, costs.string());
  }
  Calibration found = calibrate(wanted);
  if (options.output.empty()) {
    std::cout << print_cluster(found.cluster);
    return 0;
  }
  found.cluster.kinds.front().costs = costs.filename().string();
  write_file(costs.string(), print_cost_table(joined_with_file(found.costs, costs.string())));
  write_file(options.output, print_cluster(found.cluster));
  std::cerr << "epl-plan: " << options.output << " and " << costs.string() << " are written\n";
  return 0;
}

int plan(const std::vector<std::string>& arguments) {
  const PlanOptions options = parse_plan_options(arguments);
  if (!options.help.empty()) {
    std::cout << options.help;
    return 0;
  }
  return calibrate_machine(options);
}

}  // namespace
}  // namespace epl

int main(int argc, char** argv) {
  try {
    return epl::plan({argv + 1, argv + argc});
  } catch (const epl::Error& error) {
    std::cerr << error.what() << "\n";
    return epl::kWrongUse;
  }
}

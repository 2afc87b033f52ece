// epl-checkpoint: looks at folders of checkpoints (docs/checkpoints.md).
// Knows nothing of LibTorch, so that it starts at once.
#include <CLI/CLI.hpp>
#include <iostream>

#include "base/check.h"
#include "checkpoint/damage.h"
#include "checkpoint_tool/commands.h"

namespace epl {
namespace {

constexpr int kDamaged = 1;
constexpr int kWrongUse = 2;

int run_checkpoint_tool(int argc, char** argv) {
  CLI::App app("Looks at checkpoints: a folder of them, or one of its steps.", "epl-checkpoint");
  app.require_subcommand(1);
  std::string path, other, file;
  bool tensors = false;
  CLI::App* list = app.add_subcommand("list", "each step: its size, and whether it is good");
  list->add_option("path", path)->required();
  list->add_flag("--tensors", tensors, "each tensor, too");
  CLI::App* verify = app.add_subcommand("verify", "every checksum; names each damaged block");
  verify->add_option("path", path)->required();
  CLI::App* write =
      app.add_subcommand("export", "one file of safetensors, of the newest good step");
  write->add_option("path", path)->required();
  write->add_option("file", file, "a file that does not exist")->required();
  CLI::App* diff = app.add_subcommand("diff", "which tensors of two checkpoints differ");
  diff->add_option("path", path)->required();
  diff->add_option("other", other)->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return 0;
  } catch (const CLI::ParseError& error) {
    throw Error(error.what(), "the command line of epl-checkpoint", "epl-checkpoint --help");
  }
  if (*list) {
    return list_steps(path, tensors ? Listing::kTensors : Listing::kSteps, std::cout);
  }
  if (*verify) return verify_steps(path, std::cout);
  if (*write) return export_step(path, file, std::cout);
  return diff_steps(path, other, std::cout);
}

}  // namespace
}  // namespace epl

int main(int argc, char** argv) {
  try {
    return epl::run_checkpoint_tool(argc, argv);
  } catch (const epl::DamagedCheckpoint& error) {
    std::cerr << error.what() << "\n";
    return epl::kDamaged;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return epl::kWrongUse;
  }
}

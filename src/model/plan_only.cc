#include "model/plan_only.h"

#include <map>
#include <memory>
#include <string>

#include "base/check.h"
#include "capture/ghost.h"

namespace epl {
namespace {

// As long as the thread: a process that plans ends with its first step.
thread_local std::unique_ptr<ShapesOnly> standing;

ReadBack read_back_of(const Config& config) {
  static const std::map<std::string, ReadBack> words = {
      {"error", ReadBack::kError}, {"zero", ReadBack::kZero}, {"one", ReadBack::kOne}};
  return words.at(config.get<std::string>("plan.read_back"));
}

}  // namespace

void plan_only_where_asked(const Config& config, int workers) {
  standing.reset();
  if (!config.get<bool>("plan.only")) return;
  EPL_CHECK(workers == 1,
            concat("plan.only plans in one process, and this is a job of ", workers, " workers"),
            config.asked_by("plan.only"),
            "the program alone, without epl-launch; EPL_DEVICES = n plans for n devices");
  ShapeOptions options;
  options.read_back = read_back_of(config);
  standing = std::make_unique<ShapesOnly>(options);
}

std::vector<std::string> planning_assumptions() {
  return standing == nullptr ? std::vector<std::string>() : standing->assumptions();
}

}  // namespace epl

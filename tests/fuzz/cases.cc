// How each mode spreads a program over devices.
#include "tests/fuzz/draft.h"
#include "tests/fuzz/outcome.h"
#include "tests/parity/pipelines.h"

namespace epl::fuzz {
namespace {

using parity::Variant;

// Scopes at random places, each at least a node.
void cut_into_stages(Recipe& recipe, Dice& dice, int stages) {
  std::set<size_t> cuts{0};
  const auto nodes = static_cast<int64_t>(recipe.nodes.size());
  while (static_cast<int>(cuts.size()) < stages) {
    cuts.insert(static_cast<size_t>(dice.between(1, nodes - 1)));
  }
  int number = 0;
  for (size_t first : cuts) recipe.scopes.push_back({first, parity::stage(number++)});
}

struct Spread {
  DraftOptions draft;
  Variant variant;
  int parts = 1;   // that the plain loop cuts a batch into
  int slices = 1;  // that EPL alone cuts each of them into
  int stages = 0;
  int split = 0;
};

void on_one_device(Spread& spread, Dice& dice) {
  DraftOptions& draft = spread.draft;
  if (dice.chance(0.5)) draft.groups.insert(Group::kState);
  if (dice.chance(0.4)) draft.groups.insert(Group::kRandom);
  if (dice.chance(0.4)) draft.groups.insert(Group::kMixes);
  if (dice.chance(0.1)) draft.groups.insert(Group::kReadsBack);
  draft.metrics_of_rows = true;
  draft.sums = dice.chance(0.15);
}

// Programs whose rows are taken apart. Numbers of double precision tell rounding from mistakes.
void with_rows_apart(Spread& spread, Dice& dice) {
  DraftOptions& draft = spread.draft;
  draft.dtype = dice.chance(0.7) ? torch::kDouble : torch::kFloat;
  if (dice.chance(0.15)) draft.groups.insert(Group::kState);
  draft.sums = dice.chance(0.15);
}

// The devices of a replica do what one does with all rows, also where rows look at each other.
void on_slices(Spread& spread, Dice& dice) {
  if (dice.chance(0.6)) spread.draft.groups.insert(Group::kMixes);
  spread.slices = static_cast<int>(dice.between(2, 4));
  spread.parts = dice.chance(0.3) ? 2 : 1;
  if (spread.parts == 1 && dice.chance(0.1)) spread.draft.groups.insert(Group::kReadsBack);
  spread.variant.devices(spread.slices).slices(spread.slices).micro_batches(spread.parts);
  spread.variant.clip_after().with("replicate.batch_norm", "micro_batch");
}

Spread spread_of(const std::string& mode, Dice& dice, int steps) {
  Spread spread;
  spread.draft.steps = steps;
  spread.draft.other_rows = true;
  const auto few = [&](int low, int high) { return static_cast<int>(dice.between(low, high)); };
  if (mode == "one") {
    on_one_device(spread, dice);
    return spread;
  }
  with_rows_apart(spread, dice);
  Variant& variant = spread.variant;
  if (mode == "micro") {
    spread.parts = few(2, 4);
    variant.micro_batches(spread.parts);
  } else if (mode == "devices") {
    const int devices = few(2, 4), micro_batches = dice.chance(0.3) ? 2 : 1;
    variant.devices(devices).micro_batches(micro_batches).clip_after();
    spread.parts = devices * micro_batches;
  } else if (mode == "slices") {
    on_slices(spread, dice);
  } else if (mode == "workers") {
    const auto devices = dice.pick(std::vector<std::vector<int>>{{1, 1}, {1, 1}, {2, 1}, {2, 2}});
    variant.workers(devices).clip_after();
    spread.parts = variant.all_devices();
  } else if (mode == "stages") {
    spread.stages = few(2, 3);
    const int micro_batches = few(1, 3), replicas = dice.chance(0.2) ? 2 : 1;
    variant.stages(spread.stages).devices(spread.stages * replicas).micro_batches(micro_batches);
    variant.clip_after().with("pipeline.strategy", dice.pick(parity::schedules()));
    spread.parts = micro_batches * replicas;
  } else if (mode == "split") {
    spread.split = few(2, 3);
    variant.stages(spread.split).devices(spread.split).clip_after();
  } else {
    throw std::runtime_error("no mode " + mode);
  }
  spread.draft.row_parts = spread.parts * spread.slices;
  spread.draft.metrics_of_rows = spread.parts == 1;
  return spread;
}

}  // namespace

const std::vector<std::string>& modes() {
  static const std::vector<std::string> all{"one",     "micro",  "devices", "slices",
                                            "workers", "stages", "split"};
  return all;
}

Case make_case(const CaseOptions& options) {
  Dice dice(options.seed * 31 + 17);
  Spread spread = spread_of(options.mode, dice, options.steps);
  if (options.leaves && dice.chance(0.3)) spread.draft.groups.insert(Group::kLeaves);
  Case made;
  made.mode = options.mode;
  made.recipe = make_recipe(options.seed, spread.draft);
  if (options.dtype) made.recipe.dtype = *options.dtype;
  made.parts = spread.parts;
  made.sums = spread.draft.sums;
  made.recomputes = options.recomputes;
  made.variant = spread.variant.steps(options.steps);
  if (made.sums && made.parts > 1) made.variant.sum();
  made.variant.with("debug.nan_loss", "ignore");
  const Training& how = made.recipe.training;
  if (how.clip_norm > 0) made.variant.clip_norm(how.clip_norm);
  if (how.clip_value > 0) made.variant.clip_value(how.clip_value);
  if (spread.stages > 0) cut_into_stages(made.recipe, dice, spread.stages);
  if (spread.split > 0) made.recipe.scopes.push_back({0, split(spread.split, "all")});
  return made;
}

std::string Case::str() const {
  std::string text =
      "mode " + mode + ", " + std::to_string(variant.micro_batches()) + " micro batches, devices";
  for (int devices : variant.worker_devices()) text += " " + std::to_string(devices);
  for (const Setting& setting : variant.settings()) {
    text += ", " + setting.key + " = " + setting.value.str();
  }
  return text + "\n" + recipe.str();
}

}  // namespace epl::fuzz

#include "compile/recompute_step.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/check.h"
#include "compile/choice_lowering.h"
#include "compile/device_bytes.h"
#include "config/settings.h"

namespace epl {
namespace {

constexpr const char* kType = "gradient_checkpoint.type";
constexpr const char* kLimit = "memory.limit";

struct Asked {
  bool by_marks = false;
  bool for_least = false;  // as few bytes as can be
  std::optional<int64_t> limit;
  int end_taskgraph = -1;
};

Asked what_is_asked(const Config& config) {
  Asked asked;
  const auto type = config.get<std::string>(kType);
  asked.by_marks = type == "collection";
  const int64_t limit = config.get<int64_t>(kLimit);
  if (limit > 0) asked.limit = limit;
  asked.for_least = type == "auto" && !asked.limit;
  const int64_t last = config.get<int64_t>("gradient_checkpoint.end_taskgraph");
  if (!asked.by_marks) asked.end_taskgraph = static_cast<int>(last);
  return asked;
}

// Limits are asked for in steps of at most 1/128: so there are few, and the least that any of them
// can reach is found by asking all of them.
int64_t level_of(int64_t bytes) {
  int64_t step = 1;
  while (bytes / step >= 256) step *= 2;
  return bytes / step * step;
}

// A stage while the least is looked for.
struct Descent {
  Stage* stage;
  RecomputeChoice best;
  int64_t bytes = 0;  // of the best
  int64_t level = 0;  // that is asked for next

  bool may_go_on() const { return level >= stage->chooser.least_memory().outcome.peak; }
};

// A stage while a choice is looked for that fits into the limit.
struct Fitting {
  explicit Fitting(Stage& of) : stage(&of), too_much(of.kept.peak) {}

  // What no choice reaches, by the account of the model, is not worth a look.
  void ask(int64_t bytes) {
    ++rounds;
    values = bytes;
    stage->choice = stage->chooser.cheapest_within(values);
    asks = stage->choice.fits || rounds == 1;
    if (!asks) enough = values;
  }
  bool take() {
    const bool is_cheaper = !best || stage->choice.outcome.seconds <= best->outcome.seconds;
    if (is_cheaper) best = stage->choice;
    return is_cheaper;
  }

  Stage* stage;
  int64_t enough = 0;  // bytes of the values: so many fit, or are fewer than can be
  int64_t too_much;    // what they lead to does not fit
  int64_t values = 0;  // asked for last
  int rounds = 0;
  bool asks = false;  // the choice of the stage is to be lowered
  bool best_was_lowered = false;
  std::optional<RecomputeChoice> best;
};

// A stage while it is looked how many clones can come early.
struct EarlyCount {
  Stage* stage;
  int64_t most = 0;  // bytes
  size_t fits = 0;   // clones, as was shown
  size_t above = 0;  // the least that do not fit, or one more than there are
};

class Planner {
 public:
  Planner(const CompiledStep& step, const Config& config, const CompileOptions& options,
          const LowerOptions& lowering, const LowerStep& lower)
      : config_(config),
        options_(options),
        lowering_(lowering),
        asked_(what_is_asked(config)),
        choices_(step, lower),
        kept_(choices_.run_kept()) {}

  Lowered run() {
    if (options_.keeps_all) return std::move(kept_);
    if (asked_.by_marks) check_marks();
    if (asked_.limit && !asked_.by_marks && fits(kept_.plan)) return std::move(kept_);
    for (const auto& roles : stages_of(choices_.packed())) stages_.push_back(make_stage(roles));
    Lowered chosen = asked_.by_marks    ? choose_by_marks()
                     : asked_.for_least ? choose_least(all_stages())
                                        : choose_within();
    if (is_pipeline()) fill_bubbles(chosen);
    for (const auto& stage : stages_) chosen.step.run_again += stage->nodes_again().size();
    add_remarks(chosen.plan);
    return chosen;
  }

 private:
  bool is_pipeline() const { return !kept_.plan.schedule.stages.empty(); }
  size_t roles() const { return kept_.step.placement.role_devices.size(); }
  Lowered lowered() const { return choices_.run(stages_, kept_.plan.schedule); }

  void check_marks() const {
    bool any = false;
    for (size_t role = 0; role < roles(); ++role) {
      for (const auto& node : kept_.step.graph_of(role).nodes) any |= node.origin.marked;
    }
    EPL_CHECK(any, "the step marks no tensor to keep that it computes", config_.asked_by(kType),
              "epl::add_to_collection(epl::collections::kCheckpoints, tensor) in the step, or "
              "gradient_checkpoint.type = \"auto\"");
  }

  std::unique_ptr<Stage> make_stage(const StageRoles& roles) const {
    RecomputeRequest request{choices_.packed().graph_of(roles.roles[0])};
    request.keeps_gradients = is_pipeline() || kept_.plan.micro_batches > 1;
    for (const auto& gradient : kept_.plan.program_of(roles.roles[0]).gradients) {
      if (!gradient.stays_to_the_end()) request.short_gradients.insert(gradient.leaf);
    }
    request.end_taskgraph = asked_.end_taskgraph;
    request.keeps_marked = asked_.by_marks;
    request.machine = lowering_.machine;
    request.backend = lowering_.backend;
    if (is_pipeline()) {
      add_stage(choices_.packed().recorded_for(1), kept_.plan.schedule, roles.stage, request);
    }
    auto made = std::make_unique<Stage>(roles, recompute_model(request));
    made->beside = most_bytes(kept_.plan, roles) - made->kept.peak;
    return made;
  }

  std::vector<Stage*> all_stages() const {
    std::vector<Stage*> all;
    for (const auto& stage : stages_) all.push_back(stage.get());
    return all;
  }

  int64_t bytes(const Plan& plan, size_t role) const {
    return bytes_of_device(kept_.step.graph_of(role), plan, role, options_, lowering_.zero);
  }

  int64_t most_bytes(const Plan& plan, const StageRoles& roles) const {
    int64_t most = 0;
    for (size_t role : roles.roles) most = std::max(most, bytes(plan, role));
    return most;
  }

  bool fits(const Plan& plan) const {
    for (size_t role = 0; role < roles(); ++role) {
      if (bytes(plan, role) > *asked_.limit) return false;
    }
    return true;
  }

  Lowered choose_by_marks() {
    for (auto& stage : stages_) stage->choice = stage->chooser.all_again();
    Lowered made = lowered();
    for (const auto& stage : stages_) {
      if (asked_.limit && most_bytes(made.plan, stage->roles) > *asked_.limit) {
        refuse(made.plan, *stage);
      }
    }
    return made;
  }

  // What is lost between buffers is known when a choice is lowered. So of all choices that a limit
  // could lead to it is the one that lowers to the least.
  Lowered choose_least(const std::vector<Stage*>& stages) {
    std::vector<Descent> descents;
    for (Stage* stage : stages) {
      stage->choice = stage->chooser.least_memory();
      descents.push_back({stage, stage->choice});
    }
    const Lowered first = lowered();
    for (Descent& descent : descents) {
      descent.bytes = most_bytes(first.plan, descent.stage->roles);
      descent.level = level_of(descent.bytes - 1 - descent.stage->beside);
    }
    const auto may_go_on = [](const Descent& descent) { return descent.may_go_on(); };
    const int most_rounds = rounds_down(stages);
    for (int round = 0; round < most_rounds; ++round) {
      if (!std::any_of(descents.begin(), descents.end(), may_go_on)) break;
      go_down(descents);
    }
    for (Descent& descent : descents) descent.stage->choice = descent.best;
    return lowered();
  }

  // Each takes about as long as a limit: large steps, of which little is lost between buffers, have
  // fewer.
  static int rounds_down(const std::vector<Stage*>& stages) {
    constexpr size_t kLeast = 3, kMost = 16, kOperations = 6000;
    size_t operations = 1;
    for (const Stage* stage : stages) {
      operations = std::max(operations, stage->model.operations.size());
    }
    return static_cast<int>(std::clamp(kOperations / operations, kLeast, kMost));
  }

  void go_down(std::vector<Descent>& descents) {
    bool any = false;
    for (Descent& descent : descents) {
      Stage& stage = *descent.stage;
      const bool may = descent.may_go_on();
      stage.choice = may ? stage.chooser.cheapest_within(descent.level) : descent.best;
      any |= stage.choice.again != descent.best.again;
      descent.level = level_of(descent.level - 1);
    }
    if (!any) return;
    const Lowered tried = lowered();
    for (Descent& descent : descents) {
      const int64_t now = most_bytes(tried.plan, descent.stage->roles);
      if (now >= descent.bytes) continue;
      descent.best = descent.stage->choice;
      descent.bytes = now;
      descent.level = std::min(descent.level, level_of(now - 1 - descent.stage->beside));
    }
  }

  // What else a device holds, and what is lost between buffers, is known when the choice is
  // lowered: where that is too much the next choice gets as much less, and where much is left, as
  // much more, between what was too much and what was enough.
  Lowered choose_within() {
    std::vector<Fitting> fittings;
    for (Stage* stage : stages_above(kept_.plan)) {
      fittings.emplace_back(*stage);
      fittings.back().ask(level_of(*asked_.limit - stage->beside));
    }
    Lowered made = lowered();
    while (look_at_all(made.plan, fittings)) made = lowered();
    const bool as_chosen = std::all_of(fittings.begin(), fittings.end(),
                                       [](const Fitting& each) { return each.best_was_lowered; });
    if (!as_chosen) made = lowered();
    std::vector<Stage*> too_large = stages_above(made.plan);
    if (too_large.empty()) return made;
    // Where nothing fits it is the least that there is, which then has to do.
    made = choose_least(too_large);
    too_large = stages_above(made.plan);
    if (!too_large.empty()) refuse(made.plan, *too_large[0]);
    return made;
  }

  std::vector<Stage*> stages_above(const Plan& plan) const {
    std::vector<Stage*> above;
    for (const auto& stage : stages_) {
      if (most_bytes(plan, stage->roles) > *asked_.limit) above.push_back(stage.get());
    }
    return above;
  }

  // Whether some ask for something else, which is to be lowered.
  bool look_at_all(const Plan& plan, std::vector<Fitting>& fittings) const {
    bool any = false;
    for (Fitting& fitting : fittings) {
      fitting.best_was_lowered |= fitting.best.has_value();
      if (!std::exchange(fitting.asks, false)) continue;
      look_at(*asked_.limit - most_bytes(plan, fitting.stage->roles), fitting);
      any |= fitting.asks;
    }
    return any;
  }

  // What was asked for was lowered, and leaves so much room, or so much too little.
  void look_at(int64_t room, Fitting& fitting) const {
    constexpr int kMostRounds = 8;
    const int64_t asked = fitting.values;
    (room < 0 ? fitting.too_much : fitting.enough) = asked;
    fitting.best_was_lowered = room >= 0 && fitting.take();
    const bool little_is_left = room >= 0 && room < *asked_.limit / 50;
    while (!little_is_left && fitting.rounds < kMostRounds && !fitting.asks) {
      int64_t next = level_of(asked + room);
      const bool between = next > fitting.enough && next < fitting.too_much;
      if (!between) next = level_of(fitting.enough + (fitting.too_much - fitting.enough) / 2);
      if (next <= fitting.enough || next >= fitting.too_much) break;
      fitting.ask(next);
    }
    if (!fitting.asks && fitting.best) fitting.stage->choice = *fitting.best;
  }

  // What is made again without the gradient of the next stage is made while that is on its way, as
  // far as it takes no more memory: within the limit, or than the device needs without that. By
  // halves, since more of it takes more.
  void fill_bubbles(Lowered& chosen) {
    std::vector<EarlyCount> counts;
    for (const auto& stage : stages_) {
      const int64_t most = asked_.limit ? *asked_.limit : most_bytes(chosen.plan, stage->roles);
      const size_t clones = choices_.early_at_most(*stage, chosen);
      if (clones > 0) counts.push_back({stage.get(), most, 0, clones + 1});
    }
    constexpr int kMostRounds = 6;
    for (int round = 0; round < kMostRounds; ++round) {
      bool any = false;
      for (EarlyCount& count : counts) {
        count.stage->early = round == 0 ? count.above - 1 : (count.fits + count.above) / 2;
        any |= count.stage->early > count.fits;
      }
      if (!any) break;
      const Lowered tried = lowered();
      for (EarlyCount& count : counts) {
        const bool fits = most_bytes(tried.plan, count.stage->roles) <= count.most;
        (fits ? count.fits : count.above) = count.stage->early;
      }
    }
    for (EarlyCount& count : counts) count.stage->early = count.fits;
    if (counts.empty()) return;
    Lowered filled = lowered();
    const bool all_fit = std::all_of(counts.begin(), counts.end(), [&](const EarlyCount& count) {
      return most_bytes(filled.plan, count.stage->roles) <= count.most;
    });
    if (all_fit) chosen = std::move(filled);
  }

  [[noreturn]] void refuse(const Plan& plan, const Stage& stage) const {
    const int64_t most = most_bytes(plan, stage.roles);
    const std::string where =
        kept_.step.placement.stages() > 1 ? concat(" of stage ", stage.roles.stage) : std::string();
    const std::string how = asked_.by_marks ? "with what the program marked to be kept"
                                            : "with everything made again that may be";
    throw Error(concat("a device", where, " needs at least ", most, " bytes ", how,
                       ", and may have ", *asked_.limit),
                config_.asked_by(kLimit),
                concat(asked_.by_marks ? "fewer marks, gradient_checkpoint.type = \"auto\""
                                       : "fewer rows in a micro batch, a limit of so many bytes",
                       ", or what trainer.what_fits(batch, limit) finds"));
  }

  double seconds_of(const Stage& stage) const {
    double seconds = 0;
    for (const auto& operation : stage.model.operations) seconds += operation.seconds;
    return seconds;
  }

  void add_remarks(Plan& plan) const {
    for (const auto& each : stages_) {
      const Stage& stage = *each;
      const size_t again = stage.nodes_again().size();
      if (again == 0) continue;
      const double total = seconds_of(stage);
      const auto permille =
          total > 0 ? static_cast<int64_t>(1000 * stage.choice.outcome.seconds / total) : 0;
      plan.remarks.push_back(
          concat(kept_.step.placement.stages() > 1 ? concat("stage ", stage.roles.stage, ": ")
                                                   : std::string(),
                 again, " operators run again in backward, about ", permille / 10, ".",
                 permille % 10, " % of a step; values take ", stage.choice.outcome.peak,
                 " bytes at most, ", stage.kept.peak, " if all were kept"));
    }
  }

  const Config& config_;
  const CompileOptions& options_;
  const LowerOptions& lowering_;
  const Asked asked_;
  const ChoiceLowering choices_;
  Lowered kept_;  // nothing runs again
  Stages stages_;
};

}  // namespace

Plan lower_within_memory(CompiledStep& step, const Config& config, const CompileOptions& options,
                         const LowerOptions& lowering, const LowerStep& lower) {
  if (!may_recompute(config)) return lower(step);
  Lowered made = Planner(step, config, options, lowering, lower).run();
  step = std::move(made.step);
  return std::move(made.plan);
}

}  // namespace epl

// What does it cost to keep less? EPL with memory.limit against EPL that keeps all, and against
// PyTorch with torch.utils.checkpoint a block, on one device with one thread. All of EPL's sides
// update early (optimizer.update_early).
//
//   bench_checkpoint [--models bert_base,gpt,gpt24,resnet50,tiny_gpt] [--rounds 5]
//
// A limit is set such that the values of a step (activations and temporary memory) take half, or a
// third, of what they take if all are kept; or the least that can be reached, where that is more;
// such that the device holds what PyTorch's process holds, as the system counts it; and such that
// it holds what the plain LibTorch loop holds, for as large a batch as that allows. Before anything
// is timed, three steps under each of the first limits must give the bits of those without one, and
// PyTorch's first loss must be that without checkpoints. The sides take turns, each in a process of
// its own. The last line is one JSON object, by model:
//
//   time_at_half, time_at_third  step times, of those of EPL with all kept
//   half, third                  what was reached of the values' bytes
//   step_vs_torch_checkpoint     EPL within PyTorch's bytes over PyTorch with checkpoints
//   overhead_vs_torch            extra time of EPL within those bytes over that of PyTorch, each
//                                as a part of its own step without
//   bytes_vs_torch_checkpoint    what the two hold by the system: at most 1, unless EPL's least
//                                is more
//   rows_in_plain_peak           the largest batch in the plain loop's bytes, of its own batch; 4 is
//                                the largest that is tried
//   time_a_row                   of that batch, in times of EPL's own batch with all kept
//   plan_seconds                 that recording and planning took more than without a limit
//   least_plan_seconds           likewise with gradient_checkpoint.type = "auto"
//   limit_violations             how often the account of a side was above its limit by more than a
//                                percent; a line says by how much
//   forecast_error               of trainer.memory() against the account, worst of all limits
//   forecast_vs_system           likewise against the system; null where that does not tell
//
// Where Debian's python3-torch is missing a line says so, and what compares with it is null.
#include <cmath>
#include <cstdio>
#include <iostream>
#include <optional>

#include "bench/checkpoint_sides.h"
#include "bench/words.h"

namespace epl::bench {
namespace {

using Workload = CheckpointWorkload;

// --- limits -------------------------------------------------------------------------------------

// Bytes of a step: by what its plan says and what it holds.
struct Bytes {
  int64_t kept = 0;   // of the values, if all are kept
  int64_t least = 0;  // of the values, if as little as possible is
  int64_t floor = 0;  // the least limit
  double plan_seconds = 0;
};

// Two steps of a fresh trainer, and what its plan says then.
struct TwoSteps {
  double seconds = 0;
  std::string plan;
};

TwoSteps two_steps(const Workload& workload, const Config& config) {
  epl::init(config);
  const Program program = workload.fresh(workload.rows);
  const std::shared_ptr<Trainer> trainer = trainer_of(program);
  const Stepper step = [&] { trainer->step(program.batch); };
  const double taken = seconds(step) + seconds(step);
  return {taken, trainer->plan()};
}

Bytes bytes_of(const Workload& workload) {
  Bytes bytes;
  const TwoSteps kept = two_steps(workload, Config{{"optimizer.update_early", true}});
  const TwoSteps least = two_steps(
      workload, Config{{"gradient_checkpoint.type", "auto"}, {"optimizer.update_early", true}});
  bytes.least = number_in(least.plan, "values take (\\d+) bytes at most");
  bytes.kept = number_in(least.plan, "(\\d+) if all were kept");
  bytes.plan_seconds = least.seconds - kept.seconds;
  bytes.floor = least_limit(workload, workload.rows);
  return bytes;
}

struct Limit {
  double fraction = 1;  // of the values' bytes that are kept
  int64_t bytes = 0;    // of all that a device holds; 0: no limit
};

Limit limit_for(const Bytes& bytes, double fraction) {
  const auto wanted = static_cast<int64_t>(fraction * static_cast<double>(bytes.kept));
  const int64_t values = std::max(wanted, bytes.least);
  return {static_cast<double>(values) / static_cast<double>(bytes.kept),
          bytes.floor + values - bytes.least};
}

std::vector<torch::Tensor> parameters_after(const Workload& workload, int64_t limit) {
  begin_within(limit);
  const Program program = workload.fresh(workload.rows);
  const Stepper step = epl_stepper(program);
  for (int i = 0; i < 3; ++i) step();
  std::vector<torch::Tensor> parameters;
  for (const auto& parameter : program.net->parameters()) {
    parameters.push_back(parameter.detach().clone());
  }
  return parameters;
}

void check_same_bits(const Workload& workload, const std::vector<torch::Tensor>& kept,
                     const Limit& limit) {
  const std::vector<torch::Tensor> limited = parameters_after(workload, limit.bytes);
  for (size_t i = 0; i < kept.size(); ++i) {
    if (torch::equal(kept[i], limited[i])) continue;
    throw std::runtime_error(workload.name + ": parameter " + std::to_string(i) +
                             " has other bits under a limit of " + std::to_string(limit.bytes));
  }
}

// --- what is measured ----------------------------------------------------------------------------

struct OfEpl {
  SideOfEpl asked;
  FirstSteps first;
  double step = 0;  // median seconds
};

struct Measured {
  OfEpl kept, half, third, many_rows;
  std::optional<OfEpl> as_torch;  // within PyTorch's bytes
  double torch_bytes = 0;         // with checkpoints
  double torch_plain = 0;         // median seconds
  double torch_checkpoint = 0;

  std::vector<const OfEpl*> limited() const {
    std::vector<const OfEpl*> all = {&half, &third, &many_rows};
    if (as_torch) all.push_back(&*as_torch);
    return all;
  }
};

class Turns {
 public:
  void add(OfEpl& side, const Workload& workload) {
    sides_.push_back({start_epl(workload, side.asked), &side.step, {}});
    side.first = first_steps(*sides_.back().side);
  }

  // Gives what it answers first.
  double add_torch(const Workload& workload, const std::string& mode, double& median) {
    sides_.push_back({start_torch(workload, mode), &median, {}});
    return sides_.back().side->answer().at(0);
  }

  void take(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      for (Each& each : sides_) {
        each.side->go();
        for (double seconds : each.side->answer()) each.taken.push_back(seconds);
      }
    }
    for (Each& each : sides_) {
      each.side->end();
      *each.median_of = median(each.taken);
    }
  }

 private:
  struct Each {
    std::unique_ptr<Side> side;
    double* median_of;
    std::vector<double> taken;
  };
  std::vector<Each> sides_;
};

Measured measure(const Workload& workload, const Bytes& bytes, const std::vector<Limit>& limits,
                 int rounds, bool with_torch) {
  Measured measured;
  const int64_t rows = workload.rows;
  Turns turns;
  if (with_torch) {
    turns.add_torch(workload, "plain", measured.torch_plain);
    measured.torch_bytes = turns.add_torch(workload, "checkpoint", measured.torch_checkpoint);
    const auto within = std::max(bytes.floor, static_cast<int64_t>(measured.torch_bytes));
    measured.as_torch = OfEpl{{within, rows}, {}, 0};
    turns.add(*measured.as_torch, workload);
  }
  const int64_t plain = plain_peak(workload);
  measured.kept.asked = {0, rows};
  measured.half.asked = {limits[0].bytes, rows};
  measured.third.asked = {limits[1].bytes, rows};
  measured.many_rows.asked = {plain, most_rows(workload, plain)};
  for (OfEpl* side : {&measured.kept, &measured.half, &measured.third, &measured.many_rows}) {
    turns.add(*side, workload);
  }
  turns.take(rounds);
  return measured;
}

// --- the report ---------------------------------------------------------------------------------

using Number = std::optional<double>;

struct Field {
  const char* name;
  Number number;
};

double apart(double forecast, double found) { return std::abs(forecast - found) / found; }

std::vector<Field> fields_of(const Workload& workload, const Bytes& bytes, const Measured& measured,
                             const std::vector<Limit>& limits) {
  const double kept = measured.kept.step;
  double planning = 0, violations = 0, error = 0, of_system = 0;
  bool tells = true;
  for (const OfEpl* side : measured.limited()) {
    if (side->asked.rows == workload.rows) {
      planning = std::max(planning, side->first.seconds - measured.kept.first.seconds);
    }
    // What kernels hold is taken off as it was forecast, which is right within a percent.
    const double over = side->first.limited - 1.01 * static_cast<double>(side->asked.limit);
    violations += over > 0 ? 1 : 0;
    if (over > 0) {
      std::printf("  the account is %.0f bytes above a limit of %lld\n", over,
                  static_cast<long long>(side->asked.limit));
    }
    error = std::max(error, apart(side->first.forecast, side->first.measured));
    tells &= side->first.system > 0;
    if (tells) of_system = std::max(of_system, apart(side->first.forecast, side->first.system));
  }
  Number step_vs_torch, overhead, of_bytes;
  if (measured.as_torch) {
    const OfEpl& same = *measured.as_torch;
    step_vs_torch = same.step / measured.torch_checkpoint;
    overhead = (same.step / kept - 1) / (measured.torch_checkpoint / measured.torch_plain - 1);
    if (same.first.system > 0) of_bytes = same.first.system / measured.torch_bytes;
  }
  const auto more_rows =
      static_cast<double>(measured.many_rows.asked.rows) / static_cast<double>(workload.rows);
  return {{"time_at_half", measured.half.step / kept},
          {"time_at_third", measured.third.step / kept},
          {"half", limits[0].fraction},
          {"third", limits[1].fraction},
          {"step_vs_torch_checkpoint", step_vs_torch},
          {"overhead_vs_torch", overhead},
          {"bytes_vs_torch_checkpoint", of_bytes},
          {"rows_in_plain_peak", more_rows},
          {"time_a_row", measured.many_rows.step / more_rows / kept},
          {"plan_seconds", planning},
          {"least_plan_seconds", bytes.plan_seconds},
          {"limit_violations", violations},
          {"forecast_error", error},
          {"forecast_vs_system", tells ? Number(of_system) : std::nullopt}};
}

void print(const Workload& workload, const Bytes& bytes, const Measured& measured) {
  std::printf("%s: values %.2f MB if all are kept\n", workload.name.c_str(),
              static_cast<double>(bytes.kept) / 1e6);
  const auto line = [&](const char* name, const OfEpl& side) {
    std::printf(
        "  %-14s %4d rows, limit %8.2f MB, step %9.3f ms | forecast %8.2f MB, account %8.2f MB, "
        "system %8.2f MB\n",
        name, static_cast<int>(side.asked.rows), static_cast<double>(side.asked.limit) / 1e6,
        1e3 * side.step, side.first.forecast / 1e6, side.first.measured / 1e6,
        side.first.system / 1e6);
  };
  line("all kept", measured.kept);
  line("half", measured.half);
  line("third", measured.third);
  line("plain's bytes", measured.many_rows);
  if (measured.as_torch) {
    line("torch's bytes", *measured.as_torch);
    std::printf("  torch plain %9.3f ms, with checkpoints %9.3f ms and %8.2f MB\n",
                1e3 * measured.torch_plain, 1e3 * measured.torch_checkpoint,
                measured.torch_bytes / 1e6);
  }
}

struct Result {
  std::string name;
  std::vector<Field> fields;
};

Result run(const Workload& workload, int rounds, bool with_torch) {
  const Bytes bytes = bytes_of(workload);
  const std::vector<Limit> limits = {limit_for(bytes, 1.0 / 2), limit_for(bytes, 1.0 / 3)};
  {
    const std::vector<torch::Tensor> kept = parameters_after(workload, 0);
    for (const Limit& limit : limits) check_same_bits(workload, kept, limit);
  }
  const Measured measured = measure(workload, bytes, limits, rounds, with_torch);
  print(workload, bytes, measured);
  Result result{workload.name, fields_of(workload, bytes, measured, limits)};
  for (const Field& field : result.fields) {
    std::printf("  %-26s %s\n", field.name, text(field.number, "-").c_str());
  }
  std::fflush(stdout);
  return result;
}

void print_json(const std::vector<Result>& results) {
  std::string all;
  for (size_t i = 0; i < results[0].fields.size(); ++i) {
    std::string models;
    for (const Result& result : results) {
      models += (models.empty() ? "\"" : ", \"") + result.name +
                "\": " + text(result.fields[i].number, "null");
    }
    all += (all.empty() ? "\"" : ", \"") + std::string(results[0].fields[i].name) + "\": {" +
           models + "}";
  }
  std::printf("{%s}\n", all.c_str());
}

struct Arguments {
  std::vector<std::string> models = {"bert_base", "gpt", "gpt24", "resnet50"};
  int rounds = 5;
  std::string serve;  // this process is the side with this limit
  int64_t rows = 0;   // and these rows
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; i += 2) {
    const std::string key = argv[i];
    if (i + 1 == argc) throw std::runtime_error(key + " needs a value");
    const std::string value = argv[i + 1];
    if (key == "--models") {
      arguments.models = parts(value);
    } else if (key == "--rounds") {
      arguments.rounds = std::max(1, std::stoi(value));
    } else if (key == "--serve") {
      arguments.serve = value;
    } else if (key == "--rows") {
      arguments.rows = std::stoll(value);
    } else {
      throw std::runtime_error("usage: bench_checkpoint [--models NAME,...] [--rounds N]");
    }
  }
  std::vector<std::string> known;
  for (const Workload& workload : checkpoint_workloads()) known.push_back(workload.name);
  check_known(arguments.models, known);
  return arguments;
}

int run_all(const Arguments& arguments) {
  use_one_thread();
  end_sides_when_interrupted();
  const bool serves = !arguments.serve.empty();
  const bool with_torch = !serves && torch_is_installed();
  if (!serves && !with_torch) {
    std::fprintf(stderr, "%s has no torch: nothing is compared with torch.utils.checkpoint\n",
                 kPython);
  }
  std::vector<Result> results;
  for (const Workload& workload : checkpoint_workloads()) {
    const auto& chosen = arguments.models;
    if (std::find(chosen.begin(), chosen.end(), workload.name) == chosen.end()) continue;
    if (serves) {
      serve_epl(workload, {std::stoll(arguments.serve), arguments.rows});
    } else {
      results.push_back(run(workload, arguments.rounds, with_torch));
    }
  }
  if (!serves) print_json(results);
  return 0;
}

}  // namespace
}  // namespace epl::bench

int main(int argc, char** argv) {
  try {
    return epl::bench::run_all(epl::bench::parse(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << "bench_checkpoint: " << error.what() << "\n";
    return 1;
  }
}

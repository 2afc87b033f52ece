// What the rounds of bench_pipeline say: shares of the ideal, ratios to the peers, the simulation.
#pragma once

#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/pipeline_costs.h"
#include "bench/pipeline_process.h"
#include "bench/rounds.h"
#include "bench/words.h"

namespace epl::bench {

struct Result {
  Case asked;
  int steps = 0;  // in a turn
  Rounds rounds;
  std::map<std::string, double> megabytes;
  std::map<std::string, Schedule> schedules;  // of the sides that are pipelines

  using Maybe = std::optional<double>;

  bool has(const std::string& side) const { return megabytes.count(side) != 0; }

  double step_seconds(const Round& round, const std::string& side) const {
    return round.at(side).seconds / steps;
  }

  // The median over the calmest rounds; nothing where one of the sides did not take part.
  Maybe median_over(const std::vector<std::string>& sides,
                    const std::function<double(const Round&)>& value) const {
    for (const auto& side : sides) {
      if (!has(side)) return std::nullopt;
    }
    std::vector<double> values;
    for (const auto& round : rounds.calmest(sides)) values.push_back(value(round));
    return median(values);
  }

  Maybe faster(const std::string& side, const std::string& than) const {
    return median_over({side, than}, [&](const Round& round) {
      return step_seconds(round, than) / step_seconds(round, side);
    });
  }

  // Of the speed-up that S stages with equal tasks and no delays have over one device.
  Maybe share_of_textbook(const std::string& side) const {
    const double ideal =
        static_cast<double>(kStages * asked.micro_batches) / (asked.micro_batches + kStages - 1);
    const Maybe speed_up = faster(side, "one_device");
    return speed_up ? Maybe(*speed_up / ideal) : std::nullopt;
  }

  // `value` gets the costs of the round's own tasks.
  Maybe by_costs(const std::string& side, const std::vector<std::string>& sides,
                 const std::function<double(const Round&, const SimulatedCosts&)>& value) const {
    if (schedules.count(side) == 0) return std::nullopt;
    return median_over(
        sides, [&](const Round& round) { return value(round, costs_from(round.at(side).more)); });
  }

  // The step that these tasks allow without any delay, of the measured one.
  Maybe share_of_ideal(const std::string& side) const {
    return by_costs(side, {side}, [&](const Round& round, const SimulatedCosts& costs) {
      return ideal_seconds(schedules.at(side), costs) / step_seconds(round, side);
    });
  }

  // The measured speed-up over one device, of the one that these tasks allow.
  Maybe share_of_ideal_speed_up(const std::string& side) const {
    return by_costs(
        side, {side, "one_device"}, [&](const Round& round, const SimulatedCosts& costs) {
          const Schedule& schedule = schedules.at(side);
          const double ideal = serial_seconds(schedule, costs) / ideal_seconds(schedule, costs);
          return step_seconds(round, "one_device") / step_seconds(round, side) / ideal;
        });
  }

  // All tasks cut evenly over the stages without a bubble, of the measured step.
  Maybe share_of_limit(const std::string& side) const {
    return by_costs(side, {side}, [&](const Round& round, const SimulatedCosts& costs) {
      return serial_seconds(schedules.at(side), costs) / kStages / step_seconds(round, side);
    });
  }

  // The stage with the most work, of the measured step.
  Maybe share_of_busiest(const std::string& side) const {
    return by_costs(side, {side}, [&](const Round& round, const SimulatedCosts& costs) {
      return busiest_seconds(schedules.at(side), costs) / step_seconds(round, side);
    });
  }

  // The step of one device cut evenly over the stages, of the measured step.
  Maybe share_of_limit_speed_up(const std::string& side) const {
    const Maybe speed_up = faster(side, "one_device");
    return speed_up ? Maybe(*speed_up / kStages) : std::nullopt;
  }

  // What the same work costs more on two cores at once, in pieces, than on one device.
  Maybe more_work(const std::string& side) const {
    return by_costs(
        side, {side, "one_device"}, [&](const Round& round, const SimulatedCosts& costs) {
          return serial_seconds(schedules.at(side), costs) / step_seconds(round, "one_device");
        });
  }

  // With the costs of the other rounds.
  Maybe simulated_over_measured(const std::string& side) const {
    if (schedules.count(side) == 0) return std::nullopt;
    const auto calm = rounds.calmest({side});
    if (calm.size() < 2) return std::nullopt;
    std::vector<double> ratios;
    for (size_t i = 0; i < calm.size(); ++i) {
      std::vector<std::vector<double>> others;
      for (size_t j = 0; j < calm.size(); ++j) {
        if (j != i) others.push_back(calm[j].at(side).more);
      }
      const SimulatedCosts costs = costs_from(median_of(others));
      ratios.push_back(simulate(schedules.at(side), costs).seconds / step_seconds(calm[i], side));
    }
    return median(ratios);
  }

  static std::vector<double> median_of(const std::vector<std::vector<double>>& rows) {
    std::vector<double> result;
    for (size_t i = 0; i < rows.at(0).size(); ++i) {
      std::vector<double> column;
      for (const auto& row : rows) column.push_back(row.at(i));
      result.push_back(median(column));
    }
    return result;
  }
};

inline void print_sides(const Result& result, const std::vector<std::string>& sides) {
  std::printf("\n%s, %d rows, stage 1 from block %d\n", result.asked.title().c_str(),
              static_cast<int>(kRows), static_cast<int>(result.asked.workload.cut));
  std::printf("  %-12s %10s %12s %11s %12s %9s %13s %12s %8s\n", "side", "ms a step", "ms of cores",
              "vs one dev.", "of M/(M+S-1)", "vs pipe", "vs hand 1F1B", "peak memory", "foreign");
  for (const auto& side : sides) {
    const auto to = [&](const char* other) { return text(result.faster(side, other), "-"); };
    std::printf("  %-12s %10.1f %12.1f %11s %12s %9s %13s %9.0f MB %6.0f %%\n", side.c_str(),
                1e3 * result.rounds.typical(side, &Turn::seconds) / result.steps,
                1e3 * result.rounds.typical(side, &Turn::work) / result.steps,
                to("one_device").c_str(), text(result.share_of_textbook(side), "-").c_str(),
                to("pipe").c_str(), to("hand_1f1b").c_str(), result.megabytes.at(side),
                100 * result.rounds.foreign(side));
  }
}

// What the tasks of a pipeline cost, and the two views of its shares.
inline void print_pipeline(const Result& result, const std::string& side) {
  std::vector<std::vector<double>> said;
  for (const auto& round : result.rounds.calmest({side})) said.push_back(round.at(side).more);
  const SimulatedCosts costs = costs_from(Result::median_of(said));
  std::printf("  %s: ", side.c_str());
  for (size_t i = 0; i < costs.chunks.size(); ++i) {
    const auto& chunk = costs.chunks[i];
    std::printf("stage %zu forward %.1f backward %.1f weights %.1f = %.1f ms, ", i,
                1e3 * chunk.forward, 1e3 * chunk.backward, 1e3 * chunk.weights,
                1e3 * (chunk.forward + chunk.backward + chunk.weights));
  }
  std::printf("transfers %.2f and %.2f ms, update %.1f ms\n", 1e3 * costs.forward_transfers[0],
              1e3 * costs.backward_transfers[0], 1e3 * costs.updates[0]);
  const auto print = [](const char* what, const Result::Maybe& by_tasks,
                        const Result::Maybe& by_one_device) {
    std::printf("    %-30s %s by the costs of these tasks, %s by the step of one device\n", what,
                text(by_tasks, "-").c_str(), text(by_one_device, "-").c_str());
  };
  print("share of this schedule's ideal", result.share_of_ideal(side),
        result.share_of_ideal_speed_up(side));
  print("share of the no-bubble limit", result.share_of_limit(side),
        result.share_of_limit_speed_up(side));
  std::printf("    %-30s %s by the costs of these tasks\n", "share of the busiest stage",
              text(result.share_of_busiest(side), "-").c_str());
  std::printf("    the tasks cost %s of one device's step; simulated over measured %s\n",
              text(result.more_work(side), "-").c_str(),
              text(result.simulated_over_measured(side), "-").c_str());
}

inline void print_report(const std::vector<Result>& results,
                         const std::vector<std::string>& sides) {
  for (const auto& result : results) {
    print_sides(result, sides);
    for (const auto& [side, schedule] : result.schedules) print_pipeline(result, side);
  }
}

inline std::string json_of(const Result& result) {
  const std::pair<const char*, Result::Maybe> entries[] = {
      {"share_of_ideal", result.share_of_ideal("pipeline")},
      {"zero_bubble_share_of_limit", result.share_of_limit("zero_bubble")},
      {"vs_pipe", result.faster("pipeline", "pipe")},
      {"vs_hand_1f1b", result.faster("pipeline", "hand_1f1b")},
      {"simulated_over_measured", result.simulated_over_measured("pipeline")},
      {"share_of_ideal_by_one_device", result.share_of_ideal_speed_up("pipeline")},
      {"zero_bubble_share_of_limit_by_one_device", result.share_of_limit_speed_up("zero_bubble")},
      {"zero_bubble_share_of_busiest_stage", result.share_of_busiest("zero_bubble")},
      {"zero_bubble_simulated_over_measured", result.simulated_over_measured("zero_bubble")}};
  std::string json;
  for (const auto& [key, value] : entries) {
    json += std::string(json.empty() ? "" : ", ") + "\"" + key + "\": " + text(value, "null");
  }
  return "{" + json + "}";
}

// By model, then by number of micro batches.
inline void print_json(const std::vector<Result>& results) {
  std::map<std::string, std::string> models;
  for (const auto& result : results) {
    std::string& model = models[result.asked.workload.name];
    model += std::string(model.empty() ? "" : ", ") + "\"" +
             std::to_string(result.asked.micro_batches) + "\": " + json_of(result);
  }
  std::string json;
  for (const auto& [name, entries] : models) {
    json += std::string(json.empty() ? "" : ", ") + "\"" + name + "\": {" + entries + "}";
  }
  std::printf("{%s}\n", json.c_str());
}

}  // namespace epl::bench

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "layout/constant_text.h"
#include "program/program_text.h"
#include "program/schedule.h"
#include "program/schedule_times.h"
#include "program/text_rules.h"

namespace epl {
namespace {

bool has_several_chunks(const Schedule& schedule) {
  return schedule.chunks() > static_cast<int>(schedule.stages.size());
}

std::string cell(const Schedule& schedule, size_t stage, const Task& task) {
  const char letter = "FBW"[static_cast<size_t>(task.kind)];
  const std::string text = concat(letter, task.micro_batch);
  const bool names_chunk = has_several_chunks(schedule) || task.chunk != static_cast<int>(stage);
  return names_chunk ? concat(text, ".", task.chunk) : text;
}

int units(const Schedule& schedule, const Task& task) {
  return task.kind == Task::Kind::kBackward && !schedule.splits_backward ? 2 : 1;
}

size_t widest_cell(const Schedule& schedule) {
  size_t width = 0;
  for (size_t stage = 0; stage < schedule.stages.size(); ++stage) {
    for (const Task& task : schedule.stages[stage]) {
      width = std::max(width, cell(schedule, stage, task).size());
    }
  }
  return width;
}

// Cells are `width` wide, with a blank between them that a task of several units fills with dashes.
std::string print_stage(const Schedule& schedule, size_t stage, const std::vector<TaskTime>& times,
                        size_t width) {
  std::string line;
  for (size_t place = 0; place < times.size(); ++place) {
    const Task& task = schedule.stages[stage][place];
    const auto begin = static_cast<size_t>(std::lround(times[place].begin));
    const auto length = static_cast<size_t>(units(schedule, task));
    line.resize(begin * (width + 1), ' ');
    line += cell(schedule, stage, task);
    if (length > 1) line.resize((begin + length) * (width + 1) - 1, '-');
  }
  return line;
}

}  // namespace

std::string title_of(const Schedule& schedule) {
  const int stages = static_cast<int>(schedule.stages.size());
  const int micro_batches = schedule.micro_batches;
  std::string text =
      concat(word_or_quoted(schedule.strategy), ", ", stages, stages == 1 ? " stage" : " stages");
  if (has_several_chunks(schedule)) text += concat(" of ", schedule.chunks() / stages, " chunks");
  return concat(text, ", ", micro_batches, micro_batches == 1 ? " micro batch" : " micro batches");
}

std::string print_schedule(const Schedule& schedule) {
  const auto times =
      task_times(schedule, {[&schedule](const Task& task) { return units(schedule, task); }, {}});
  const size_t stages = schedule.stages.size();
  const size_t name_width = concat("stage ", stages - 1).size();
  const size_t cell_width = widest_cell(schedule);
  std::string text = title_of(schedule) + "\n";
  for (size_t stage = 0; stage < stages; ++stage) {
    std::string name = concat("stage ", stage);
    name.resize(name_width, ' ');
    text += concat("  ", name, "  ", print_stage(schedule, stage, times[stage], cell_width), "\n");
  }
  return text;
}

std::string print_unusual_schedule(const Schedule& schedule) {
  std::string text;
  const size_t stages = schedule.stages.size();
  const size_t chunks = schedule.stage_of_chunk.size();
  const bool even = chunks > 0 && chunks % stages == 0;
  if (!even || schedule.stage_of_chunk != usual_stages_of_chunks(stages, chunks)) {
    text += "chunks    on stages " + join(schedule.stage_of_chunk, ", ") + "\n";
  }
  if (schedule.splits_backward != usually_splits(schedule)) {
    text += concat("backward  ", schedule.splits_backward ? "split" : "whole", "\n");
  }
  if (schedule.in_flight != count_in_flight(schedule)) {
    text += "in flight " + join(schedule.in_flight, ", ") + "\n";
  }
  return text;
}

}  // namespace epl

#include "base/text.h"
#include "program/parse_parts.h"
#include "program/text_rules.h"

namespace epl {
namespace {

constexpr size_t kMostChunks = 1'000'000;

// "F0 F1       B0---": letter, micro batch, and the chunk where it is not the stage's own.
std::vector<Task> parse_tasks(TextLine& line, int stage) {
  std::vector<Task> tasks;
  while (!line.at_end()) {
    Task task;
    if (line.take("B")) {
      task.kind = Task::Kind::kBackward;
    } else if (line.take("W")) {
      task.kind = Task::Kind::kWeights;
    } else {
      line.expect("F");
    }
    task.micro_batch = static_cast<int>(line.digits());
    task.chunk = line.take(".") ? static_cast<int>(line.digits()) : stage;
    while (line.take("-")) {
    }
    tasks.push_back(task);
  }
  return tasks;
}

// The number of chunks as the title has it.
size_t parse_title(TextLine& line, Schedule& schedule) {
  schedule.strategy = line.word_or_string();
  line.expect(",");
  const int stages = line.index(kMostChunks);
  if (stages == 0) line.fail("a schedule of no stage");
  if (!line.take("stages")) line.expect("stage");
  int chunks = 1;
  if (line.take("of")) {
    chunks = line.index(kMostChunks);
    line.expect("chunks");
  }
  line.expect(",");
  schedule.micro_batches = line.small_integer();
  if (!line.take("micro batches")) line.expect("micro batch");
  line.expect_end();
  schedule.stages.resize(static_cast<size_t>(stages));
  return static_cast<size_t>(stages) * static_cast<size_t>(chunks);
}

// Tables have a place for each micro batch of each chunk.
void check_tasks_are_known(const TextLine& title, const Schedule& schedule, size_t chunks) {
  size_t count = 0;
  for (const auto& tasks : schedule.stages) count += tasks.size();
  if (schedule.micro_batches < 0) title.fail("a schedule of less than no micro batch");
  const auto micro_batches = static_cast<size_t>(schedule.micro_batches);
  if (chunks > count || micro_batches > count || chunks * micro_batches > count) {
    title.fail(concat(count, " tasks for ", chunks, " chunks of ", schedule.micro_batches,
                      " micro batches"));
  }
  for (const auto& tasks : schedule.stages) {
    for (const Task& task : tasks) {
      const bool known = static_cast<size_t>(task.chunk) < chunks &&
                         static_cast<size_t>(task.micro_batch) < micro_batches;
      if (!known) title.fail(str(task) + " is not of this schedule");
    }
  }
}

}  // namespace

Schedule parse_schedule(TextLines& lines) {
  Schedule schedule;
  TextLine& title = lines.take("a schedule");
  size_t chunks = parse_title(title, schedule);
  for (size_t stage = 0; stage < schedule.stages.size(); ++stage) {
    TextLine& line = lines.take(concat("stage ", stage));
    line.expect(concat("stage ", stage));
    schedule.stages[stage] = parse_tasks(line, static_cast<int>(stage));
  }
  schedule.splits_backward = usually_splits(schedule);
  if (lines.looking_at("chunks ")) {
    TextLine& line = lines.take("chunks");
    line.expect("chunks");
    line.expect("on stages");
    schedule.stage_of_chunk = parse_numbers(line);
    line.expect_end();
    chunks = schedule.stage_of_chunk.size();
  }
  check_tasks_are_known(title, schedule, chunks);
  if (schedule.stage_of_chunk.empty()) {
    schedule.stage_of_chunk = usual_stages_of_chunks(schedule.stages.size(), chunks);
  }
  if (lines.looking_at("backward ")) {
    TextLine& line = lines.take("backward");
    line.expect("backward");
    schedule.splits_backward = line.take("split");
    if (!schedule.splits_backward) line.expect("whole");
    line.expect_end();
  }
  schedule.in_flight = count_in_flight(schedule);
  if (lines.looking_at("in flight")) {
    TextLine& line = lines.take("in flight");
    line.expect("in flight");
    schedule.in_flight = parse_numbers(line);
    line.expect_end();
  }
  return schedule;
}

}  // namespace epl

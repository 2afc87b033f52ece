#include "plan/stage_text.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "base/text.h"

namespace epl {
namespace {

std::string fixed(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

// The modules whose parameters stand nearest to a position: before it and at or behind it.
std::string module_before(const StageModel& model, int position) {
  for (int i = position - 1; i >= 0; --i) {
    const std::string& name = model.parameter_names[static_cast<size_t>(i)];
    if (!name.empty()) return module_of(name);
  }
  return "";
}

std::string module_from(const StageModel& model, int position, int end) {
  for (int i = position; i < end; ++i) {
    const std::string& name = model.parameter_names[static_cast<size_t>(i)];
    if (!name.empty()) return module_of(name);
  }
  return "";
}

// "tokens to block1.norm2": what the part reads first and last.
std::string modules_of_part(const StageModel& model, int begin, int end) {
  const std::string first = module_from(model, begin, end);
  if (first.empty()) return "no parameters";
  const std::string last = module_before(model, end);
  return first == last ? first : concat(first, " to ", last);
}

// Where a cut lies, as far as names can say.
std::string place_of_cut(const StageModel& model, int position) {
  const auto index = static_cast<size_t>(position);
  // Views say little.
  const auto first = std::find_if(model.ops.begin() + position, model.ops.end(),
                                  [](const std::string& op) { return !op.empty(); });
  std::string text = concat("before ", first == model.ops.end() ? "the last views" : *first);
  if (!model.divided_modules[index].empty()) {
    text += concat(", inside of ", model.divided_modules[index]);
  }
  if (model.inside[index]) {
    text += ", inside of one operator that the program calls: no scope can begin there";
  }
  return text;
}

std::string scopes_of(const StageModel& model, const std::vector<int>& begins) {
  std::string text = "The same as scopes:\n";
  for (size_t i = 0; i < begins.size(); ++i) {
    const int end = i + 1 < begins.size() ? begins[i + 1] : model.positions();
    if (i > 0) text += concat("  // the cut: ", place_of_cut(model, begins[i]), "\n");
    text += concat("  { epl::With stage(epl::replicate(1, \"stage_", i, "\")); ... }  // ",
                   modules_of_part(model, begins[i], end), "\n");
  }
  return text;
}

std::string padded(const std::string& text, size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

}  // namespace

std::string explain_stages(const StageModel& model, const std::vector<int>& begins,
                           const StageCuts& chosen, const StageCutsRequest& request,
                           bool measured) {
  double total = 0;
  int64_t crossing = 0;
  for (const ChosenChunk& chunk : chosen.chunks) {
    total += chunk.seconds;
    crossing += chunk.received_bytes;
  }
  const double whole = std::max(total, 1e-12);
  std::string text = concat("epl: ", request.stages, " stages");
  if (request.chunks_per_stage > 1) text += concat(" of ", request.chunks_per_stage, " chunks");
  text += concat(", cut by ", measured ? "measured" : "estimated", " cost\n");
  for (size_t i = 0; i < chosen.chunks.size(); ++i) {
    const ChosenChunk& chunk = chosen.chunks[i];
    text += concat("  stage_", i, "  ", padded(std::to_string(chunk.operators), 5), " operators  ",
                   padded(fixed(100 * chunk.seconds / whole, 1), 5), " % of the time  parameters ",
                   padded(human_bytes(chunk.parameter_bytes), 9), "  saves ",
                   padded(human_bytes(chunk.saved_bytes), 9), "  receives ",
                   padded(human_bytes(chunk.received_bytes), 9), " a micro batch\n");
  }
  const double mean = whole / request.stages;
  text += concat("  the slowest stage takes ", fixed(chosen.pace / mean, 2), " of the mean; ",
                 human_bytes(crossing), " cross a micro batch\n");
  text += concat("  ", request.micro_batches,
                 request.micro_batches == 1 ? " micro batch" : " micro batches", ": about ",
                 fixed(whole * request.micro_batches / std::max(chosen.step, 1e-12), 2),
                 " times as fast as one device, before the update\n");
  return text + scopes_of(model, begins);
}

}  // namespace epl

// A step whose operators and parameters are cut over devices: from its recordings to a Plan with a
// program for each of them.
#pragma once

#include <optional>

#include "compile/compile.h"

namespace epl {

struct SplitRecording {
  Graph whole;                  // with all rows of a micro batch
  std::optional<Graph> slice;   // with those of one device, where some code runs on slices
  bool inputs_are_cut = false;  // other workers have the other rows
  bool users_backward = false;  // see Capture
};

// By leaf: whether it is a parameter that was made under split().
std::vector<bool> parameters_made_cut(const Graph& graph);

// Whether some of the step runs on slices of the rows: what stands under replicate.
bool has_slices(const Graph& graph);

// The graphs of the devices that stages of a pipeline are cut over, into CompiledStep::parts.
void cut_stages(CompiledStep& compiled, const Config& config, const CompileOptions& options);

CompiledStep compile_split(SplitRecording recording, const Config& config,
                           const CompileOptions& options);

}  // namespace epl

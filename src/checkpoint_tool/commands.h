// What epl-checkpoint does (docs/checkpoints.md), each a function that prints to `out` and says how
// the program ends: 0, or 1 where something is damaged or different.
//
// A path is the folder of one step, or a folder of such folders, whose newest good one it stands
// for then.
#pragma once

#include <iosfwd>
#include <string>

namespace epl {

enum class Listing : uint8_t { kSteps, kTensors };

// A line for each step: its size, and whether it is good; also each of its tensors.
int list_steps(const std::string& path, Listing listing, std::ostream& out);

// All that is wrong, of one step or of all steps of a folder.
int verify_steps(const std::string& path, std::ostream& out);

// Writes the tensors as one file of safetensors; a few blocks are in memory at a time.
int export_step(const std::string& path, const std::string& file, std::ostream& out);

// Which tensors and entries of two checkpoints differ, and by how much.
int diff_steps(const std::string& a, const std::string& b, std::ostream& out);

}  // namespace epl

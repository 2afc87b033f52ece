// What goes between the chunks of a pipeline: found from the graph.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "program/schedule.h"

namespace epl {

// A task of any micro batch: what kind, of which chunk.
struct ChunkTask {
  Task::Kind kind = Task::Kind::kForward;
  int chunk = 0;

  bool operator<(const ChunkTask& other) const {
    return chunk != other.chunk ? chunk < other.chunk : kind < other.kind;
  }
  bool operator==(const ChunkTask& other) const {
    return chunk == other.chunk && kind == other.kind;
  }
};
std::string name_of(const ChunkTask& task);  // "forward 0"

// For each node the task that it belongs to. Where backward is split, its nodes that nothing but
// the gradients of parameters need wait for kWeights.
std::vector<ChunkTask> tasks_of_nodes(const Graph& graph, bool splits_backward);

// The values that one task makes and tasks of other chunks read. The batch is made by forward of
// chunk 0. Parameters, state and constants are there for everyone, and so are their views.
struct Crossing {
  ChunkTask from;
  ChunkTask to;  // the first task of its chunk that reads them
  std::vector<ValueId> values;
};
std::vector<Crossing> find_crossings(const Graph& graph, const std::vector<ChunkTask>& tasks);

}  // namespace epl

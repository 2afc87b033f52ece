#include "cost/min_cut.h"

#include <algorithm>

namespace epl {

MinCut::MinCut(int vertices)
    : source_(vertices), sink_(vertices + 1), leaving_(static_cast<size_t>(vertices) + 2) {}

int MinCut::index(int vertex) const {
  if (vertex == kSource) return source_;
  return vertex == kSink ? sink_ : vertex;
}

void MinCut::add(int from, int to, int64_t weight) {
  const auto first = static_cast<int>(edges_.size());
  edges_.push_back({index(to), weight});
  edges_.push_back({index(from), 0});
  leaving_[static_cast<size_t>(index(from))].push_back(first);
  leaving_[static_cast<size_t>(index(to))].push_back(first + 1);
}

// Dinic (1970): shortest paths with room left, all of one length at a time.
std::vector<bool> MinCut::solve() {
  while (find_levels()) {
    next_.assign(leaving_.size(), 0);
    while (const int64_t pushed = push(source_, kNever)) weight_ += pushed;
  }
  std::vector<bool> reaches_sink(leaving_.size(), false);
  std::vector<int> open{sink_};
  reaches_sink[static_cast<size_t>(sink_)] = true;
  while (!open.empty()) {
    const int vertex = open.back();
    open.pop_back();
    for (int edge : leaving_[static_cast<size_t>(vertex)]) {
      const Edge& towards = edges_[static_cast<size_t>(edge ^ 1)];
      const int from = edges_[static_cast<size_t>(edge)].to;
      if (towards.left == 0 || reaches_sink[static_cast<size_t>(from)]) continue;
      reaches_sink[static_cast<size_t>(from)] = true;
      open.push_back(from);
    }
  }
  reaches_sink.resize(leaving_.size() - 2);
  return reaches_sink;
}

bool MinCut::find_levels() {
  level_.assign(leaving_.size(), -1);
  level_[static_cast<size_t>(source_)] = 0;
  std::vector<int> order{source_};
  for (size_t i = 0; i < order.size(); ++i) {
    for (int edge : leaving_[static_cast<size_t>(order[i])]) {
      const Edge& to = edges_[static_cast<size_t>(edge)];
      if (to.left == 0 || level_[static_cast<size_t>(to.to)] >= 0) continue;
      level_[static_cast<size_t>(to.to)] = level_[static_cast<size_t>(order[i])] + 1;
      order.push_back(to.to);
    }
  }
  return level_[static_cast<size_t>(sink_)] >= 0;
}

// One path from `vertex` to the sink, without recursion: deep networks have long paths.
int64_t MinCut::push(int vertex, int64_t most) {
  std::vector<int> path;  // edges
  while (vertex != sink_) {
    const auto& edges = leaving_[static_cast<size_t>(vertex)];
    size_t& next = next_[static_cast<size_t>(vertex)];
    const auto leads_on = [&](int edge) {
      const Edge& to = edges_[static_cast<size_t>(edge)];
      return to.left > 0 &&
             level_[static_cast<size_t>(to.to)] == level_[static_cast<size_t>(vertex)] + 1;
    };
    while (next < edges.size() && !leads_on(edges[next])) ++next;
    if (next < edges.size()) {
      path.push_back(edges[next]);
      vertex = edges_[static_cast<size_t>(edges[next])].to;
      continue;
    }
    if (path.empty()) return 0;
    vertex = edges_[static_cast<size_t>(path.back() ^ 1)].to;
    path.pop_back();
    ++next_[static_cast<size_t>(vertex)];
  }
  for (int edge : path) most = std::min(most, edges_[static_cast<size_t>(edge)].left);
  for (int edge : path) {
    edges_[static_cast<size_t>(edge)].left -= most;
    edges_[static_cast<size_t>(edge ^ 1)].left += most;
  }
  return most;
}

}  // namespace epl

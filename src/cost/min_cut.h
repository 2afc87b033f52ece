// MinCut: the cheapest set of edges that cuts a source off from a sink.
//
//   MinCut cut(vertices);
//   cut.add(MinCut::kSource, a, 5);
//   cut.add(a, MinCut::kSink, MinCut::kNever);
//   const std::vector<bool> sink_side = cut.solve();    // by vertex
//
// Weights are integers, so that all workers find the same cut. Of several cheapest cuts it is the
// one with the fewest vertices on the side of the sink.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace epl {

class MinCut {
 public:
  static constexpr int kSource = -1;
  static constexpr int kSink = -2;
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max() / 4;  // an edge to stay

  explicit MinCut(int vertices);

  // A cut pays `weight` where `from` is on the source's side and `to` on the sink's.
  void add(int from, int to, int64_t weight);

  // Once: whether each vertex is on the side of the sink.
  std::vector<bool> solve();
  int64_t weight() const { return weight_; }  // of the cut that solve() found

 private:
  struct Edge {
    int to;
    int64_t left;  // of its capacity
  };

  int index(int vertex) const;
  bool find_levels();
  int64_t push(int vertex, int64_t most);

  const int source_;
  const int sink_;
  std::vector<Edge> edges_;  // each with its reverse behind it
  std::vector<std::vector<int>> leaving_;
  std::vector<int> level_;
  std::vector<size_t> next_;  // edges of a vertex that lead nowhere any more are not tried again
  int64_t weight_ = 0;
};

}  // namespace epl

#include "calibrate/measure_operators.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "base/check.h"
#include "calibrate/node_timer.h"
#include "cost/op_signature.h"
#include "ir/text.h"
#include "runtime/update_kernels.h"

namespace epl {
namespace {

// A graph of one node. `lines`: leaves, then the node, which makes `returned`.
Graph graph_of(const std::string& lines, const std::string& returned) {
  return parse_graph("graph\n" + lines + "  return loss " + returned + "\n");
}

Graph product_graph(int64_t m, int64_t n, int64_t k) {
  return graph_of(concat("  %0: f32[", m, ",", k, "] = input 0\n  %1: f32[", k, ",", n,
                         "] = input 1\n  %2: f32[", m, ",", n, "] = aten::mm(%0, %1) {forward}\n"),
                  "%2");
}

double time_of(const Graph& graph, const Timing& timing) {
  const std::optional<double> seconds = seconds_of_node(graph, graph.nodes.back(), timing);
  EPL_ASSERT(seconds.has_value(), "what calibration measures runs by itself");
  return *seconds;
}

// Graphs whose time is a line over what bounds it; `elements` of the largest tensor.
using MakeGraph = Graph (*)(int64_t elements);

constexpr int64_t kRow = 256;  // of operators that work by rows

std::string row_type(int64_t elements) {
  return concat("f32[", std::max<int64_t>(1, elements / kRow), ",", kRow, "]");
}

template <int inputs>
Graph pointwise(int64_t elements, const char* node) {
  std::string lines;
  for (int i = 0; i < inputs; ++i) {
    lines += concat("  %", i, ": f32[", elements, "] = input ", i, "\n");
  }
  lines += concat("  %", inputs, ": f32[", elements, "] = ", node, " {forward}\n");
  return graph_of(lines, concat("%", inputs));
}

Graph relu_graph(int64_t elements) { return pointwise<1>(elements, "aten::relu(%0)"); }
Graph add_graph(int64_t elements) { return pointwise<2>(elements, "aten::add.Tensor(%0, %1, 1)"); }
Graph mul_graph(int64_t elements) { return pointwise<2>(elements, "aten::mul.Tensor(%0, %1)"); }
Graph gelu_graph(int64_t elements) { return pointwise<1>(elements, "aten::gelu(%0, \"none\")"); }
Graph tanh_graph(int64_t elements) { return pointwise<1>(elements, "aten::tanh(%0)"); }
Graph threshold_graph(int64_t elements) {
  return pointwise<2>(elements, "aten::threshold_backward(%0, %1, 0)");
}

Graph softmax_graph(int64_t elements) {
  const std::string type = row_type(elements);
  return graph_of(concat("  %0: ", type, " = input 0\n  %1: ", type,
                         " = aten::_softmax(%0, -1, false) {forward}\n"),
                  "%1");
}

Graph sum_graph(int64_t elements) {
  return graph_of(concat("  %0: ", row_type(elements), " = input 0\n  %1: f32[", kRow,
                         "] = aten::sum.dim_IntList(%0, [0], false, none) {forward}\n"),
                  "%1");
}

Graph layer_norm_graph(int64_t elements) {
  const std::string type = row_type(elements);
  const int64_t rows = std::max<int64_t>(1, elements / kRow);
  return graph_of(
      concat("  %0: ", type, " = input 0\n  %1: f32[", kRow, "] = input 1\n  %2: f32[", kRow,
             "] = input 2\n  %3: ", type, ", %4: f32[", rows, ",1], %5: f32[", rows,
             ",1] = aten::native_layer_norm(%0, [", kRow, "], %1, %2, 1e-05) {forward}\n"),
      "%3");
}

// Images of 16 channels, 3 x 3.
Graph convolution_graph(int64_t elements) {
  constexpr int64_t kSide = 16;
  const int64_t images = std::max<int64_t>(1, elements / (16 * kSide * kSide));
  const std::string type = concat("f32[", images, ",16,", kSide, ",", kSide, "]");
  return graph_of(concat("  %0: ", type, " = input 0\n  %1: f32[16,16,3,3] = input 1\n  %2: ", type,
                         " = aten::convolution(%0, %1, none, [1, 1], [1, 1], [1, 1], false, "
                         "[0, 0], 1) {forward}\n"),
                  "%2");
}

const MakeGraph kFamilies[] = {relu_graph,       add_graph,        mul_graph,     gelu_graph,
                               tanh_graph,       threshold_graph,  softmax_graph, sum_graph,
                               layer_norm_graph, convolution_graph};

// What CostModel looks a line up by, besides the name of the operator.
std::pair<std::string, double> bound_of(const NodeWork& work) {
  if (work.flops > 0) return {"flops", work.flops};
  if (work.kind == OperatorCost::Kind::kElements) return {"elements", work.elements};
  return {"bytes", work.bytes};
}

template <typename Step>
LineFit line_of_update(const std::vector<int64_t>& elements, int states, const Timing& timing,
                       void (*bind)(Step&, const std::vector<at::Tensor>&)) {
  std::vector<TimePoint> points;
  for (const int64_t count : elements) {
    // Parameter, gradient and states of as many tensors as a model would go through.
    const int64_t bytes = 4 * count * (2 + states);
    const size_t sets = timing.sets_of(bytes);
    std::vector<std::vector<at::Tensor>> tensors(sets);
    for (auto& set : tensors) {
      for (int i = 0; i < 2 + states; ++i) set.push_back(at::ones({count}, at::kFloat));
    }
    const double seconds = typical_seconds(
        [&](int64_t number) {
          Step step;
          bind(step, tensors[static_cast<size_t>(number) % sets]);
          update_range(step, 0, count);
        },
        timing);
    points.push_back({static_cast<double>(count), seconds});
  }
  return fit_line(points);
}

}  // namespace

ProductGrid measure_products(const std::vector<int64_t>& sizes, const Timing& timing) {
  ProductGrid grid;
  grid.m = grid.n = grid.k = sizes;
  for (const int64_t m : sizes) {
    for (const int64_t n : sizes) {
      for (const int64_t k : sizes) {
        grid.seconds.push_back(time_of(product_graph(m, n, k), timing));
      }
    }
  }
  grid.make_rising();
  return grid;
}

std::map<std::string, LineFit> measure_families(const std::vector<int64_t>& elements,
                                                const Timing& timing,
                                                const CalibrateProgress& progress) {
  std::map<std::string, std::vector<TimePoint>> points;
  for (const MakeGraph make : kFamilies) {
    progress(op_name(make(kRow).nodes.back()));
    for (const int64_t count : elements) {
      const Graph graph = make(count);
      const OpSignature signature = op_signature(graph, graph.nodes.back());
      const auto [family, size] = bound_of(signature.work);
      const TimePoint point{size, time_of(graph, timing)};
      points[signature.op].push_back(point);
      // Elements of one operator say nothing of another's.
      if (family != "elements") points[family].push_back(point);
    }
  }
  std::map<std::string, LineFit> lines;
  for (const auto& [name, times] : points) lines[name] = fit_line(times);
  return lines;
}

double measure_call(const Timing& timing) { return time_of(relu_graph(1), timing); }

std::map<std::string, LineFit> measure_updates(const std::vector<int64_t>& elements,
                                               const Timing& timing) {
  std::map<std::string, LineFit> lines;
  lines["sgd"] = line_of_update<SgdStep>(elements, 0, timing,
                                         [](SgdStep& step, const std::vector<at::Tensor>& set) {
                                           step.parameter = set[0].data_ptr();
                                           step.gradient = set[1].data_ptr();
                                           step.learning_rate = 1e-6;
                                         });
  lines["sgd_momentum"] = line_of_update<SgdStep>(
      elements, 1, timing, [](SgdStep& step, const std::vector<at::Tensor>& set) {
        step.parameter = set[0].data_ptr();
        step.gradient = set[1].data_ptr();
        step.momentum_buffer = set[2].data_ptr();
        step.momentum = 0.9;
        step.learning_rate = 1e-6;
      });
  lines["adam"] = line_of_update<AdamStep>(elements, 2, timing,
                                           [](AdamStep& step, const std::vector<at::Tensor>& set) {
                                             step.parameter = set[0].data_ptr();
                                             step.gradient = set[1].data_ptr();
                                             step.mean = set[2].data_ptr();
                                             step.mean_square = set[3].data_ptr();
                                             step.beta1 = 0.9;
                                             step.beta2 = 0.999;
                                             step.epsilon = 1e-8;
                                             step.step_size = 1e-6;
                                           });
  return lines;
}

}  // namespace epl

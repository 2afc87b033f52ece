#include "ir/pass.h"

#include "ir/verify.h"

namespace epl {

void run_passes(Graph& graph, const PassList& passes) {
  verify_graph(graph, "capture");
  for (const auto& pass : passes) {
    pass->run(graph);
    verify_graph(graph, pass->name());
  }
}

}  // namespace epl

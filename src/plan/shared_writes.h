// Memory that the chunks of a pipeline share and one of them writes in place.
//
// Chunks run on devices of their own, for one micro batch after the other: what one writes into
// state, or into a tensor that no pure operator could take the place of (passes/purify.h), another
// one does not see.
#pragma once

#include <string>

#include "ir/graph.h"

namespace epl {

// A metric that shows what another chunk writes is read where it was written last. Throws
// epl::Error, asked by `asked_by`, where an operator or a result reads in one chunk what another
// chunk writes in place. The graph has chunks (passes/assign_chunks.h); `stages`: how many of them
// are one after the other before the model goes round again.
void settle_shared_writes(Graph& graph, int stages, const std::string& asked_by);

}  // namespace epl

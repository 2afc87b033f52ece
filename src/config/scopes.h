// The annotations of this thread, and their recording as TaskGraphs.
//
//   Recording recording([&] { close_the_open_run_of_operators(); });
//   run the user's step; for each operator: tag(op, current_taskgraph());
//   std::vector<Strategy> taskgraphs = recording.finish();
//
// While a Recording stands, entering a scope and setting a default strategy make TaskGraphs 0, 1,
// ... A scope that stood, or a default strategy that was set, before the recording becomes a
// TaskGraph when it is first asked for. At the end of the recording the default strategy is again
// what it was before: recording the same step again gives the same numbers.
#pragma once

#include <epl/strategy.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace epl {

// `on_border` is called before each change of the current TaskGraph: a scope is entered, a scope is
// left (by an exception too), a default strategy is set. In that call current_taskgraph() still
// gives the TaskGraph that ends, or -1 where a default strategy or an outer scope has not been
// asked for since the recording began: asking from within on_border makes no TaskGraph. From the
// return of With, ~With or set_default_strategy on it gives the new one. It is called where nothing
// changes in effect as well (a scope left, the same one entered again). It must not throw: scopes
// end in destructors. Prefer class Recording, which calls these.
void begin_taskgraphs(std::function<void()> on_border);
std::vector<Strategy> end_taskgraphs();  // strategy of TaskGraph i at index i

// The TaskGraph of an operator that runs now: that of the scope, else that of the default strategy,
// else -1. Also -1 while nothing is recorded.
int current_taskgraph();

bool is_recording_taskgraphs();

// Who asks, for messages: "epl::replicate(1, "encoder") at net.cc:12", or that no scope stands.
std::string describe_current_scope();

// begin_taskgraphs and end_taskgraphs as a guard. Destroyed without finish(), which is what an
// exception in the user's step does, it drops the TaskGraphs and the collections.
class Recording {
 public:
  explicit Recording(std::function<void()> on_border = {});
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  std::vector<Strategy> finish();  // at most once

 private:
  bool finished_ = false;
};

// A split scope that stands around the making of parameters, outside of a recording: `watch` is
// called when one begins; what it returns lives until the scope ends. (Operators are seen by
// capture/, which this folder does not know.)
using WatchOfCreation = std::shared_ptr<void> (*)(const Strategy& scope);
void watch_creation_by(WatchOfCreation watch);

// The two parts of epl::init(), called at `where`: it stands in no scope and no recording; then the
// default strategy and the collections of this thread are forgotten.
void check_no_scope_stands(SourceLocation where);
void reset_annotations();

}  // namespace epl

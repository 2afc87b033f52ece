#include "config/scopes.h"

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "config/collection_state.h"

namespace epl {
namespace {

// A strategy that rules now or may rule soon, and its TaskGraph once it has one.
struct Annotation {
  Strategy strategy;
  int taskgraph = -1;
};

// What a recording has gathered.
struct Session {
  std::function<void()> on_border;
  std::vector<Strategy> taskgraphs;
  std::map<std::tuple<Strategy::Kind, int, std::string>, int> named_scopes;  // to their TaskGraphs
  std::optional<Annotation> default_before;
  bool in_border = false;
};

// Scopes do not nest, so there is at most one.
struct ThreadState {
  std::optional<Annotation> scope;
  std::shared_ptr<void> watch_of_creation;  // while the scope stands; see watch_creation_by()
  std::optional<Annotation> default_strategy;
  std::optional<Session> session;
};

// Set once, before main.
WatchOfCreation& creation_watch() {
  static WatchOfCreation watch = nullptr;
  return watch;
}

ThreadState& state() {
  thread_local ThreadState state;
  return state;
}

void announce_border() {
  std::optional<Session>& session = state().session;
  if (!session || !session->on_border) return;
  session->in_border = true;
  session->on_border();
  session->in_border = false;
}

int new_taskgraph(Session& session, const Strategy& strategy) {
  session.taskgraphs.push_back(strategy);
  return static_cast<int>(session.taskgraphs.size()) - 1;
}

// The TaskGraph that an earlier scope of the same kind, device count and name made, or a new one.
int taskgraph_of_scope(Session& session, const Strategy& strategy) {
  if (strategy.name.empty()) return new_taskgraph(session, strategy);
  const auto key = std::make_tuple(strategy.kind, strategy.device_count, strategy.name);
  const auto found = session.named_scopes.find(key);
  if (found != session.named_scopes.end()) return found->second;
  return session.named_scopes[key] = new_taskgraph(session, strategy);
}

}  // namespace

With::With(Strategy strategy) {
  ThreadState& now = state();
  if (now.scope) {
    const Strategy& outer = now.scope->strategy;
    throw Error(concat("scopes do not nest: ", strategy.str(), " inside of ", outer.str()),
                concat(strategy.asked_by(), ", inside of ", outer.asked_by()),
                "end the outer scope before the inner one begins");
  }
  announce_border();
  const int taskgraph = now.session ? taskgraph_of_scope(*now.session, strategy) : -1;
  now.scope = Annotation{std::move(strategy), taskgraph};
  const bool splits = now.scope->strategy.kind == Strategy::Kind::kSplit;
  if (!now.session && splits && creation_watch() != nullptr) {
    now.watch_of_creation = creation_watch()(now.scope->strategy);
  }
}

With::~With() {
  announce_border();
  state().watch_of_creation.reset();
  state().scope.reset();
}

void set_default_strategy(Strategy strategy) {
  ThreadState& now = state();
  if (now.scope) {
    const Strategy& scope = now.scope->strategy;
    throw Error(concat("the default strategy cannot be set inside of a scope: "
                       "epl::set_default_strategy(",
                       strategy.str(), ") inside of ", scope.str()),
                concat(strategy.asked_by(), ", inside of ", scope.asked_by()),
                "set it before the scope begins or after it ends");
  }
  announce_border();
  const int taskgraph = now.session ? new_taskgraph(*now.session, strategy) : -1;
  now.default_strategy = Annotation{std::move(strategy), taskgraph};
}

void begin_taskgraphs(std::function<void()> on_border) {
  ThreadState& now = state();
  EPL_CHECK(!now.session, "a step function is recorded while another one is",
            "this thread, which is inside of a step function",
            "call Trainer::step() outside of step functions");
  clear_collections();
  now.session = Session{std::move(on_border), {}, {}, now.default_strategy};
}

std::vector<Strategy> end_taskgraphs() {
  ThreadState& now = state();
  EPL_ASSERT(now.session, "end_taskgraphs() without begin_taskgraphs()");
  std::vector<Strategy> taskgraphs = std::move(now.session->taskgraphs);
  now.default_strategy = std::move(now.session->default_before);
  if (now.scope) now.scope->taskgraph = -1;
  now.session.reset();
  return taskgraphs;
}

int current_taskgraph() {
  ThreadState& now = state();
  if (!now.session) return -1;
  std::optional<Annotation>& ruling = now.scope ? now.scope : now.default_strategy;
  if (!ruling) return -1;
  if (ruling->taskgraph < 0 && !now.session->in_border) {
    ruling->taskgraph = now.scope ? taskgraph_of_scope(*now.session, ruling->strategy)
                                  : new_taskgraph(*now.session, ruling->strategy);
  }
  return ruling->taskgraph;
}

std::string describe_current_scope() {
  const ThreadState& now = state();
  if (now.scope) return now.scope->strategy.asked_by();
  if (now.default_strategy) return now.default_strategy->strategy.asked_by();
  return "the step function, outside of any scope";
}

bool is_recording_taskgraphs() { return state().session.has_value(); }

Recording::Recording(std::function<void()> on_border) { begin_taskgraphs(std::move(on_border)); }

Recording::~Recording() {
  if (finished_) return;
  end_taskgraphs();
  clear_collections();
}

std::vector<Strategy> Recording::finish() {
  EPL_ASSERT(!finished_, "a Recording is finished once");
  finished_ = true;
  return end_taskgraphs();
}

void watch_creation_by(WatchOfCreation watch) { creation_watch() = watch; }

void check_no_scope_stands(SourceLocation where) {
  const ThreadState& now = state();
  if (now.scope) {
    throw Error(
        "epl::init() is called inside of a scope",
        concat("epl::init() at ", where.str(), ", inside of ", now.scope->strategy.asked_by()),
        "call epl::init() once, at the beginning of main()");
  }
  EPL_CHECK(!now.session, "epl::init() is called inside of a step function",
            "epl::init() at " + where.str(), "call epl::init() once, at the beginning of main()");
}

void reset_annotations() {
  state().default_strategy.reset();
  clear_collections();
}

}  // namespace epl

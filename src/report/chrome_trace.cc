// The format: "Trace Event Format" of the Chromium project. A process is the step, a thread a
// device.
#include <epl/timeline.h>
#include <errno.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace epl {
namespace {

using Json = nlohmann::ordered_json;

const char* name_of(Span::Kind kind) {
  switch (kind) {
    case Span::Kind::kForward:
      return "forward";
    case Span::Kind::kBackward:
      return "backward";
    case Span::Kind::kWeights:
      return "weights";
    case Span::Kind::kUpdate:
      return "update";
    case Span::Kind::kCommunication:
      break;
  }
  return "communication";
}

Json metadata(const char* what, size_t thread, Json args) {
  return {{"ph", "M"}, {"name", what}, {"pid", 0}, {"tid", thread}, {"args", std::move(args)}};
}

Json event_of(const Span& span, size_t thread) {
  constexpr double kMicroseconds = 1e6;
  std::string name = name_of(span.kind);
  Json args = Json::object();
  if (span.micro_batch >= 0) {
    name += concat(" ", span.micro_batch);
    args["micro batch"] = span.micro_batch;
  }
  if (span.chunk >= 0) args["chunk"] = span.chunk;
  return {{"ph", "X"},
          {"name", name},
          {"cat", name_of(span.kind)},
          {"pid", 0},
          {"tid", thread},
          {"ts", span.begin * kMicroseconds},
          {"dur", (span.end - span.begin) * kMicroseconds},
          {"args", std::move(args)}};
}

Json trace_of(const Timeline& timeline) {
  Json events = Json::array();
  events.push_back(metadata("process_name", 0, {{"name", timeline.title}}));
  for (size_t thread = 0; thread < timeline.devices.size(); ++thread) {
    const auto& device = timeline.devices[thread];
    events.push_back(metadata("thread_name", thread, {{"name", device.name}}));
    events.push_back(metadata("thread_sort_index", thread, {{"sort_index", thread}}));
    for (const Span& span : device.spans) events.push_back(event_of(span, thread));
  }
  return {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
}

bool write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  return !file.fail();
}

}  // namespace

void Timeline::write_trace(const std::string& path) const {
  // Names are the user's: what is not UTF-8 in them must not keep the rest from being written.
  const std::string text = trace_of(*this).dump(1, ' ', false, Json::error_handler_t::replace);
  const std::string unfinished = path + ".unfinished";
  errno = 0;
  if (write_file(unfinished, text) && std::rename(unfinished.c_str(), path.c_str()) == 0) return;
  const std::string reason = errno != 0 ? std::strerror(errno) : "the file could not be written";
  std::remove(unfinished.c_str());
  throw Error(concat("cannot write ", path, ": ", reason), "epl::Timeline::write_trace",
              "a folder that exists and has room");
}

}  // namespace epl

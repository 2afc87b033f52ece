// How a Timeline shows a task.
#pragma once

#include <epl/timeline.h>

#include "program/schedule.h"

namespace epl {

inline Span::Kind span_kind(Task::Kind kind) {
  switch (kind) {
    case Task::Kind::kForward:
      return Span::Kind::kForward;
    case Task::Kind::kBackward:
      return Span::Kind::kBackward;
    case Task::Kind::kWeights:
      break;
  }
  return Span::Kind::kWeights;
}

}  // namespace epl

#include <epl/strategy.h>

#include "base/check.h"
#include "base/text.h"

namespace epl {
namespace {

Strategy make(Strategy strategy) {
  EPL_CHECK(strategy.device_count >= 1, concat(strategy.str(), " has no device"),
            strategy.asked_by(), "a device_count of at least 1");
  return strategy;
}

}  // namespace

std::string Strategy::str() const {
  const char* function = kind == Kind::kReplicate ? "epl::replicate" : "epl::split";
  if (name.empty()) return concat(function, "(", device_count, ")");
  return concat(function, "(", device_count, ", \"", name, "\")");
}

std::string Strategy::asked_by() const { return concat(str(), " at ", where.str()); }

Strategy replicate(int device_count, std::string name, SourceLocation where) {
  return make({Strategy::Kind::kReplicate, device_count, std::move(name), where});
}

Strategy split(int device_count, std::string name, SourceLocation where) {
  return make({Strategy::Kind::kSplit, device_count, std::move(name), where});
}

}  // namespace epl

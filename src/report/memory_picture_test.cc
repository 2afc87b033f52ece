#include <epl/memory.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"

namespace epl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

MemoryReport report_with(const std::vector<int64_t>& saved) {
  MemoryReport report;
  MemoryReport::Worker& worker = report.workers.emplace_back();
  worker.shared[MemoryKind::kParameters] = 1 << 20;
  MemoryReport::Device& device = worker.devices.emplace_back();
  for (int64_t bytes : saved) {
    device.over_time.emplace_back()[MemoryKind::kSaved] = bytes;
  }
  return report;
}

TEST(MemoryPicture, HasACurveForEachReportToOneScale) {
  const std::string svg =
      memory_svg({{"plain <all kept>", report_with({0, 3 << 20, 1 << 20})},
                  {"with a limit", report_with({0, 1 << 20, 0})}},
                 2 << 20);
  EXPECT_THAT(svg, HasSubstr("plain &lt;all kept>: 4.0 MiB"));
  EXPECT_THAT(svg, HasSubstr("with a limit: 2.0 MiB"));
  EXPECT_THAT(svg, HasSubstr("saved activations"));
  EXPECT_THAT(svg, Not(HasSubstr("optimizer state")));
  // The peak of the first reaches the top of its frame, the limit of 2 of 4 MiB its middle.
  EXPECT_THAT(svg, HasSubstr(",30 "));
  EXPECT_THAT(svg, HasSubstr("y1=\"140\""));
}

TEST(MemoryPicture, KeepsThePeakOfALongStep) {
  std::vector<int64_t> moments(100'000, 0);
  moments[77'777] = 7 << 20;
  EXPECT_THAT(memory_svg({{"long", report_with(moments)}}), HasSubstr("long: 8.0 MiB"));
}

TEST(MemoryPicture, OfNothingIsRefused) {
  EXPECT_THROW(memory_svg({{"nothing", MemoryReport()}}), Error);
}

}  // namespace
}  // namespace epl

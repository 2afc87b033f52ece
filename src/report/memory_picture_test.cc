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
  const std::string svg = memory_svg({{"plain <all kept>", report_with({0, 3 << 20, 1 << 20})},
                                      {"with a limit", report_with({0, 1 << 20, 0})}},
                                     2 << 20);
  EXPECT_THAT(svg, HasSubstr("plain &lt;all kept>: 4.0 MiB"));
  EXPECT_THAT(svg, HasSubstr("with a limit: 2.0 MiB"));
  EXPECT_THAT(svg, HasSubstr("saved activations"));
  EXPECT_THAT(svg, Not(HasSubstr("optimizer state")));
  // The peak of the first reaches the top of its frame, the limit of 2 of 4 MiB its middle.
  EXPECT_THAT(svg, HasSubstr("V34.0H"));
  EXPECT_THAT(svg, HasSubstr("M64.0,134.0L708.0,134.0\" stroke=\"#c00\""));
  EXPECT_THAT(svg, HasSubstr(">limit 2.0 MiB</text>"));
}

TEST(MemoryPicture, HasAGridOfRoundNumbers) {
  const std::string svg = memory_svg({{"step", report_with({0, 103 << 20})}});
  for (const char* label : {">0<", ">20 MiB<", ">100 MiB<", ">120 MiB<"}) {
    EXPECT_THAT(svg, HasSubstr(label));
  }
  EXPECT_THAT(svg, Not(HasSubstr(">10 MiB<")));
}

// An update of one moment among 79 is still seen; the others share the rest as they are.
TEST(MemoryPicture, NamesThePhases) {
  MemoryReport report = report_with(std::vector<int64_t>(80, 1 << 20));
  report.workers[0].devices[0].phases = {{"forward", 0}, {"backward", 30}, {"update", 79}};
  const std::string svg = memory_svg({{"step", report}});
  EXPECT_THAT(svg, HasSubstr("x=\"664.0\" y=\"250.0\" text-anchor=\"middle\">update<"));
  EXPECT_THAT(svg, HasSubstr(">forward<"));
  EXPECT_THAT(svg, HasSubstr(">backward<"));
}

TEST(MemoryPicture, HasOfWhatRestsInAFileWhatIsNearAtTheTime) {
  MemoryReport report = report_with({0, 0});
  report.workers[0].shared[MemoryKind::kWindows] = 5 << 20;
  for (MemoryBytes& moment : report.workers[0].devices[0].over_time) {
    moment[MemoryKind::kWindows] = 2 << 20;
  }
  EXPECT_THAT(memory_svg({{"step", report}}), HasSubstr("step: 3.0 MiB"));
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

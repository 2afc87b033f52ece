#include <epl/memory.h>
#include <gtest/gtest.h>

namespace epl {
namespace {

FittingReport small_report() {
  FittingReport report;
  report.limit = 1 << 20;
  report.rows.resize(3);
  report.rows[0].bytes = 3 << 20;
  report.rows[1].changes = {{"memory.limit", 1 << 20}};
  report.rows[1].bytes = 1 << 20;
  report.rows[1].seconds_vs_now = 1.125;
  report.rows[1].fits = true;
  report.rows[2].changes = {{"zero.level", "v0"}, {"pipeline.num_micro_batch", 2}};
  report.rows[2].note = "rows cannot be cut";
  report.best = 1;
  return report;
}

TEST(FittingReport, IsATable) {
  EXPECT_EQ(small_report().str(),
            R"(a device may have 1.0 MiB
                                                     a device    fits    time
  as it is                                            3.0 MiB      no   x1.00
  memory.limit = 1048576                              1.0 MiB     yes   x1.12
  zero.level = "v0", pipeline.num_micro_batch = 2           -      no       -  rows cannot be cut
recommended: memory.limit = 1048576
)");
}

TEST(FittingReport, SaysThatNothingHasToChange) {
  FittingReport report = small_report();
  report.rows.resize(1);
  report.rows[0].fits = true;
  report.best = 0;
  EXPECT_EQ(report.str(), R"(a device may have 1.0 MiB
              a device    fits    time
  as it is     3.0 MiB     yes   x1.00
it fits as it is
)");
}

TEST(FittingReport, SaysThatNothingFits) {
  FittingReport report = small_report();
  report.rows[1].fits = false;
  const std::string text = report.str();
  EXPECT_NE(text.find("nothing that was tried fits; the least is 1.0 MiB: memory.limit = 1048576"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace epl

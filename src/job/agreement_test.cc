#include "job/agreement.h"

#include <gmock/gmock.h>

#include <limits>

#include "config/test_environment.h"

namespace epl {
namespace {

using testing::HasSubstr;

// What two workers hear where the second one differs in one number.
std::string error_of_reports(double StepReport::*number, double first, double second) {
  std::vector<StepReport> reports(2);
  reports[0].*number = first;
  reports[1].*number = second;
  return error_of([&] { sum_up(reports, 3); });
}

TEST(StepReports, ThatCountOtherwiseAreRefusedWithTheNumbers) {
  EXPECT_THAT(error_of_reports(&StepReport::rows, 4, 2),
              HasSubstr("in step 3 worker 1 has 2 rows for each of its devices where worker 0 has "
                        "4\n"));
  EXPECT_THAT(error_of_reports(&StepReport::loads, 0, 1),
              HasSubstr("in step 3 worker 1 has 1 calls of trainer.load() where worker 0 has 0\n"));
}

TEST(StepReports, ThatHaveOtherOptionsOrParametersAreRefused) {
  EXPECT_THAT(error_of_reports(&StepReport::options, 1, 2),
              HasSubstr("worker 1 has other options of its optimizers"));
  EXPECT_THAT(error_of_reports(&StepReport::parameters, 1, 2),
              HasSubstr("worker 1 has other parameters than worker 0"));
}

TEST(StepReports, MayDifferInWhatIsTheirOwn) {
  for (double StepReport::*number : {&StepReport::loss, &StepReport::wants_plain,
                                     &StepReport::has_recorded, &StepReport::drawn}) {
    EXPECT_EQ(error_of_reports(number, 1, 2), "no error");
  }
}

TEST(StepReports, SumUpToALossAndToWhatAllOrOneOfThemSay) {
  std::vector<StepReport> reports(3);
  for (StepReport& each : reports) each.loss = each.drawn = each.has_recorded = 1;
  reports[1].wants_plain = 1;
  StepReport all = sum_up(reports, 0);
  EXPECT_EQ(all.loss, 3);
  EXPECT_EQ(all.drawn, 3);
  EXPECT_EQ(all.wants_plain, 1);
  EXPECT_EQ(all.has_recorded, 1);
  reports[2].has_recorded = 0;
  EXPECT_EQ(sum_up(reports, 0).has_recorded, 0);
}

TEST(StepReports, OfParametersThatAreNoNumbersAgree) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(error_of_reports(&StepReport::parameters, nan, nan), "no error");
}

}  // namespace
}  // namespace epl

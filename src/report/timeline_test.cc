#include <epl/error.h>
#include <epl/timeline.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace epl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Json = nlohmann::json;
using Kind = Span::Kind;

// Two devices, 10 ms: all kinds, and bubbles before, between and behind.
Timeline small_timeline() {
  Timeline timeline;
  timeline.title = "step 12";
  timeline.seconds = 0.010;
  timeline.devices.push_back({"device 0",
                              {{Kind::kForward, 0, 0, 0, 0.001},
                               {Kind::kBackward, 0, 0, 0.003, 0.005},
                               {Kind::kWeights, 0, 0, 0.005, 0.006},
                               {Kind::kUpdate, -1, -1, 0.009, 0.010}}});
  timeline.devices.push_back({"device 1",
                              {{Kind::kCommunication, 1, 0, 0.001, 0.002},
                               {Kind::kForward, 1, 0, 0.002, 0.004},
                               {Kind::kUpdate, -1, -1, 0.009, 0.010}}});
  return timeline;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::filesystem::path folder_of_test() {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  const auto folder = std::filesystem::path(testing::TempDir()) /
                      (std::string("epl_timeline_") + test->name() + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  return folder;
}

Json written_trace(const Timeline& timeline) {
  const auto folder = folder_of_test();
  const auto path = folder / "step.json";
  timeline.write_trace(path.string());
  std::ifstream file(path);
  const Json trace = Json::parse(file);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  std::filesystem::remove_all(folder);
  return trace;
}

Json events_of(const Json& trace, const std::string& phase) {
  Json found = Json::array();
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") == phase) found.push_back(event);
  }
  return found;
}

TEST(Timeline, SharesAddUp) {
  const Timeline timeline = small_timeline();
  const Timeline::Shares first = timeline.shares(0);
  EXPECT_NEAR(first.compute, 0.4, 1e-12);
  EXPECT_NEAR(first.update, 0.1, 1e-12);
  EXPECT_NEAR(first.communication, 0, 1e-12);
  EXPECT_NEAR(first.bubble, 0.5, 1e-12);
  const Timeline::Shares all = timeline.shares();
  EXPECT_NEAR(all.compute, 0.3, 1e-12);
  EXPECT_NEAR(all.update, 0.1, 1e-12);
  EXPECT_NEAR(all.communication, 0.05, 1e-12);
  EXPECT_NEAR(all.bubble, 0.55, 1e-12);
}

TEST(Timeline, DrawsDevicesAndTheirShares) {
  const std::vector<std::string> lines = lines_of(small_timeline().str(72));
  ASSERT_EQ(lines.size(), 9u);
  EXPECT_EQ(lines[0], "step 12: 10 ms");
  EXPECT_EQ(lines[1], "  device 0  FFFFFF............BBBBBBBBBBBBWWWWWW..................UUUUUU");
  EXPECT_EQ(lines[2], "  device 1  ......~~~~~~FFFFFFFFFFFF..............................UUUUUU");
  EXPECT_EQ(lines[3], "  F forward  B backward  W weights  U update  ~ communication  . bubble");
  EXPECT_EQ(lines[4], "");
  EXPECT_EQ(lines[5], "            compute   update  communication   bubble");
  EXPECT_EQ(lines[6], "  device 0   40.0 %   10.0 %          0.0 %   50.0 %");
  EXPECT_EQ(lines[7], "  device 1   20.0 %   10.0 %         10.0 %   60.0 %");
  EXPECT_EQ(lines[8], "  all        30.0 %   10.0 %          5.0 %   55.0 %");
}

TEST(Timeline, FitsIntoItsColumns) {
  Timeline timeline = small_timeline();
  timeline.devices.front().name = std::string(200, 'x');
  for (int i = 2; i < 64; ++i) timeline.devices.push_back(timeline.devices[1]);
  for (int columns : {-1, 0, 72, 100, 200}) {
    const std::vector<std::string> lines = lines_of(timeline.str(columns));
    EXPECT_EQ(lines.size(), 1 + 64 + 3 + 64 + 1u);
    for (const std::string& line : lines) {
      EXPECT_LE(line.size(), static_cast<size_t>(std::max(columns, 72)));
    }
  }
}

TEST(Timeline, ShowsWhatTakesMostOfAColumn) {
  Timeline timeline;
  timeline.seconds = 1;
  timeline.devices.push_back({"device 0", {}});
  for (int i = 0; i < 1000; ++i) {
    timeline.devices[0].spans.push_back({Kind::kForward, 0, i, i * 1e-3, i * 1e-3 + 0.6e-3});
  }
  EXPECT_EQ(lines_of(timeline.str())[1], "  device 0  " + std::string(88, 'F'));
}

TEST(Timeline, TakesNoTimeAndNoDevices) {
  Timeline timeline;
  EXPECT_EQ(timeline.str(), ": 0 us\n");
  EXPECT_EQ(timeline.shares().bubble, 0);
  EXPECT_EQ(written_trace(timeline).at("traceEvents").size(), 1u);

  timeline = small_timeline();
  timeline.seconds = 0;
  EXPECT_EQ(timeline.str(), "step 12: 0 us\n");
  EXPECT_EQ(timeline.shares(0).compute, 0);

  timeline.seconds = 1;
  timeline.devices = {{"", {}}};
  EXPECT_EQ(timeline.shares(0).bubble, 1);
  EXPECT_THAT(timeline.str(), HasSubstr("100.0 %"));
}

TEST(Timeline, WritesATraceThatParses) {
  const Json trace = written_trace(small_timeline());
  const Json boxes = events_of(trace, "X");
  ASSERT_EQ(boxes.size(), 7u);
  EXPECT_EQ(boxes[1].at("name"), "backward 0");
  EXPECT_EQ(boxes[1].at("tid"), 0);
  EXPECT_NEAR(boxes[1].at("ts").get<double>(), 3000, 1e-6);
  EXPECT_NEAR(boxes[1].at("dur").get<double>(), 2000, 1e-6);
  EXPECT_EQ(boxes[5].at("args"), Json({{"micro batch", 0}, {"chunk", 1}}));
  EXPECT_EQ(boxes[6].at("name"), "update");
  EXPECT_EQ(boxes[6].at("args"), Json::object());

  const Json names = events_of(trace, "M");
  std::vector<std::string> texts;
  for (const Json& name : names) {
    if (name.at("args").contains("name")) texts.push_back(name.at("args").at("name"));
  }
  EXPECT_THAT(texts, ElementsAre("step 12", "device 0", "device 1"));
}

TEST(Timeline, EscapesNamesInATrace) {
  Timeline timeline = small_timeline();
  timeline.title = "a \"quoted\" \\ title\nof two lines";
  timeline.devices[0].name = "not UTF-8: \xff";
  const Json names = events_of(written_trace(timeline), "M");
  EXPECT_EQ(names[0].at("args").at("name"), timeline.title);
  EXPECT_EQ(names[1].at("args").at("name"), "not UTF-8: \xef\xbf\xbd");
}

TEST(Timeline, SaysWhereATraceCannotBeWritten) {
  const std::string path = "/nowhere/at/all/step.json";
  try {
    small_timeline().write_trace(path);
    FAIL() << "written";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot write " + path + ": No such file or directory"));
  }
}

TEST(Timeline, LeavesNothingBehindWhereATraceCannotGetItsName) {
  const auto folder = folder_of_test();
  const auto path = folder / "step.json";
  std::filesystem::create_directories(path / "in the way");
  EXPECT_THROW(small_timeline().write_trace(path.string()), Error);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace epl

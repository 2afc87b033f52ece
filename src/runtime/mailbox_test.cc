#include "runtime/mailbox.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/check.h"

namespace epl {
namespace {

using std::chrono::milliseconds;

Letter letter(int number) { return {{at::full({2}, number)}, {}}; }
int number_in(const Letter& letter) { return letter.tensors[0][1].item<int>(); }
std::string nothing() { return "a letter"; }

TEST(Mailbox, KeepsLettersUntilTheyAreAskedForInAnyOrder) {
  Watch watch;
  Mailbox box(watch, milliseconds(10000), 2);
  for (int i = 0; i < 5; ++i) box.post({0, i, 0, 1}, letter(i));
  for (int i = 4; i >= 0; --i) {
    EXPECT_EQ(number_in(box.take(
                  {0, i, 0, 1}, [] {}, nothing)),
              i);
  }
}

TEST(Mailbox, TellsLettersApartByTransferMicroBatchAndDevices) {
  Watch watch;
  Mailbox box(watch, milliseconds(10000), 2);
  const std::vector<LetterKey> keys = {
      {0, 0, 0, 0}, {1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}};
  for (size_t i = 0; i < keys.size(); ++i) box.post(keys[i], letter(static_cast<int>(i)));
  for (size_t i = keys.size(); i-- > 0;) {
    EXPECT_EQ(number_in(box.take(
                  keys[i], [] {}, nothing)),
              static_cast<int>(i));
  }
}

// Two that send to each other and to themselves, each waiting for what it does not have yet.
TEST(Mailbox, WaitsForLettersFromOtherThreads) {
  constexpr int kLetters = 200;
  Watch watch;
  Mailbox box(watch, milliseconds(60000), 2);
  int sums[2] = {};
  const auto run = [&](int me) {
    for (int i = 0; i < kLetters; ++i) {
      box.post({0, i, me, 1 - me}, letter(i));
      box.post({1, i, me, me}, letter(i));
      sums[me] += number_in(box.take(
          {0, i, 1 - me, me}, [] {}, nothing));
      sums[me] += number_in(box.take(
          {1, i, me, me}, [] {}, nothing));
    }
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  EXPECT_EQ(sums[0], kLetters * (kLetters - 1));
  EXPECT_EQ(sums[1], kLetters * (kLetters - 1));
}

TEST(Mailbox, NamesTheLetterThatDoesNotCome) {
  Watch watch;
  Mailbox box(watch, milliseconds(30), 1);
  try {
    box.take(
        {0, 3, 1, 0}, [] {}, [] { return std::string("forward 0 to forward 1"); });
    FAIL();
  } catch (const JobFailed& failed) {
    EXPECT_NE(std::string(failed.what()).find("forward 0 to forward 1 did not come"),
              std::string::npos)
        << failed.what();
  }
}

TEST(Mailbox, LetsAWaitBeGivenUp) {
  Watch watch;
  Mailbox box(watch, milliseconds(60000), 1);
  struct GivenUp {};
  EXPECT_THROW(box.take(
                   {}, [] { throw GivenUp(); }, nothing),
               GivenUp);
}

TEST(Mailbox, EndsWaitsWhenTheJobFails) {
  Watch watch;
  Mailbox box(watch, milliseconds(60000), 1);
  std::thread other([&] { watch.fail(JobFailed("worker 1 is gone")); });
  EXPECT_THROW(box.take(
                   {}, [] {}, nothing),
               JobFailed);
  other.join();
}

TEST(Mailbox, ForgetsWhatAStepThatFailedHasLeft) {
  Watch watch;
  Mailbox box(watch, milliseconds(10000), 1);
  box.post({0, 0, 0, 0}, letter(1));
  box.clear();
  box.post({0, 0, 0, 0}, letter(2));
  EXPECT_EQ(number_in(box.take(
                {0, 0, 0, 0}, [] {}, nothing)),
            2);
}

TEST(Mailbox, TakesNoLetterTwice) {
  Watch watch;
  Mailbox box(watch, milliseconds(10000), 1);
  box.post({0, 0, 0, 0}, letter(1));
  EXPECT_THROW(box.post({0, 0, 0, 0}, letter(2)), InternalError);
}

}  // namespace
}  // namespace epl

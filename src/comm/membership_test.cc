#include "comm/membership.h"

#include <filesystem>
#include <iterator>

#include "base/text.h"
#include "comm/test_workers.h"

namespace epl::comm {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

std::string join_and_exchange(const JoinRequest& request) {
  const std::unique_ptr<Membership> membership = join_job(request);
  const std::vector<std::string> texts =
      membership->exchange("greeting", concat("hello from ", membership->index()));
  return concat(membership->workers().size(), " workers, pid ",
                membership->workers()[static_cast<size_t>(membership->index())].pid == getpid(),
                ": ", join(texts, ", "));
}

TEST(Membership, BringsOneToFourWorkersTogether) {
  const std::vector<std::string> expected = {
      "1 workers, pid 1: hello from 0", "2 workers, pid 1: hello from 0, hello from 1",
      "3 workers, pid 1: hello from 0, hello from 1, hello from 2",
      "4 workers, pid 1: hello from 0, hello from 1, hello from 2, hello from 3"};
  for (int size = 1; size <= 4; ++size) {
    const int port = free_port();
    TestWorkers workers;
    for (int index = size - 1; index >= 0; --index) {
      workers.start(
          [&](const Say& say) { say(join_and_exchange(request_for(index, size, port))); });
    }
    for (int index = 0; index < size; ++index) {
      EXPECT_EQ(workers.words_of(static_cast<size_t>(index)),
                expected[static_cast<size_t>(size - 1)]);
    }
  }
}

TEST(Membership, GivesWorkersOfOneHostTheSameKey) {
  const int port = free_port();
  TestWorkers workers;
  for (int index = 0; index < 2; ++index) {
    workers.start([&](const Say& say) {
      JoinRequest request = request_for(index, 2, port);
      request.devices = 3 + index;
      const auto membership = join_job(request);
      const auto& infos = membership->workers();
      say(concat(infos[0].host_key == infos[1].host_key, " ", infos[0].devices, infos[1].devices));
    });
  }
  EXPECT_EQ(workers.words_of(0), "1 34");
  EXPECT_EQ(workers.words_of(1), "1 34");
}

TEST(Membership, NamesTheWorkersThatDidNotCome) {
  const int port = free_port();
  TestWorkers workers;
  for (int index = 0; index < 2; ++index) {
    workers.start([&](const Say&) {
      JoinRequest request = request_for(index, 4, port);
      request.patience = milliseconds(700);
      join_job(request);
    });
  }
  for (size_t index = 0; index < 2; ++index) {
    EXPECT_THAT(workers.words_of(index),
                HasSubstr(concat("workers 2 and 3 of 4 did not come within 0.7 s; worker 0 listens "
                                 "at 127.0.0.1:",
                                 port)));
  }
}

TEST(Membership, RefusesTheSameIndexTwice) {
  const int port = free_port();
  TestWorkers workers;
  for (const int index : {0, 1, 1}) {
    workers.start([&, index](const Say&) { join_job(request_for(index, 3, port)); });
  }
  for (size_t process = 0; process < 3; ++process) {
    const std::string words = workers.words_of(process);
    EXPECT_THAT(words, HasSubstr("two workers have the index 1"));
    EXPECT_THAT(words, HasSubstr(concat("pid ", workers.pid_of(1))));
    EXPECT_THAT(words, HasSubstr(concat("pid ", workers.pid_of(2))));
  }
}

TEST(Membership, RefusesAnotherNumberOfWorkers) {
  const int port = free_port();
  TestWorkers workers;
  workers.start([&](const Say&) { join_job(request_for(0, 3, port)); });
  workers.start([&](const Say&) { join_job(request_for(1, 2, port)); });
  for (size_t process = 0; process < 2; ++process) {
    EXPECT_THAT(workers.words_of(process),
                HasSubstr(concat("worker 1 (pid ", workers.pid_of(1), " on host ")));
    EXPECT_THAT(workers.words_of(process),
                HasSubstr(concat("came for a job of 2 workers, worker 0 (127.0.0.1:", port,
                                 ") serves one of 3")));
  }
}

TEST(Membership, NamesThePortThatIsTaken) {
  const int port = free_port();
  const Descriptor taken = listen_at("127.0.0.1", port);
  try {
    join_job(request_for(0, 2, port));
    FAIL() << "joined at a port that is taken";
  } catch (const JobFailed& error) {
    EXPECT_THAT(error.what(), HasSubstr(concat("port ", port, " of this host is taken")));
  }
}

TEST(Membership, NamesThePlaceThatCannotBeReached) {
  const int port = free_port();
  JoinRequest request = request_for(1, 2, port);
  request.patience = milliseconds(200);
  try {
    join_job(request);
    FAIL() << "joined nobody";
  } catch (const JobFailed& error) {
    EXPECT_THAT(error.what(), HasSubstr(concat("worker 1 cannot reach worker 0 at 127.0.0.1:", port,
                                               " within 0.2 s: Connection refused")));
  }
}

TEST(Membership, NoticesThatSomethingElseListens) {
  const int port = free_port();
  const Descriptor listener = listen_at("127.0.0.1", port);
  TestWorkers workers;
  workers.start([&](const Say&) { join_job(request_for(1, 2, port)); });
  pollfd waited{listener.get(), POLLIN, 0};
  ASSERT_EQ(poll(&waited, 1, 10000), 1);
  const Descriptor connection = accept_connection(listener);
  const std::string answer = "HTTP/1.1 400 Bad Request\r\n\r\n";
  ASSERT_EQ(write(connection.get(), answer.data(), answer.size()),
            static_cast<ssize_t>(answer.size()));
  EXPECT_THAT(workers.words_of(0), HasSubstr(concat("what listens at 127.0.0.1:", port)));
}

TEST(Membership, IsNotDisturbedByStrangersAndLatecomers) {
  const int port = free_port();
  TestWorkers workers;
  for (int index = 0; index < 2; ++index) {
    workers.start([&](const Say& say) {
      const auto membership = join_job(request_for(index, 2, port));
      say("joined ");
      // The newcomer and the stranger come and go while the two wait for the parent's signal.
      sigset_t awaited;
      sigemptyset(&awaited);
      sigaddset(&awaited, SIGUSR1);
      sigprocmask(SIG_BLOCK, &awaited, nullptr);
      say("waiting ");
      int signal = 0;
      sigwait(&awaited, &signal);
      say(join(membership->exchange("late", "x"), ""));
    });
  }
  workers.await(0, "waiting");
  workers.await(1, "waiting");
  {
    const Connection stranger = try_connect("127.0.0.1", port, milliseconds(1000));
    const std::string noise(100, '\xff');
    ASSERT_GT(write(stranger.descriptor.get(), noise.data(), noise.size()), 0);
  }
  workers.start([&](const Say&) { join_job(request_for(1, 2, port)); });
  EXPECT_THAT(workers.words_of(2), HasSubstr("two workers have the index 1"));
  workers.send_signal(0, SIGUSR1);
  workers.send_signal(1, SIGUSR1);
  EXPECT_EQ(workers.words_of(0), "joined waiting xx");
  EXPECT_EQ(workers.words_of(1), "joined waiting xx");
}

TEST(Membership, NamesThoseWhoDidNotComeToAnExchange) {
  const int port = free_port();
  TestWorkers workers;
  for (int index = 0; index < 3; ++index) {
    workers.start([&](const Say&) {
      JoinRequest request = request_for(index, 3, port);
      if (index == 0) request.deadline = milliseconds(300);
      const auto membership = join_job(request);
      if (index == 1) wait_for_ever(membership->watch());
      membership->exchange("plans", "mine");
    });
  }
  const std::string expected = "worker 1 did not come to an exchange (exchange plans)";
  EXPECT_THAT(workers.words_of(0), HasSubstr(expected));
  EXPECT_THAT(workers.words_of(1), HasSubstr(expected));
  EXPECT_THAT(workers.words_of(2), HasSubstr(expected));
}

std::string census() {
  const auto count = [](const char* folder) {
    const std::filesystem::directory_iterator entries(folder);
    return std::distance(begin(entries), end(entries));
  };
  return concat(count("/proc/self/fd"), " descriptors, ", count("/proc/self/task"), " threads");
}

TEST(Membership, LeavesNoThreadAndNoDescriptorBehind) {
  const int port = free_port();
  TestWorkers workers;
  for (int index = 0; index < 2; ++index) {
    workers.start([&](const Say& say) {
      const std::string before = census();
      join_job(request_for(index, 2, port));
      const std::string after = census();
      say(before == after ? "clean" : concat(before, " -> ", after));
    });
  }
  EXPECT_EQ(workers.words_of(0), "clean");
  EXPECT_EQ(workers.words_of(1), "clean");
}

TEST(Membership, RefusesRequestsThatCannotBe) {
  EXPECT_THROW(join_job(request_for(2, 2, 1234)), Error);
  EXPECT_THROW(join_job(request_for(-1, 2, 1234)), Error);
  EXPECT_THROW(join_job(request_for(0, 0, 1234)), Error);
  EXPECT_THROW(join_job(request_for(0, 2, 0)), Error);
  EXPECT_NO_THROW(join_job(request_for(0, 1, 0)));
}

}  // namespace
}  // namespace epl::comm

#include "tools/terminal/interrupt.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace osprey {
namespace {

TEST(InterruptTest, ASignalThatIsHeldComesAtTheEnd) {
  const CatchInterrupts catching;
  {
    const HoldInterrupts hold;
    raise(SIGINT);
    EXPECT_FALSE(Interrupted());
  }
  EXPECT_TRUE(Interrupted());
  ForgetInterrupt();
}

// A write that waits for room in the pipe, and a signal meanwhile.
TEST(InterruptTest, AStreamIsNotBrokenByASignalThatIsHeld) {
  const CatchInterrupts catching;
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
  const std::string some(4096, 'x');
  size_t bytes = 0;
  for (ssize_t count; (count = write(ends[1], some.data(), some.size())) > 0;)
    bytes += static_cast<size_t>(count);
  for (const int end : ends) ASSERT_EQ(fcntl(end, F_SETFL, 0), 0);

  FILE* const stream = fdopen(ends[1], "w");
  const pthread_t writer = pthread_self();
  size_t received = 0;
  std::thread reader([&] {
    absl::SleepFor(absl::Milliseconds(100));
    pthread_kill(writer, SIGINT);
    absl::SleepFor(absl::Milliseconds(100));
    std::string buffer(65536, '\0');
    for (ssize_t count; (count = read(ends[0], buffer.data(), buffer.size())) > 0;)
      received += static_cast<size_t>(count);
  });
  {
    const HoldInterrupts hold;
    EXPECT_EQ(fwrite(some.data(), 1, some.size(), stream), some.size());
    EXPECT_EQ(fflush(stream), 0);
  }
  EXPECT_TRUE(Interrupted());
  ForgetInterrupt();
  fclose(stream);
  reader.join();
  close(ends[0]);
  EXPECT_EQ(received, bytes + some.size());
}

}  // namespace
}  // namespace osprey

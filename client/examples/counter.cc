// counter SERVER NAME THREADS TIMES: each thread increments one counter so many times. Prints the counter.
//
// An increment is one message, applied once: threads, processes and machines count together without a lock.

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "client/pool.h"

int main(int argc, char** argv) {
  const int threads = argc == 5 ? std::atoi(argv[3]) : 0,
            times = argc == 5 ? std::atoi(argv[4]) : 0;
  if (threads < 1 || threads > 64 || times < 1) {
    return std::fprintf(
               stderr,
               "usage: counter SERVER NAME THREADS TIMES, THREADS from 1 to 64, TIMES from 1\n"),
           2;
  }
  auto pool = osprey::ClientPool::Create(argv[1]);
  if (!pool.ok()) return std::fprintf(stderr, "%s\n", pool.status().ToString().c_str()), 1;

  std::atomic<int> uncounted{0};
  std::vector<std::thread> running;
  for (int t = 0; t < threads; ++t) {
    running.emplace_back([&] {
      auto lane = (*pool)->Take();  // a Client for this thread
      absl::Status status = lane.status();
      for (int i = 0; i < times && status.ok(); ++i) status = (*lane)->Increment(argv[2]).status();
      if (status.ok()) return;
      std::fprintf(stderr, "%s\n", status.ToString().c_str());
      ++uncounted;
    });
  }
  for (std::thread& thread : running) thread.join();
  if (uncounted > 0) return 1;

  auto lane = (*pool)->Take();
  if (!lane.ok()) return std::fprintf(stderr, "%s\n", lane.status().ToString().c_str()), 1;
  auto total = (*lane)->Increment(argv[2], 0);
  if (!total.ok()) return std::fprintf(stderr, "%s\n", total.status().ToString().c_str()), 1;
  return std::printf("%lld\n", static_cast<long long>(total->value)) < 0 ? 1 : 0;
}

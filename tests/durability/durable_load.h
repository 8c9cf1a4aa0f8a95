// Clients that use the same few keys in every way, on threads of their own, while their server is
// killed and restarted. It may be a cluster with faults. They record what they were answered.
//
//   DurableLoad load(uri, options);   connects
//   … load.done() …                   operations that have ended
//   load.End();                       reads every key once more
//   JudgeDurable(load.TakeHistories(), …)
//
// Thread rule: one thread.

#ifndef OSPREY_TESTS_DURABILITY_DURABLE_LOAD_H_
#define OSPREY_TESTS_DURABILITY_DURABLE_LOAD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "client/client.h"
#include "tests/durability/durable_history.h"

namespace osprey {

struct DurableLoadOptions {
  int clients = 3;                              // each has a thread
  int operations = 6;                           // that each client has in flight
  absl::Duration deadline = absl::Seconds(60);  // longer than any restart
  uint64_t seed = 1;
  size_t value_bytes_max = 3'000'000;
  // The server is a cluster: `uri` has several addresses, and writes are refused at times.
  bool in_cluster = false;
};

class DurableLoad {
 public:
  // Connects; a client that cannot records that as an error.
  DurableLoad(const std::string& uri, const DurableLoadOptions& options);
  // Ends the threads.
  ~DurableLoad();

  // Operations that have been answered so far.
  uint64_t done() const;
  // The longest time so far in which no write was answered.
  absl::Duration longest_pause() const;
  // Operations end, and every key is read once more.
  void End();

  // REQUIRES: after End.
  DurableHistories TakeHistories();
  // The sum of all clients'.
  Counters counters() const;
  // What went wrong other than in a history: damaged values, and errors that no operation may have.
  std::vector<std::string> TakeErrors();

 private:
  struct Shared;
  class Writer;

  std::unique_ptr<Shared> shared_;
  std::vector<std::unique_ptr<Writer>> writers_;
  std::vector<std::thread> threads_;
};

// NowNs of the steady clock, the time of all histories.
int64_t SteadyNs();

}  // namespace osprey

#endif  // OSPREY_TESTS_DURABILITY_DURABLE_LOAD_H_

// What kvserver was asked to do: its flags, checked as a whole before anything is allocated.

#ifndef OSPREY_SERVER_CONFIG_H_
#define OSPREY_SERVER_CONFIG_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rdma/address.h"
#include "rdma/authentication.h"
#include "server/http_address.h"

namespace osprey::server {

// How the server waits for work.
enum class PollMode {
  kBusy,      // never sleeps: the lowest latency of writes, one core
  kAdaptive,  // spins for kSpin after work, then sleeps until there is some
  kEvent,     // sleeps whenever there is none
};
absl::string_view NameOf(PollMode mode);

// What becomes of a write when memory is full.
enum class EvictMode {
  kNone,   // it is refused, and all that is stored stays
  kClock,  // cold keys make room for it
};
absl::string_view NameOf(EvictMode mode);

// A client that writes one value after the other is back within a round trip (some 10 us, 100 in
// the lab's virtual machine): going to sleep between would cost it a wake-up each time, 5 to 50 us.
// Longer spinning buys little and heats.
inline constexpr absl::Duration kSpin() { return absl::Microseconds(100); }

// Each connection costs receives, a queue pair and a session: some 300 KiB.
inline constexpr int64_t kConnectionsMaxMost = 65536;
inline constexpr uint64_t kValueBytesMaxLeast = 1024;

// The flags as they were written.
struct FlagValues {
  std::string listen;
  std::string memory;
  std::string poll;
  int64_t connections_max = 0;
  std::string value_max;  // empty: the longest that the index takes, or the memory
  bool huge_pages = false;
  std::string evict;
  int64_t connections_per_address_max = 0;
  std::string auth_key_file = "";  // empty: no authentication
  std::string socket_mode = "0600";
  int64_t pollers = 1;
  std::string metrics = "";  // empty: none
};

struct Config {
  std::vector<rdma::Address> listen;  // at least one, no two alike
  uint64_t memory_bytes = 0;
  PollMode poll = PollMode::kAdaptive;
  size_t connections_max = 0;
  uint64_t value_bytes_max = 0;
  bool huge_pages = false;
  EvictMode evict = EvictMode::kNone;
  size_t connections_per_address_max = 0;  // 0: no bound
  rdma::AuthKey::Pointer auth_key;         // null: no authentication
  mode_t socket_mode = 0600;
  uint32_t pollers = 1;
  uint32_t partitions = 1;  // of the memory: PartitionsFor(pollers)
  std::optional<HttpAddress> metrics;
};

// Reads the key's file; else a function of the flags. Errors: one line: the flag, what is wrong,
// and what to write instead; INVALID_ARGUMENT, or AuthKey::FromFile's.
absl::StatusOr<Config> MakeConfig(const FlagValues& flags);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CONFIG_H_

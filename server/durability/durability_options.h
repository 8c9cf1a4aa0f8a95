// How a server uses its data directory.

#ifndef OSPREY_SERVER_DURABILITY_DURABILITY_OPTIONS_H_
#define OSPREY_SERVER_DURABILITY_DURABILITY_OPTIONS_H_

#include <cstdint>
#include <functional>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/durability/durability_mode.h"

namespace osprey::server {

struct DurabilityOptions {
  DurabilityMode mode = DurabilityMode::kAsync;
  absl::Duration lag = absl::Milliseconds(100);
  uint64_t log_memory = 64 << 20;  // of changes that are not written yet
  // A checkpoint is due when the log since the last one has so many bytes, and as many as the data.
  uint64_t checkpoint_log_bytes = uint64_t{2} << 30;
  uint64_t segment_bytes = 256 << 20;
  // The clock may have gone back by so much since the last life.
  absl::Duration clock_jump_max = absl::Hours(24);
  std::function<uint64_t()> random;  // 64 random bits, not 0; any thread
  // Log lines for people; any thread.
  std::function<void(absl::string_view)> log;
  // For simulations in one thread, else empty. Then no thread is started: the caller calls
  // Durability::RunDuties and Log::Sync, and this is called between the steps of a checkpoint.
  std::function<void()> checkpoint_step;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_DURABILITY_DURABILITY_OPTIONS_H_

// When a write is acknowledged by a server with a data directory.

#ifndef OSPREY_SERVER_DURABILITY_DURABILITY_MODE_H_
#define OSPREY_SERVER_DURABILITY_DURABILITY_MODE_H_

#include "absl/strings/string_view.h"

namespace osprey::server {

enum class DurabilityMode {
  kAsync,  // once it is written: a crash of the machine loses the last --durability-lag at most
  kSync,   // once it is synced
};

constexpr absl::string_view NameOf(DurabilityMode mode) {
  return mode == DurabilityMode::kSync ? "sync" : "async";
}

}  // namespace osprey::server

#endif  // OSPREY_SERVER_DURABILITY_DURABILITY_MODE_H_

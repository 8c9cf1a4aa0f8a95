// Opens and loads the data directory of a server (--data-dir), and reports how far it is.

#ifndef OSPREY_SERVER_DATA_H_
#define OSPREY_SERVER_DATA_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/config/config.h"
#include "server/durability/durability.h"
#include "server/requests/tables.h"

namespace osprey::server {

// Opens the directory of config.data_dir, or creates it, and adapts `config` to what it holds: the
// number of partitions, and the longest value. `random` and `log`: as DurabilityOptions. Errors:
// those of Durability::Open; INVALID_ARGUMENT (--memory is too small for its partitions).
absl::StatusOr<std::unique_ptr<Durability>> OpenData(Config& config,
                                                     std::function<uint64_t()> random,
                                                     std::function<void(absl::string_view)> log);

// Loads the tables. Progress goes to stderr, as a line that is rewritten where that is a terminal,
// and to the service manager. It ends soon once `stop` is true. Errors: those of Durability::Load.
absl::StatusOr<std::vector<SessionImage>> LoadData(const Config& config, Durability& durability,
                                                   Tables& tables, const std::atomic<bool>& stop);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_DATA_H_

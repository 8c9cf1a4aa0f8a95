// A server from its configuration to its end: memory, transports, engine, and the main loop.

#ifndef OSPREY_SERVER_SERVE_H_
#define OSPREY_SERVER_SERVE_H_

#include "absl/status/status.h"
#include "server/config/config.h"

namespace osprey::server {

enum class ServeExit {
  kClean = 0,
  kCannotListen = 3,  // no device, address in use, not an address of this machine …
  kFailed = 4,        // any other failure: not enough memory, the device went away …
};

struct ServeResult {
  ServeExit exit = ServeExit::kClean;
  absl::Status status;  // the reason, unless kClean
};

// Serves until SIGTERM or SIGINT. Prints "ready URI", a line for each address, on stdout once all
// of them accept clients. The log goes to stderr. It handles these two signals, and ignores
// SIGPIPE, for the rest of the process. Thread rule: once in a process, on its only thread.
ServeResult Serve(Config config);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_SERVE_H_

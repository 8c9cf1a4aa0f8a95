// What the server tells by HTTP (--metrics): metrics, health, the status page.

#ifndef OSPREY_SERVER_HTTP_PAGES_H_
#define OSPREY_SERVER_HTTP_PAGES_H_

#include <functional>

#include "absl/status/status.h"
#include "server/clock.h"
#include "server/config/config.h"
#include "server/server_parts.h"

namespace osprey::server {

// Opens Server::metrics, which answers from then on, if there is --metrics. `health` is called on its
// thread: not OK with the reason if the server does not work. All arguments outlive it. Errors: as
// HttpServer::Open, with the flag.
absl::Status OpenMetrics(const Config& config, const Clock& clock,
                         std::function<absl::Status()> health, Server& server);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_HTTP_PAGES_H_

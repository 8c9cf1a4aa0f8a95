// What the server tells by HTTP (--metrics): metrics, health, the status page.

#ifndef OSPREY_SERVER_HTTP_PAGES_H_
#define OSPREY_SERVER_HTTP_PAGES_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/config/config.h"
#include "server/server_parts.h"

namespace osprey::server {

// Opens Server::metrics, which answers from then on, if there is --metrics. `uris`: for clients. `health` is called on its
// thread: not OK with the reason if the server does not work. `config` and `server` outlive it. Errors: as
// HttpServer::Open, with the flag.
absl::Status OpenMetrics(const Config& config, const std::vector<std::string>& uris,
                         std::function<absl::Status()> health, Server& server);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_HTTP_PAGES_H_

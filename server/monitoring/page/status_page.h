// The status page, as HTML and as JSON. Its files are page.html and those beside it, which the build
// embeds (status_files.h).
//
//   page.html  <- section.html  <- row.html      status.css
//              <- use.html (a part of the bar)   status.js  <- /status.json, each 2 s
//
// Each text of the state is escaped, since a name may be anything. The page loads nothing from elsewhere,
// and its Content-Security-Policy forbids it.
//
// Thread rule: plain functions.

#ifndef OSPREY_SERVER_MONITORING_PAGE_STATUS_PAGE_H_
#define OSPREY_SERVER_MONITORING_PAGE_STATUS_PAGE_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "server/monitoring/http_server.h"
#include "server/monitoring/page/status_state.h"

namespace osprey::server {

// Of "/": the state is in it, so it needs no JavaScript.
HttpPage StatusPage(const StatusInput& input);
// Of "/status.json": the same rows, and the counts of which the page draws its charts.
HttpPage StatusJson(const StatusInput& input);
// Of the page's other files, by path. Nothing: there is none of that path.
std::optional<HttpPage> StatusFile(absl::string_view path);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_MONITORING_PAGE_STATUS_PAGE_H_

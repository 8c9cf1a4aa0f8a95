// A small HTTP server, for programs that ask how the server is: GET and HEAD, one request a
// connection, no uploads, no files. One thread, which waits for all connections at once and never
// for one of them: a peer that is slow or silent delays no other.
//
//   accepted ──> reading ──> answering ──> writing ──> draining ──> closed
//                   whole request   in the        all sent,    the peer closes
//                                   same turn     half closed
//
// Each connection is closed when its time is over, whatever it does. When there are as many as may
// be, in all or from one address, the newest wins and the oldest is closed: so idle connections
// shut out no probe that sends its request at once.
//
// This is not a library because those of the distribution refuse the newest connection at their
// limits: CivetWeb waits for one of its threads, libmicrohttpd closes what it accepts. Either lets
// idle connections shut out a probe.

#ifndef OSPREY_SERVER_MONITORING_HTTP_SERVER_H_
#define OSPREY_SERVER_MONITORING_HTTP_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/monitoring/http_address.h"

namespace osprey::server {

struct HttpPage {
  int status = 200;  // 200, 404, 503
  std::string content_type = "text/plain; charset=utf-8";
  std::string headers;  // more of them: lines that end in CR LF
  std::string body;
};

struct HttpLimits {
  size_t connections_max = 256;
  size_t connections_per_address_max = 128;
  absl::Duration connection_time_max = absl::Seconds(5);  // from its acceptance on
};

// Its thread ends with it.
class HttpServer {
 public:
  // Answers GET and HEAD of a path, without a query. Called by the thread of the HttpServer.
  // Requests for a path that are read in one turn share one answer, made after all of them have
  // come.
  using Answer = std::function<HttpPage(absl::string_view path)>;

  // Errors: UNAVAILABLE: it cannot listen there, and why; RESOURCE_EXHAUSTED: no thread, or no
  // descriptor, and what to do.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Open(const HttpAddress& address, Answer answer,
                                                          const HttpLimits& limits = {});
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // With the port that was found.
  const HttpAddress& address() const { return address_; }

 private:
  class Loop;
  HttpServer(HttpAddress address, std::unique_ptr<Loop> loop);

  HttpAddress address_;
  const std::unique_ptr<Loop> loop_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_MONITORING_HTTP_SERVER_H_

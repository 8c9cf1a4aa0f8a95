// A small HTTP door, for programs that ask how the server is. What comes through it cannot take
// much: a few threads, requests of some KiB, a few seconds for each, no uploads, no files.

#ifndef OSPREY_SERVER_HTTP_DOOR_H_
#define OSPREY_SERVER_HTTP_DOOR_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/http_address.h"

struct mg_context;

namespace osprey::server {

struct HttpPage {
  int status = 200;  // 200, 404, 503
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// Its threads end with it.
class HttpDoor {
 public:
  // Answers GET and HEAD of a path, without a query. Called by several threads.
  using Answer = std::function<HttpPage(absl::string_view path)>;

  // Errors: UNAVAILABLE: it cannot listen there, and why; RESOURCE_EXHAUSTED: no thread accepts,
  // and what to mend.
  static absl::StatusOr<std::unique_ptr<HttpDoor>> Open(const HttpAddress& address, Answer answer);
  ~HttpDoor();
  HttpDoor(const HttpDoor&) = delete;
  HttpDoor& operator=(const HttpDoor&) = delete;

  // With the port that was found.
  const HttpAddress& address() const { return address_; }

 private:
  HttpDoor(HttpAddress address, Answer answer)
      : address_(std::move(address)), answer_(std::move(answer)) {}

  HttpAddress address_;
  const Answer answer_;
  std::string said_;  // by the library, of why it does not start
  std::atomic<bool> started_{false};
  std::atomic<bool> accepts_{false};  // there is a thread that does
  mg_context* context_ = nullptr;

  friend struct HttpDoorCallbacks;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_HTTP_DOOR_H_

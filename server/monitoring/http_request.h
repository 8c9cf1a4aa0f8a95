// Requests of HTTP/1, as far as the metrics need them: GET and HEAD of a path, one a connection.
//
//   GET /healthz?verbose HTTP/1.1 CR LF
//   Host: 127.0.0.1:9100          CR LF      no more than kHttpHeadersMax of these, all ignored
//                                 CR LF
//
// All of it comes from any peer: it is bounded, and judged whole before any of it is used.
//
// Thread rule: plain functions.

#ifndef OSPREY_SERVER_MONITORING_HTTP_REQUEST_H_
#define OSPREY_SERVER_MONITORING_HTTP_REQUEST_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace osprey::server {

inline constexpr size_t kHttpRequestBytesMax = 8 << 10;
inline constexpr size_t kHttpMethodBytesMax = 16;
inline constexpr size_t kHttpTargetBytesMax = 1 << 10;
inline constexpr size_t kHttpHeadersMax = 64;

struct HttpRequest {
  // 0: more bytes are to come; 200: it is whole; else the status that refuses it.
  int status = 0;
  bool is_head = false;
  std::string path;  // without the query
};

// The request that `bytes` begin with; what follows it is ignored. In the first `searched` of them
// no request ended.
HttpRequest ParseHttpRequest(absl::string_view bytes, size_t searched = 0);

// "Not Found" of 404; "Error" of one that is never answered here.
absl::string_view HttpReason(int status);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_MONITORING_HTTP_REQUEST_H_

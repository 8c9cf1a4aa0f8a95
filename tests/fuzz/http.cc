// What any peer sends to the HTTP server of the metrics. However the bytes come, they are the same
// request; what is taken keeps to its bounds, and written again it is taken again and is the same.

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/monitoring/http_request.h"
#include "tests/fuzz/support/input.h"

namespace osprey::server {
namespace {

constexpr char kBegin[] = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n";

bool Same(const HttpRequest& a, const HttpRequest& b) {
  return a.status == b.status && a.is_head == b.is_head && a.path == b.path;
}

void MustBeRequest(const HttpRequest& request, size_t bytes) {
  switch (request.status) {
    case 0:
      OSPREY_MUST(bytes < kHttpRequestBytesMax, "a request that never ends");
      break;
    case 200:
      break;
    case 400:
    case 405:
    case 414:
    case 431:
    case 505:
      OSPREY_MUST(HttpReason(request.status) != "Error", "a status without a reason");
      break;
    default:
      OSPREY_MUST(false, "a status of no kind");
  }
  if (request.status != 200) return;
  OSPREY_MUST(absl::StartsWith(request.path, "/") && request.path.size() <= kHttpTargetBytesMax,
              "a path that is none");
  OSPREY_MUST(std::all_of(request.path.begin(), request.path.end(),
                          [](char c) { return c > ' ' && c < 0x7F && c != '?'; }),
              "a path that is no text");
  const HttpRequest again = ParseHttpRequest(
      absl::StrCat(request.is_head ? "HEAD " : "GET ", request.path, " HTTP/1.1\r\n\r\n"));
  OSPREY_MUST(Same(again, request), "a request that is another one when written again");
}

// As a connection reads it: the first pieces with which it is no longer incomplete.
HttpRequest InPieces(absl::string_view text, size_t piece) {
  HttpRequest request;
  for (size_t at = 0; at < text.size() && request.status == 0; at += piece)
    request = ParseHttpRequest(text.substr(0, at + piece), at);
  return request;
}

}  // namespace
}  // namespace osprey::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  osprey::fuzz::Input input(data, size);
  const size_t piece = input.Choice(64) + 1;
  std::string text = input.Flag() ? osprey::server::kBegin : "";
  text += input.Rest();
  if (piece == 1) text.append(osprey::server::kHttpRequestBytesMax, 'x');
  const osprey::server::HttpRequest whole = osprey::server::ParseHttpRequest(text);
  osprey::server::MustBeRequest(whole, text.size());
  const osprey::server::HttpRequest pieces = osprey::server::InPieces(text, piece);
  osprey::server::MustBeRequest(pieces, text.size());
  OSPREY_MUST(osprey::server::Same(whole, pieces), "another request in pieces");
  return 0;
}

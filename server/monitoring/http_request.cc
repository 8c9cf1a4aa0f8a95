#include "server/monitoring/http_request.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace osprey::server {
namespace {

constexpr absl::string_view kLineEnd = "\r\n";
constexpr absl::string_view kHeadEnd = "\r\n\r\n";

bool IsTokenCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         absl::string_view("!#$%&'*+-.^_`|~").find(c) != absl::string_view::npos;
}

bool IsToken(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), IsTokenCharacter);
}

bool IsVisible(char c) { return c > ' ' && c < 0x7F; }

// What stands before `end`, which is taken away with it; all of `text` if there is no `end`.
absl::string_view TakeUntil(absl::string_view end, absl::string_view& text) {
  const size_t at = text.find(end);
  const absl::string_view taken = text.substr(0, at);
  text.remove_prefix(at == absl::string_view::npos ? text.size() : at + end.size());
  return taken;
}

// name: value. A line that goes on the one before it has no name, and is none.
bool IsHeader(absl::string_view line) {
  const size_t colon = line.find(':');
  if (colon == absl::string_view::npos || !IsToken(line.substr(0, colon))) return false;
  const absl::string_view value = line.substr(colon + 1);
  return std::none_of(value.begin(), value.end(), [](char c) {
    return c != '\t' && absl::ascii_iscntrl(static_cast<unsigned char>(c));
  });
}

int StatusOfHeaders(absl::string_view lines) {
  for (size_t count = 0; !lines.empty(); ++count) {
    if (count == kHttpHeadersMax) return 431;
    if (!IsHeader(TakeUntil(kLineEnd, lines))) return 400;
  }
  return 200;
}

// "HTTP/1.1" and "HTTP/1.0".
int StatusOfVersion(absl::string_view version) {
  if (!absl::ConsumePrefix(&version, "HTTP/") || version.size() != 3 || version[1] != '.' ||
      !absl::ascii_isdigit(static_cast<unsigned char>(version[0])) ||
      !absl::ascii_isdigit(static_cast<unsigned char>(version[2])))
    return 400;
  return version == "1.1" || version == "1.0" ? 200 : 505;
}

int StatusOfTarget(absl::string_view target) {
  if (!absl::StartsWith(target, "/") || !std::all_of(target.begin(), target.end(), IsVisible))
    return 400;
  return target.size() <= kHttpTargetBytesMax ? 200 : 414;
}

// `head`: all lines, without the empty one at the end.
HttpRequest ParseHead(absl::string_view head) {
  HttpRequest request;
  absl::string_view line = TakeUntil(kLineEnd, head);
  const absl::string_view method = TakeUntil(" ", line);
  const absl::string_view target = TakeUntil(" ", line);
  if (!IsToken(method) || method.size() > kHttpMethodBytesMax) {
    request.status = 400;
    return request;
  }
  const bool is_known = method == "GET" || method == "HEAD";
  for (const int status : {StatusOfTarget(target), StatusOfVersion(line), StatusOfHeaders(head),
                           is_known ? 200 : 405}) {
    request.status = status;
    if (status != 200) return request;
  }
  request.is_head = method == "HEAD";
  request.path = std::string(target.substr(0, target.find('?')));
  return request;
}

}  // namespace

HttpRequest ParseHttpRequest(absl::string_view bytes, size_t searched) {
  const absl::string_view most = bytes.substr(0, kHttpRequestBytesMax);
  const size_t begin = std::min(searched, most.size());
  const size_t end = most.find(kHeadEnd, begin - std::min(begin, kHeadEnd.size() - 1));
  if (end != absl::string_view::npos) return ParseHead(most.substr(0, end));
  HttpRequest request;
  if (bytes.size() >= kHttpRequestBytesMax) request.status = 431;
  return request;
}

absl::string_view HttpReason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 414:
      return "URI Too Long";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Error";
  }
}

}  // namespace osprey::server

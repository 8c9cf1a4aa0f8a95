#include "server/cluster/etcd/etcd_uri.h"

#include <arpa/inet.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/cluster/etcd/etcd_messages.h"

namespace osprey {
namespace {

constexpr char kPlain[] = "etcd://";
constexpr char kTls[] = "etcds://";
constexpr char kExample[] = "write etcd://HOST:2379[,HOST2:2379]/NAME, or etcds:// for TLS";
constexpr size_t kHostBytesMax = 253;  // of a DNS name (RFC 1035)

absl::Status Wrong(absl::string_view text, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("'", Excerpt(text), "' ", what, "; ", kExample));
}

bool IsIpv6(const std::string& host) {
  in6_addr bytes;
  return inet_pton(AF_INET6, host.c_str(), &bytes) == 1;
}

bool IsHostCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_';
}

bool IsNameCharacter(char c) {
  return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-';
}

bool ParsePort(absl::string_view text, uint16_t& port) {
  uint32_t number = 0;
  if (text.empty() || text.size() > 5 ||
      !std::all_of(text.begin(), text.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(text, &number) || number == 0 || number > UINT16_MAX) {
    return false;
  }
  port = static_cast<uint16_t>(number);
  return true;
}

// "HOST", "HOST:PORT", "[IPV6]" or "[IPV6]:PORT". Returns what is wrong, or "".
std::string ParseEndpoint(absl::string_view text, EtcdEndpoint& endpoint) {
  absl::string_view rest;
  if (absl::ConsumePrefix(&text, "[")) {
    const size_t end = text.find(']');
    if (end == text.npos) return "has a '[' without a ']'";
    endpoint.host = std::string(text.substr(0, end));
    rest = text.substr(end + 1);
    if (!IsIpv6(endpoint.host)) return "has brackets around what is not an IPv6 address";
  } else {
    const size_t end = std::min(text.find(':'), text.size());
    endpoint.host = std::string(text.substr(0, end));
    rest = text.substr(end);
    if (absl::StrContains(rest.substr(std::min<size_t>(rest.size(), 1)), ':'))
      return "has more than one ':' in a host; an IPv6 address has brackets around it";
    if (endpoint.host.empty()) return "lacks a host";
    if (endpoint.host.size() > kHostBytesMax ||
        !std::all_of(endpoint.host.begin(), endpoint.host.end(), IsHostCharacter)) {
      return "has a host that is neither a name nor an address";
    }
  }
  if (!rest.empty() && (rest[0] != ':' || !ParsePort(rest.substr(1), endpoint.port)))
    return "has a port that is not 1 to 65535";
  return "";
}

}  // namespace

std::string EtcdEndpoint::ToString() const {
  return IsIpv6(host) ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

std::string EtcdUri::KeyPrefix() const { return absl::StrCat("/osprey/", name, "/"); }

std::string EtcdUri::ToString() const {
  const auto append = [](std::string* out, const EtcdEndpoint& endpoint) {
    absl::StrAppend(out, endpoint.ToString());
  };
  return absl::StrCat(is_tls ? kTls : kPlain, absl::StrJoin(endpoints, ",", append), "/", name);
}

absl::StatusOr<EtcdUri> ParseEtcdUri(absl::string_view text) {
  EtcdUri uri;
  absl::string_view rest = text;
  uri.is_tls = absl::ConsumePrefix(&rest, kTls);
  if (!uri.is_tls && !absl::ConsumePrefix(&rest, kPlain))
    return Wrong(text, "does not begin with etcd:// or etcds://");
  if (absl::StrContains(rest, '@')) {
    return absl::InvalidArgumentError(
        "the URI of etcd has a user or password before '@'; give the user as an option and the "
        "password in a file");
  }
  const size_t slash = rest.find('/');
  if (slash == rest.npos) return Wrong(text, "lacks the cluster's name");
  uri.name = std::string(rest.substr(slash + 1));
  if (uri.name.empty() || uri.name.size() > kClusterNameBytesMax ||
      !std::all_of(uri.name.begin(), uri.name.end(), IsNameCharacter)) {
    return Wrong(text, "has a cluster name that is not 1 to 63 of a to z, 0 to 9 and '-'");
  }
  for (absl::string_view part : absl::StrSplit(rest.substr(0, slash), ',')) {
    EtcdEndpoint endpoint;
    if (const std::string wrong = ParseEndpoint(part, endpoint); !wrong.empty())
      return Wrong(text, wrong);
    if (std::find(uri.endpoints.begin(), uri.endpoints.end(), endpoint) != uri.endpoints.end())
      return Wrong(text, absl::StrCat("names ", endpoint.ToString(), " twice"));
    uri.endpoints.push_back(std::move(endpoint));
    if (uri.endpoints.size() > kEtcdEndpointsMax)
      return Wrong(text, absl::StrCat("has more than ", kEtcdEndpointsMax, " hosts"));
  }
  return uri;
}

}  // namespace osprey

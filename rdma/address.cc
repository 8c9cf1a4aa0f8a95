#include "rdma/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace osprey::rdma {
namespace {

// The longest name that DNS allows, in bytes.
constexpr size_t kHostNameBytesMax = 253;
constexpr uint32_t kPortMax = 65535;

absl::Status Invalid(absl::string_view uri, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(
      "address \"", absl::CEscape(uri), "\": ", what,
      "; write it as rdma://10.0.0.7:7411, rdma://[fd00::7]:7411 or shm:///run/osprey.sock"));
}

absl::Status InvalidList(absl::string_view uri, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(
      "addresses \"", absl::CEscape(uri), "\": ", what,
      "; write them as rdma://10.0.0.7:7411,10.0.0.8:7411 or shm:///run/a.sock,/run/b.sock"));
}

bool IsIpv6Literal(absl::string_view host) {
  // The resolver checks the zone (fe80::1%eth0); the part before it must be an address.
  const std::string literal(host.substr(0, host.find('%')));
  in6_addr parsed;
  return inet_pton(AF_INET6, literal.c_str(), &parsed) == 1;
}

bool IsHostName(absl::string_view host) {
  if (host.empty() || host.size() > kHostNameBytesMax) return false;
  for (const char c : host) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-' && c != '_')
      return false;
  }
  return true;
}

absl::StatusOr<Address> ParseShm(absl::string_view uri, absl::string_view path) {
  if (path.empty()) return Invalid(uri, "the path of the socket is missing");
  if (absl::StrContains(path, absl::string_view("\0", 1)))
    return Invalid(uri, "a path has no NUL byte");
  Address address;
  address.scheme = Address::Scheme::kShm;
  address.path = std::string(path);
  return address;
}

// Splits `rest` ("HOST", "HOST:PORT", "[IPV6]" or "[IPV6]:PORT") into `host` and what follows it.
absl::Status SplitHost(absl::string_view uri, absl::string_view* rest, std::string* host) {
  if (absl::ConsumePrefix(rest, "[")) {
    const size_t end = rest->find(']');
    if (end == absl::string_view::npos) return Invalid(uri, "the closing ] is missing");
    *host = std::string(rest->substr(0, end));
    rest->remove_prefix(end + 1);
    if (!IsIpv6Literal(*host)) return Invalid(uri, "what stands in [ ] is not an IPv6 address");
    return absl::OkStatus();
  }
  if (IsIpv6Literal(*rest)) return Invalid(uri, "an IPv6 address is written in [ ]");
  const size_t end = std::min(rest->find(':'), rest->size());
  *host = std::string(rest->substr(0, end));
  rest->remove_prefix(end);
  if (host->empty()) return Invalid(uri, "the host is missing");
  if (!IsHostName(*host)) return Invalid(uri, "the host is neither a name nor an IP address");
  return absl::OkStatus();
}

absl::StatusOr<Address> ParseRdma(absl::string_view uri, absl::string_view rest) {
  Address address;
  if (absl::Status status = SplitHost(uri, &rest, &address.host); !status.ok()) return status;
  if (rest.empty()) return address;
  if (!absl::ConsumePrefix(&rest, ":"))
    return Invalid(uri, "after the host comes :PORT or nothing");
  uint32_t port = 0;
  const bool digits =
      !rest.empty() && rest.find_first_not_of("0123456789") == absl::string_view::npos;
  if (!digits || !absl::SimpleAtoi(rest, &port) || port > kPortMax) {
    return Invalid(uri, "the port is not a number from 0 to 65535");
  }
  address.port = static_cast<uint16_t>(port);
  return address;
}

}  // namespace

std::string Address::ToString() const {
  if (scheme == Scheme::kShm) return absl::StrCat("shm://", path);
  const bool brackets = absl::StrContains(host, ':');
  return absl::StrCat("rdma://", brackets ? "[" : "", host, brackets ? "]" : "", ":", port);
}

absl::StatusOr<Address> ParseAddress(absl::string_view uri) {
  absl::string_view rest = uri;
  if (absl::ConsumePrefix(&rest, "shm://")) return ParseShm(uri, rest);
  if (absl::ConsumePrefix(&rest, "rdma://")) return ParseRdma(uri, rest);
  return Invalid(uri, "it begins with neither rdma:// nor shm://");
}

bool HasIpAddress(const Address& address) {
  if (address.scheme != Address::Scheme::kRdma) return false;
  in_addr parsed;
  return IsIpv6Literal(address.host) || inet_pton(AF_INET, address.host.c_str(), &parsed) == 1;
}

absl::StatusOr<Address> ShardAddress(const Address& address, uint32_t shard) {
  if (shard == 0) return address;
  Address there = address;
  if (address.scheme == Address::Scheme::kShm) {
    absl::StrAppend(&there.path, ".", shard);
    return there;
  }
  // (Port 0, which the system replaces, has no successor.)
  if (address.port == 0 || shard > kPortMax - address.port) {
    const absl::string_view why = address.port == 0 ? ", where the system chooses the port"
                                                    : " would listen above port 65535";
    return absl::InvalidArgumentError(absl::StrCat(
        "address \"", absl::CEscape(address.ToString()), "\": shard ", shard, why,
        "; shard k listens at the port + k: give a port from 1 to ", kPortMax - shard));
  }
  there.port = static_cast<uint16_t>(address.port + shard);
  return there;
}

absl::StatusOr<std::vector<std::string>> ParseAddresses(absl::string_view uri) {
  const size_t end = uri.find("://");
  const absl::string_view scheme = uri.substr(0, end == absl::string_view::npos ? 0 : end + 3);
  const std::vector<absl::string_view> places = absl::StrSplit(uri.substr(scheme.size()), ',');
  if (places.size() > kAddressesMax) {
    return InvalidList(
        uri, absl::StrCat("it has ", places.size(), " addresses; give at most ", kAddressesMax));
  }
  std::vector<std::string> uris;
  std::vector<std::string> seen;  // in one form
  for (const absl::string_view place : places) {
    std::string one = absl::StrCat(scheme, place);
    if (places.size() > 1) {
      if (place.empty())
        return InvalidList(
            uri, absl::StrCat("address ", uris.size() + 1, " of ", places.size(), " is empty"));
      if (absl::StrContains(place, "://"))
        return InvalidList(uri, absl::StrCat("\"", absl::CEscape(place),
                                             "\" has a scheme of its own; all addresses share the "
                                             "one at the start"));
    }
    const absl::StatusOr<Address> address = ParseAddress(one);
    if (!address.ok()) return address.status();
    seen.push_back(address->scheme == Address::Scheme::kRdma
                       ? absl::AsciiStrToLower(address->ToString())
                       : address->ToString());
    if (std::find(seen.begin(), seen.end() - 1, seen.back()) != seen.end() - 1)
      return InvalidList(uri, absl::StrCat(one, " is there twice"));
    uris.push_back(std::move(one));
  }
  return uris;
}

}  // namespace osprey::rdma

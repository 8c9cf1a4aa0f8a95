#include "tools/doctor/peer.h"

#include <algorithm>
#include <cstdint>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "server/program/size_flag.h"

namespace osprey::doctor {
namespace {

constexpr char kCheck[] = "peer";
constexpr size_t kSizes[] = {64, 1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20};
// For each size: enough for a median, also over a slow path.
constexpr int kRounds = 15;
constexpr absl::Duration kKeyLife = absl::Minutes(1);
// A packet has 4 KiB at most: a longer value takes several.
constexpr size_t kPacketBytesMax = 4096;

std::string RandomName() {
  std::random_device random;
  return absl::StrFormat("osprey-doctor-%08x%08x", random(), random());
}

std::string Pattern(size_t bytes) {
  std::string value(bytes, '\0');
  uint32_t state = static_cast<uint32_t>(bytes) | 1;
  for (char& c : value) {
    state = state * 1664525 + 1013904223;
    c = static_cast<char>(state >> 24);
  }
  return value;
}

std::string Micros(absl::Duration time) {
  return absl::StrFormat("%.1f us", absl::ToDoubleMicroseconds(time));
}

Finding Fail(const std::string& reason, std::vector<std::string> fixes) {
  return {Outcome::kFail, kCheck, reason, std::move(fixes)};
}

// Probes one size: writes once, reads kRounds times. An error is of the server or the path to it; a
// finding of FAIL says that bytes differ.
absl::StatusOr<Finding> Probe(Client& client, const std::string& key, size_t bytes) {
  const std::string value = Pattern(bytes);
  WriteOptions write;
  write.ttl = kKeyLife;
  absl::Time begin = absl::Now();
  if (const absl::StatusOr<uint64_t> put = client.Put(key, value, write); !put.ok())
    return put.status();
  const absl::Duration put_time = absl::Now() - begin;
  std::vector<absl::Duration> times;
  const uint64_t reads = client.counters().reads;
  for (int round = 0; round < kRounds; ++round) {
    begin = absl::Now();
    const absl::StatusOr<Value> got = client.Get(key);
    times.push_back(absl::Now() - begin);
    if (!got.ok()) return got.status();
    if (got->bytes != value) {
      return Fail(absl::StrCat(bytes, " B came back different"),
                  {"kvcli doctor --self-test   # at both ends: which layer changes bytes"});
    }
  }
  std::sort(times.begin(), times.end());
  const absl::Duration median = times[times.size() / 2];
  const double megabytes = static_cast<double>(bytes) / absl::ToDoubleMicroseconds(median);
  return Finding{Outcome::kPass,
                 kCheck,
                 absl::StrFormat("%7s: GET %s (%.0f MB/s, %.1f READs), PUT %s",
                                 server::FormatSize(bytes), Micros(median), megabytes,
                                 static_cast<double>(client.counters().reads - reads) / kRounds,
                                 Micros(put_time)),
                 {}};
}

}  // namespace

Finding CannotConnect(const std::string& uri, const absl::Status& connect) {
  return Fail(
      absl::StrCat(uri, ": ", connect.message()),
      {"kvcli doctor --self-test=HOST   # with --self-test=serve there: the way without kvserver"});
}

Finding SizeFailure(size_t passed, size_t failed, const absl::Status& why) {
  const std::string reason = absl::StrCat(server::FormatSize(failed), ": ", why.message());
  if (why.code() == absl::StatusCode::kResourceExhausted ||
      why.code() == absl::StatusCode::kInvalidArgument) {
    return {Outcome::kWarn, kCheck, reason, {"kvcli stats   # how full the server is"}};
  }
  if (passed > 0 && failed > kPacketBytesMax) {
    return Fail(
        absl::StrCat(reason, "; what fits one packet came through (", server::FormatSize(passed),
                     "), more did not: large packets are lost on the way"),
        {"ping -M do -s 4096 HOST   # which size passes",
         "ip link set dev NETDEV mtu N   # the same at both ends, and at the switches at least"});
  }
  return Fail(reason, {"kvcli doctor   # at the server's host"});
}

std::vector<Finding> ProbePeer(Client& client, absl::Duration limit) {
  std::vector<Finding> findings;
  const absl::Time end = absl::Now() + limit;
  const absl::StatusOr<absl::Duration> ping = client.Ping();
  if (!ping.ok()) {
    findings.push_back(Fail(absl::StrCat("ping: ", ping.status().message()),
                            {"kvcli doctor   # at the server's host"}));
    return findings;
  }
  findings.push_back(
      {Outcome::kPass, kCheck, absl::StrCat("ping ", Micros(*ping), ": ", client.Describe()), {}});
  const std::string key = RandomName();
  size_t passed = 0;
  for (const size_t bytes : kSizes) {
    if (absl::Now() > end) {
      findings.push_back({Outcome::kWarn,
                          kCheck,
                          absl::StrCat(server::FormatSize(bytes), " and more: no time left after ",
                                       absl::FormatDuration(limit)),
                          {"kvcli doctor --timeout=60 --peer=URI"}});
      break;
    }
    absl::StatusOr<Finding> finding = Probe(client, key, bytes);
    if (!finding.ok()) {
      findings.push_back(SizeFailure(passed, bytes, finding.status()));
      break;
    }
    findings.push_back(*std::move(finding));
    passed = bytes;
  }
  // It expires after a minute in any case.
  (void)client.Delete(key);
  return findings;
}

}  // namespace osprey::doctor

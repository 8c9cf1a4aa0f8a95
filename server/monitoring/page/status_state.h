// What the status page shows, as rows of text. The page (status_page.h) and its JSON are both made of
// these.
//
// Thread rule: plain functions.

#ifndef OSPREY_SERVER_MONITORING_PAGE_STATUS_STATE_H_
#define OSPREY_SERVER_MONITORING_PAGE_STATUS_STATE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "rdma/wire/wire.h"
#include "server/monitoring/monitor.h"

namespace osprey::server {

struct StatusInput {
  std::string name;                 // of the server: its ID in a cluster, else where it listens
  std::string cluster;              // its URI in etcd; empty: none
  std::vector<std::string> listen;  // addresses for clients
  absl::Status health;              // as /healthz
  MonitorReading reading;
};

// Texts are plain: HTML of them has to be escaped.
struct StatusRow {
  std::string id;  // [a-z0-9_]
  std::string label;
  std::string value;
  std::string average;            // a second, since the start; empty: there is none
  std::optional<uint64_t> count;  // that grows: the page shows its rate
};

struct StatusSection {
  std::string id;
  std::string title;
  std::string value_title, average_title, now_title;  // of the columns; may be empty
  std::vector<StatusRow> rows;
};

// In the order of the page. Their set depends only on what the server has: a data directory, a cluster
// and its members.
std::vector<StatusSection> StatusSections(const StatusInput& input);

struct MemoryUse {
  std::string id;
  std::string label;
  uint64_t bytes = 0;
};

// Their sum is at most region_bytes.
std::vector<MemoryUse> MemoryUses(const index::Table::Stats& table);

// "Osprey NAME".
std::string StatusTitle(const StatusInput& input);
std::string HealthText(const absl::Status& health);

// The q-th quantile in nanoseconds, linear within a bucket as Prometheus has it; the last bucket, which
// has no bound, counts as its beginning. Nothing: there are no counts. REQUIRES: 0 < q < 1.
std::optional<double> LatencyQuantileNs(
    const std::array<uint64_t, rdma::kLatencyBuckets>& latencies, double q);

// "12,345", "1.50 GiB", "12.3 µs".
std::string CountText(uint64_t count);
std::string BytesText(uint64_t bytes);
std::string TimeText(double ns);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_MONITORING_PAGE_STATUS_STATE_H_

// What the server tells, as Prometheus' text format.

#ifndef OSPREY_SERVER_MONITORING_METRICS_H_
#define OSPREY_SERVER_MONITORING_METRICS_H_

#include <string>

#include "server/monitoring/monitor.h"

namespace osprey::server {

inline constexpr char kMetricsContentType[] = "text/plain; version=0.0.4; charset=utf-8";

// Every figure that is a metric (stats/metric_table.h), and those that only the metrics have.
std::string MetricsText(const MonitorReading& reading);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_MONITORING_METRICS_H_

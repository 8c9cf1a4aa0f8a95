#include "server/data.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "index/layout/partitions.h"
#include "index/writer/table.h"
#include "server/log.h"
#include "server/program/size_flag.h"
#include "server/service_manager.h"

namespace osprey::server {
namespace {

// Between lines of a log that is no terminal, and between messages to the service manager.
constexpr absl::Duration kReportPeriod() { return absl::Seconds(5); }
// The service manager waits so much longer after each message.
constexpr absl::Duration kStartExtension() { return absl::Seconds(60); }

// Whole segments are removed after a checkpoint, so the log has several of them.
constexpr uint64_t kSegmentsPerCheckpoint = 8;
constexpr uint64_t kSegmentBytesMin = 1 << 20;

absl::Status MakeDirectory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("--data-dir: cannot create ", path, ": ",
                                             std::strerror(errno),
                                             "; name a directory that this user may create"));
}

absl::Status InFlag(const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("--data-dir: ", status.message()));
}

absl::Status AdaptTo(const Durability& durability, Config& config) {
  const uint32_t partitions = durability.partitions();
  const uint64_t bytes = index::SpanOfPartition(config.memory_bytes, partitions, 0).bytes;
  if (bytes < index::Table::RegionBytesMin()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--memory: ", FormatSize(config.memory_bytes), " is too small for ",
                     config.data_dir, ", which has ", partitions, " partitions; write ",
                     FormatSize(partitions * index::Table::RegionBytesMin()), " or more"));
  }
  if (partitions < config.partitions) {
    Log(absl::StrCat(config.data_dir, " has ", partitions, " partitions, fewer than --pollers=",
                     config.pollers, " would make of new data; pollers wait for each other"));
  }
  config.partitions = partitions;
  config.value_bytes_max = std::min(config.value_bytes_max, bytes);
  return absl::OkStatus();
}

class LoadReport {
 public:
  void operator()(const RecoveryProgress& progress) {
    const absl::Time now = absl::Now();
    const double seconds = absl::ToDoubleSeconds(now - begun_);
    const double rate = seconds > 0 ? static_cast<double>(progress.bytes) / seconds : 0;
    std::string text = absl::StrFormat("loading: %d keys, %.1f MB", progress.items,
                                       static_cast<double>(progress.bytes) / 1e6);
    if (progress.bytes_total > progress.bytes && rate > 0) {
      absl::StrAppendFormat(&text, " of %.1f, %.0f MB/s, %.0f s left",
                            static_cast<double>(progress.bytes_total) / 1e6, rate / 1e6,
                            static_cast<double>(progress.bytes_total - progress.bytes) / rate);
    }
    if (is_terminal_) std::fprintf(stderr, "\r\033[K%s", text.c_str());
    if (now < next_) return;
    next_ = now + kReportPeriod();
    if (!is_terminal_) Log(text);
    TellServiceManager(absl::StrCat(
        "STATUS=", text, "\nEXTEND_TIMEOUT_USEC=", absl::ToInt64Microseconds(kStartExtension())));
  }
  // Makes place for another line.
  void End() const {
    if (is_terminal_) std::fprintf(stderr, "\r\033[K");
  }

 private:
  const bool is_terminal_ = isatty(STDERR_FILENO) != 0;
  const absl::Time begun_ = absl::Now();
  absl::Time next_ = begun_ + kReportPeriod();
};

}  // namespace

absl::StatusOr<std::unique_ptr<Durability>> OpenData(Config& config,
                                                     std::function<uint64_t()> random,
                                                     std::function<void(absl::string_view)> log) {
  if (absl::Status status = MakeDirectory(config.data_dir); !status.ok()) return status;
  DurabilityOptions options;
  options.mode = config.durability;
  options.lag = config.durability_lag;
  options.log_memory = config.log_memory;
  options.checkpoint_log_bytes = config.checkpoint_log_bytes;
  options.segment_bytes = std::clamp(config.checkpoint_log_bytes / kSegmentsPerCheckpoint,
                                     kSegmentBytesMin, options.segment_bytes);
  options.clock_jump_max = config.clock_jump_max;
  options.random = std::move(random);
  options.log = std::move(log);
  absl::StatusOr<std::unique_ptr<Durability>> durability =
      Durability::Open(config.data_dir, config.partitions, std::move(options));
  if (!durability.ok()) return InFlag(durability.status());
  if (absl::Status status = AdaptTo(**durability, config); !status.ok()) return status;
  return durability;
}

absl::StatusOr<std::vector<SessionImage>> LoadData(const Config& config, Durability& durability,
                                                   Tables& tables, const std::atomic<bool>& stop) {
  if (const std::string load = durability.DescribeLoad(); !load.empty())
    Log(absl::StrCat("loading ", load));
  LoadReport report;
  RecoveryOptions options;
  options.threads = std::max(1u, std::thread::hardware_concurrency());
  options.now = absl::Now();
  options.memory_bytes = config.memory_bytes;
  options.format_size = FormatSize;
  options.stop = &stop;
  options.progress = [&report](const RecoveryProgress& progress) { report(progress); };
  options.log = [&report](absl::string_view line) {
    report.End();
    Log(line);
  };
  absl::StatusOr<Recovered> recovered = durability.Load(tables, options);
  report.End();
  if (!recovered.ok()) return InFlag(recovered.status());
  if (recovered->end.last_record == 0) {
    Log(absl::StrCat(config.data_dir, " is a new data directory"));
    return std::move(recovered->sessions);
  }
  Log(absl::StrFormat("loaded %d keys, %.1f MB, in %.2f s from %s; the last life ended %s",
                      recovered->items, static_cast<double>(recovered->bytes) / 1e6,
                      absl::ToDoubleSeconds(recovered->took), config.data_dir,
                      recovered->end.clean ? "cleanly" : "without a clean end"));
  return std::move(recovered->sessions);
}

}  // namespace osprey::server

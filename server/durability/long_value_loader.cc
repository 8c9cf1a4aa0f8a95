#include "server/durability/long_value_loader.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "absl/status/statusor.h"
#include "rdma/background_thread.h"

namespace osprey::server {

absl::Status LongValueLoader::Add(const wal::Entry& entry,
                                  const std::vector<wal::PiecePlace>& pieces, uint64_t expiry_ns) {
  jobs_.push_back({std::string(entry.key), entry.version, expiry_ns, entry.value_length,
                   entry.value_checksum, pieces});
  bytes_ += entry.value_length;
  return bytes_ < kBatchBytes ? absl::OkStatus() : Finish();
}

absl::Status LongValueLoader::Finish() {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  absl::Status error;
  auto put = [&] {
    wal::ValueReader values(directory_);
    for (size_t i = next.fetch_add(1); i < jobs_.size(); i = next.fetch_add(1)) {
      absl::Status status = Put(jobs_[i], values);
      if (status.ok()) continue;
      next.store(jobs_.size());
      const std::lock_guard<std::mutex> lock(mutex);
      if (error.ok()) error = std::move(status);
    }
  };
  void* (*const run)(void*) = [](void* call) -> void* {
    (*static_cast<decltype(put)*>(call))();
    return nullptr;
  };
  std::vector<pthread_t> others;
  pthread_t thread;
  while (others.size() + 1 < std::min<size_t>(threads_, jobs_.size()) &&
         rdma::StartBackgroundThread("osprey-restore", run, &put, thread)) {
    others.push_back(thread);
  }
  put();
  for (const pthread_t other : others) pthread_join(other, nullptr);
  jobs_.clear();
  bytes_ = 0;
  return error;
}

absl::Status LongValueLoader::Put(const Job& job, wal::ValueReader& values) {
  if (absl::Status status = restorer_.CheckStop(); !status.ok()) return status;
  const index::KeyHash hash = restorer_.Prefetch(job.key);
  wal::Entry entry;
  entry.value_length = job.value_length;
  entry.value_checksum = job.value_checksum;
  const absl::StatusOr<wal::Bytes> value = values.Read(entry, job.pieces);
  if (!value.ok()) return value.status();
  restorer_.NoteRead(value->size());
  return restorer_.Put({{job.key, hash}, *value, job.version, job.expiry_ns, 0, {}});
}

}  // namespace osprey::server

#include "server/durability/log_keys.h"

#include "xxhash.h"

namespace osprey::server {

LogKeys::Digest LogKeys::DigestOf(absl::string_view key) const {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(key.data(), key.size(), seed_);
  return {hash.low64, hash.high64};
}

uint64_t LogKeys::Search(const Digest& digest) const {
  uint64_t at = SlotOf(digest);
  for (; slots_[at] != 0; at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at] >> kNumberBits == TagOf(digest) && RecordOf(slots_[at]).digest == digest) break;
  }
  return at;
}

const LogKeys::Last* LogKeys::Find(const Digest& digest) const {
  const uint64_t slot = slots_[Search(digest)];
  return slot == 0 ? nullptr : &RecordOf(slot).last;
}

uint64_t LogKeys::CountLasting() const {
  uint64_t count = 0;
  for (uint64_t number = 0; number < size_; ++number) {
    const Last& last = chunks_[number / kChunkRecords][number % kChunkRecords].last;
    count += last.version != 0 && last.expiry_ns == 0 && last.is_loaded == 0;
  }
  return count;
}

std::pair<LogKeys::Last&, bool> LogKeys::FindOrAdd(const Digest& digest) {
  uint64_t at = Search(digest);
  if (slots_[at] != 0) return {RecordOf(slots_[at]).last, false};
  if (2 * (size_ + 1) > slots_.size()) {
    Grow();
    at = Search(digest);
  }
  if (size_ % kChunkRecords == 0) chunks_.push_back(std::make_unique<Record[]>(kChunkRecords));
  slots_[at] = TagOf(digest) << kNumberBits | ++size_;
  Record& record = RecordOf(slots_[at]);
  record.digest = digest;
  return {record.last, true};
}

void LogKeys::Grow() {
  std::vector<uint64_t>(2 * slots_.size()).swap(slots_);
  for (uint64_t number = 0; number < size_; ++number) {
    const Digest& digest = chunks_[number / kChunkRecords][number % kChunkRecords].digest;
    uint64_t at = SlotOf(digest);
    while (slots_[at] != 0) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = TagOf(digest) << kNumberBits | (number + 1);
  }
}

}  // namespace osprey::server

// What the log makes of each key: its last put or deletion. What came before counts for nothing, and
// neither does the checkpoint's item, unless the checkpoint has that value.
//
//   slots     by digest, 8 B each, at most half of them used: a number and a tag
//     │
//   records   by number, in the order in which the keys came
//
// A new key costs one access to a random place in memory, which can be prefetched.
//
// Thread rule: one thread changes it; several may read it if none does.

#ifndef OSPREY_SERVER_DURABILITY_LOG_KEYS_H_
#define OSPREY_SERVER_DURABILITY_LOG_KEYS_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace osprey::server {

class LogKeys {
 public:
  // Stands for a key. Two keys of one digest do not occur: 128 bits, and a random seed.
  struct Digest {
    uint64_t low = 0;
    uint64_t high = 0;
    bool operator==(const Digest&) const = default;
  };
  struct Last {
    uint64_t entry : 63 = 0;     // entries are counted from 0 on, in the order of the log
    uint64_t is_loaded : 1 = 0;  // from the checkpoint: the value is not in the log
    uint64_t version = 0;        // 0: it is deleted
    uint64_t expiry_ns = 0;      // the last one
  };

  explicit LogKeys(uint64_t seed) : seed_(seed), slots_(kSlotsLeast) {}

  Digest DigestOf(absl::string_view key) const;
  uint64_t size() const { return size_; }
  // Those that the log puts, without an end.
  uint64_t CountLasting() const;
  // Null: the log does not change the key.
  const Last* Find(const Digest& digest) const;
  // The key's; new, and empty, if `second` is true. Valid until the next call.
  std::pair<Last&, bool> FindOrAdd(const Digest& digest);
  // Prefetches what the two calls read first.
  void Prefetch(const Digest& digest) const { __builtin_prefetch(&slots_[SlotOf(digest)]); }
  // Prefetches what they read next, if the key is there. For use when the first memory has arrived.
  void PrefetchLast(const Digest& digest) const {
    const uint64_t slot = slots_[SlotOf(digest)];
    if (slot == 0 || slot >> kNumberBits != TagOf(digest)) return;
    const Record& record = RecordOf(slot);
    __builtin_prefetch(&record.digest);
    __builtin_prefetch(&record.last.expiry_ns);  // it may lie in the next cache line
  }

 private:
  struct Record {
    Digest digest;
    Last last;
  };
  static constexpr uint64_t kSlotsLeast = 1024;
  // Records never move, as memory that is new to the process costs more than anything else here.
  static constexpr uint64_t kChunkRecords = 4096;
  static constexpr int kNumberBits = 40;

  static uint64_t TagOf(const Digest& digest) { return digest.high >> kNumberBits; }
  uint64_t SlotOf(const Digest& digest) const { return digest.low & (slots_.size() - 1); }
  // REQUIRES: slot != 0.
  Record& RecordOf(uint64_t slot) const {
    const uint64_t number = (slot & ((uint64_t{1} << kNumberBits) - 1)) - 1;
    return chunks_[number / kChunkRecords][number % kChunkRecords];
  }
  // The slot of the key, or the free one for it.
  uint64_t Search(const Digest& digest) const;
  void Grow();

  const uint64_t seed_;
  std::vector<uint64_t> slots_;  // tag and number + 1; 0: free
  std::vector<std::unique_ptr<Record[]>> chunks_;
  uint64_t size_ = 0;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_DURABILITY_LOG_KEYS_H_

// Table's writes with versions that a log has: changes of an earlier life, and listed parts of a flush.

#include <utility>

#include "index/writer/keys/write_results.h"
#include "index/writer/table.h"

namespace osprey::index {
namespace {

// With a given expiry the kind alone counts.
Lifetime LifetimeUntil(uint64_t expiry_ns) {
  return expiry_ns == 0 ? Lifetime::Forever() : Lifetime::For({});
}

}  // namespace

void Table::FlushListed(absl::Span<const Flusher::Listed> keys, absl::Time now) {
  for (const Flusher::Listed& one : keys) {
    const GivenVersion given(*this, one.version, 0);
    (void)Delete(one.key, {Condition::Kind::kVersionIs, one.version}, now);
  }
  keys_.items.space().EndGraceOf(2 * keys.size() + kFreedPerFlushStep, now);
}

// --- Changes of an earlier life ---------------------------------------------

// What filled the memory in an earlier life may leave other gaps now. The space for updates makes up
// for them, and is taken back as space becomes free.
WriteResult Table::WithUpdateRoom(absl::FunctionRef<WriteResult()> write) {
  update_room_.Lend();
  WriteResult result = write();
  update_room_.TakeBack();
  return result;
}

WriteResult Table::Restore(const HashedKey& hashed, ByteSpan value, uint64_t version,
                           uint64_t expiry_ns, absl::Time now) {
  const GivenVersion given(*this, version, expiry_ns);
  const auto put = [&] { return Put(hashed, value, {}, now, LifetimeUntil(expiry_ns)); };
  WriteResult result = put();
  if (absl::IsResourceExhausted(result.status)) result = WithUpdateRoom(put);
  // No reader has seen what this one replaced.
  keys_.items.space().EndGrace(now);
  return result;
}

}  // namespace osprey::index

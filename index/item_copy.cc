#include "index/item_copy.h"

#include <algorithm>
#include <cassert>

#include "index/test_hooks.h"

namespace osprey::index {

ItemCopy::ItemCopy(RegionWriter& writer, uint64_t from, uint64_t to, uint64_t item_bytes)
    : writer_(&writer), from_(from), to_(to), bytes_(item_bytes), original_(writer.Header(from)) {
  writer_->NextCasVersion();
  writer_->Begin(to_, RecordVersion(writer_->cas_version()), original_.tag);
}

// Its version changes with whatever is written at its place.
bool ItemCopy::unchanged() const {
  if (Seeded(SeededBug::kChangedItemMoved)) return true;
  const RecordHeader header = writer_->Header(from_);
  return header.version == original_.version && header.tag == original_.tag &&
         header.checksum == original_.checksum;
}

uint64_t ItemCopy::Continue(uint64_t bytes_max) {
  assert(unchanged() && !complete());
  const uint64_t wanted = std::max(RoundUpToWords(bytes_max), kWordBytes);
  const uint64_t piece_bytes = std::min(wanted, bytes_ - done_);
  const ByteSpan piece = std::as_const(*writer_).Bytes(from_ + done_, piece_bytes);
  const bool whole = piece_bytes == bytes_ - sizeof(RecordHeader);
  if (whole) {
    hash_ = HashBytes(piece);
  } else {
    if (hasher_ == nullptr) hasher_ = std::make_unique<BytesHasher>();
    hasher_->Update(piece);
  }
  writer_->Store(to_ + done_, piece);
  done_ += piece_bytes;
  return piece_bytes;
}

Sealing ItemCopy::Finish() {
  assert(complete());
  Sealing sealing;
  sealing.offset = to_;
  sealing.version = RecordVersion(writer_->cas_version());
  sealing.tag = original_.tag;
  sealing.checksum = RecordChecksum(hasher_ == nullptr ? hash_ : hasher_->Digest(), sealing.version,
                                    sealing.tag, writer_->PlaceOf(to_));
  return sealing;
}

}  // namespace osprey::index

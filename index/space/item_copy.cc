#include "index/space/item_copy.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "index/layout/item.h"
#include "index/layout/test_hooks.h"

namespace osprey::index {

ItemCopy::ItemCopy(RegionWriter& writer, uint64_t from, uint64_t to, uint64_t item_bytes)
    : writer_(&writer), from_(from), to_(to), bytes_(item_bytes) {
  std::memcpy(&original_, writer_->Bytes(from_, sizeof(original_)).data(), sizeof(original_));
  writer_->NextCasVersion();
  writer_->Begin(to_, RecordVersion(writer_->cas_version()), original_.record.tag);
  writer_->Store(to_ + offsetof(ItemHeader, length_word), original_.length_word);
  writer_->Store(to_ + offsetof(ItemHeader, cas_word), original_.cas_word);
}

// The version changes with every write at its place.
bool ItemCopy::unchanged() const {
  if (IsMutant(Mutant::kChangedItemMoved)) return true;
  const RecordHeader header = writer_->Header(from_);
  return std::memcmp(&header, &original_.record, sizeof(header)) == 0;
}

uint64_t ItemCopy::Continue(uint64_t bytes_max) {
  assert(unchanged() && !complete());
  const uint64_t wanted = std::max(RoundUpToWords(bytes_max), kWordBytes);
  const uint64_t piece_bytes = std::min(wanted, bytes_ - done_);
  const ByteSpan piece = std::as_const(*writer_).Bytes(from_ + done_, piece_bytes);
  const bool whole = piece_bytes == bytes_ - sizeof(ItemHeader);
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
  ItemHeader header = original_;
  header.record.version = RecordVersion(writer_->cas_version());
  Sealing sealing;
  sealing.offset = to_;
  sealing.version = header.record.version;
  sealing.tag = header.record.tag;
  sealing.checksum =
      ItemChecksum(hasher_ == nullptr ? hash_ : hasher_->Digest(), header, writer_->PlaceOf(to_));
  return sealing;
}

}  // namespace osprey::index

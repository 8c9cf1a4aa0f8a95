#include "index/reader/item_fetch.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace osprey::index {

ReadSpan ItemFetch::Begin(uint64_t slot, uint64_t line, absl::string_view key) {
  const ReadSpan item = map_.ItemSpan(slot);
  slot_ = slot;
  line_ = line;
  offset_ = item.offset;
  lengthened_ = false;
  is_head_ = !IsReadWhole(slot, whole_bytes_max_);
  const uint64_t length = is_head_ ? ItemHeadBytes(key.size()) : item.length;
  return {offset_, static_cast<uint32_t>(std::min<uint64_t>(length, item.length))};
}

ReadSpan ItemFetch::Lengthen(uint64_t bytes, absl::string_view key) {
  assert(IsInside(bytes) && !lengthened_);
  lengthened_ = true;
  is_head_ = bytes > WholeReadBytesMax(whole_bytes_max_);
  return {offset_, static_cast<uint32_t>(is_head_ ? ItemHeadBytes(key.size()) : bytes)};
}

ItemFields ItemFetch::BeginValue(ByteSpan head, absl::string_view key) {
  std::memcpy(&head_, head.data(), sizeof(head_));
  const ItemFields fields = ItemFields::Unpack(head_);
  value_left_ = fields.value_length;
  value_hasher_.emplace();
  value_hasher_->Update(head.subspan(sizeof(ItemHeader), key.size()));
  return fields;
}

ItemReading ItemFetch::FinishValue(absl::string_view key) {
  assert(value_hasher_.has_value() && value_left_ == 0);
  // The padding is zeros, so it is hashed without a READ.
  const std::byte zeros[kWordBytes] = {};
  const ItemFields fields = ItemFields::Unpack(head_);
  const uint64_t bytes = sizeof(ItemHeader) + key.size() + fields.value_length;
  value_hasher_->Update({zeros, RoundUpToWords(bytes) - bytes});
  const uint64_t checksum =
      ItemChecksum(value_hasher_->Digest(), head_, {offset_, map_.incarnation()});
  value_hasher_.reset();
  ItemReading item;
  if (checksum != head_.record.checksum && !IsMutant(Mutant::kNoItemChecksum) &&
      !IsMutant(Mutant::kPiecesNotVerified)) {
    return item;
  }
  item.verdict = ItemVerdict::kLive;
  item.cas_version = fields.cas_version;
  item.expiry_ns = fields.expiry_ns;
  return item;
}

}  // namespace osprey::index

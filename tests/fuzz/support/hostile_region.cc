#include "tests/fuzz/support/hostile_region.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "index/layout/item.h"
#include "index/layout/partitions.h"

namespace osprey::fuzz {

using index::DirectoryEntry;
using index::DirectoryPage;
using index::ItemHeader;
using index::Line;
using index::RegionHeader;

namespace {

constexpr uint64_t kItemBytesKept = 8 << 20;  // a longer one is only claimed
constexpr size_t kRecordsMax = 4096;          // remembered

uint64_t KeyOf(uint32_t partition, uint64_t offset) { return uint64_t{partition} << 48 | offset; }

// As RegionWriter seals a record.
template <typename Record>
void Seal(Record& record, uint32_t version, uint32_t tag, index::RecordPlace place) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&record);
  record.record.version = version;
  record.record.tag = tag;
  const uint64_t hash = index::HashBytes(
      {bytes + sizeof(index::RecordHeader), sizeof(record) - sizeof(index::RecordHeader)});
  record.record.checksum = index::RecordChecksum(hash, version, tag, place);
}

}  // namespace

void HostileRegion::WillBeAsked(std::string key) { keys_.push_back(std::move(key)); }

uint64_t HostileRegion::PartBytes() const {
  return index::SpanOfPartition(shape_.region_bytes, shape_.partitions, 0).bytes;
}

uint64_t HostileRegion::ItemsOffset() const {
  const uint64_t units = (PartBytes() - UnitsOffset()) / index::kUnitBytes;
  return UnitsOffset() + (units + 1) / 2 * index::kUnitBytes;
}

index::RecordPlace HostileRegion::PlaceOf(uint32_t partition, uint64_t offset) const {
  return {offset, index::IncarnationOfPartition(shape_.incarnation, partition)};
}

const std::string& HostileRegion::AnyKey() {
  static const std::string none = "k";
  return keys_.empty() ? none : keys_[input_.Byte() % keys_.size()];
}

uint32_t HostileRegion::AnyGeneration() { return input_.OneIn(8) ? input_.Byte() : 1; }

uint64_t HostileRegion::AnyLineOffset() {
  const uint64_t lines = (ItemsOffset() - UnitsOffset()) / index::kLineBytes;
  if (input_.OneIn(8)) return input_.Number() & index::kOffsetMask * 8;
  return UnitsOffset() + (lines == 0 ? 0 : input_.Byte() * uint64_t{7} % lines) * index::kLineBytes;
}

uint64_t HostileRegion::AnySlot() {
  if (input_.OneIn(16)) return input_.Any<uint64_t>();
  index::Slot slot;
  const std::string& key = AnyKey();
  slot.fingerprint = index::HashKey(key, shape_.hash_seed).fingerprint();
  if (input_.OneIn(16)) slot.fingerprint ^= 1;
  slot.has_expiry = input_.OneIn(4);
  const uint64_t room = PartBytes() - std::min(PartBytes(), ItemsOffset());
  switch (input_.Choice(4)) {
    case 0:  // near the end
      slot.offset = PartBytes() - std::min(PartBytes(), input_.Byte() * uint64_t{16});
      break;
    case 1:
      slot.offset = input_.Number();
      break;
    default:
      slot.offset = ItemsOffset() + (room == 0 ? 0 : input_.Byte() * uint64_t{4096} % room);
  }
  slot.offset = slot.offset / index::kItemAlignmentBytes * index::kItemAlignmentBytes;
  slot.offset &= index::kOffsetMask * 8;
  slot.length_class = input_.OneIn(4) ? input_.Byte() : 5 + input_.Byte() % 16;
  // One that comes in pieces.
  const bool is_long = input_.OneIn(4);
  if (is_long) slot.length_class = index::LengthClassOf(300 << 10) + input_.Byte() % 8;
  if (promised_.size() > kRecordsMax) promised_.clear();
  promised_[slot.offset] = {key, is_long};
  return slot.Pack();
}

void HostileRegion::Spoil(absl::Span<std::byte> bytes) {
  for (uint32_t changes = 1 + input_.Byte() % 3; changes > 0 && !bytes.empty(); --changes)
    bytes[input_.Any<uint32_t>() % bytes.size()] = static_cast<std::byte>(input_.Byte());
}

void HostileRegion::Read(uint64_t offset, absl::Span<std::byte> bytes) {
  // Of several partitions some bytes at the end belong to none.
  const uint64_t part_bytes = PartBytes();
  const auto partition = static_cast<uint32_t>(
      std::min<uint64_t>(part_bytes == 0 ? 0 : offset / part_bytes, shape_.partitions - 1));
  ReadPart(partition, offset - partition * part_bytes, bytes);
  if (honest_ && !input_.OneIn(64)) return;
  const uint8_t mood = input_.Byte();
  if (mood == 255) return std::fill(bytes.begin(), bytes.end(), std::byte{0});
  if (mood >= 248) return Spoil(bytes);
  if (mood == 247) {
    const std::string raw = input_.Bytes(bytes.size());
    std::copy(raw.begin(), raw.end(), reinterpret_cast<char*>(bytes.data()));
  }
}

void HostileRegion::ReadPart(uint32_t partition, uint64_t offset, absl::Span<std::byte> bytes) {
  if (offset == 0 && bytes.size() <= sizeof(RegionHeader)) {
    std::byte header[sizeof(RegionHeader)];
    MakeHeader(partition, header);
    std::memcpy(bytes.data(), header, bytes.size());
    return;
  }
  if (offset < UnitsOffset()) {
    std::byte page[index::kDirectoryPageBytes];
    MakePage(partition, offset, page);
    std::memcpy(bytes.data(), page, std::min(bytes.size(), sizeof(page)));
    return;
  }
  if (ReadItem(partition, offset, bytes)) return;
  ReadLines(partition, offset, bytes);
}

void HostileRegion::MakeHeader(uint32_t partition, std::byte* to) {
  const bool lies = !honest_ && input_.OneIn(8);
  const uint32_t limit = index::DirectoryDepthLimit(PartBytes());
  if (input_.OneIn(4)) depth_ = std::min<uint32_t>(limit, depth_ + input_.Choice(3));
  RegionHeader header{};
  header.magic = index::kRegionMagic;
  header.layout_version = index::kLayoutVersion;
  header.directory_depth = depth_;
  header.incarnation = PlaceOf(partition, 0).incarnation;
  header.hash_seed = shape_.hash_seed;
  header.region_bytes = PartBytes();
  header.units_offset = UnitsOffset();
  if (lies) {
    switch (input_.Choice(6)) {
      case 0:
        header.directory_depth = static_cast<uint32_t>(input_.Number());
        break;
      case 1:
        header.incarnation = input_.Number();
        break;
      case 2:
        header.hash_seed = input_.Number();
        break;
      case 3:
        header.region_bytes = input_.Number();
        break;
      case 4:
        header.units_offset = input_.Number();
        break;
      case 5:
        header.layout_version = input_.Byte();
        break;
    }
  }
  Seal(header, version_ += 2, index::kRegionHeaderTag, {0, header.incarnation});
  std::memcpy(to, &header, sizeof(header));
}

void HostileRegion::MakePage(uint32_t partition, uint64_t offset, std::byte* to) {
  DirectoryPage page{};
  const uint64_t units = (ItemsOffset() - UnitsOffset()) / index::kUnitBytes;
  const uint32_t used = std::min<uint32_t>(index::kDirectoryEntriesPerPage, 1u << depth_);
  DirectoryEntry entry;
  for (uint32_t i = 0; i < used; ++i) {
    // The last one again and again when the input is used up.
    if (i < 16) {
      entry.unit = static_cast<uint32_t>(units == 0 ? 0 : input_.Byte() % units);
      entry.depth = depth_;
      entry.generation = AnyGeneration();
      if (!honest_ && input_.OneIn(8)) entry = DirectoryEntry::Unpack(input_.Any<uint64_t>());
    }
    page.entries[i] = entry.Pack();
  }
  Seal(page, version_ += 2, index::kDirectoryPageTag, PlaceOf(partition, offset));
  std::memcpy(to, &page, sizeof(page));
}

const Line& HostileRegion::LineAt(uint32_t partition, uint64_t offset, bool anew) {
  if (lines_.size() > kRecordsMax) lines_.clear();
  const auto [found, inserted] = lines_.try_emplace(KeyOf(partition, offset));
  if (!inserted && !anew) return found->second;
  Line line{};
  uint32_t at = 0;
  for (uint32_t entries = input_.Byte() % 8; entries > 0 && at < index::kLinkWord; --entries) {
    switch (input_.Choice(8)) {
      case 0:
        line.words[at++] = input_.Any<uint64_t>();
        break;
      case 1:
      case 2: {
        const std::string& key = AnyKey();
        index::InlineHead head;
        head.key_length = static_cast<uint32_t>(std::min<size_t>(key.size(), 127));
        head.value_length = input_.OneIn(8) ? input_.Byte() % 128 : input_.Byte() % 16;
        head.cas_version = input_.Byte();
        const uint32_t words = head.words();
        line.words[at] = head.Pack();
        const size_t room = (index::kLineWords - at - 1) * index::kWordBytes;
        std::memcpy(&line.words[at + 1], key.data(), std::min<size_t>(head.key_length, room));
        at += words;
        break;
      }
      default:
        line.words[at++] = AnySlot();
    }
  }
  if (input_.OneIn(4)) line.words[index::kLinkWord] = index::PackLink(AnyLineOffset());
  if (input_.OneIn(32)) line.words[index::kLinkWord] = input_.Any<uint64_t>();
  Seal(line, version_ += 2, AnyGeneration(), PlaceOf(partition, offset));
  found->second = line;
  return found->second;
}

// A window, the lines of a segment, a chain's line, or what confirms them: the first bytes of each
// line, and as many whole ones as fit.
void HostileRegion::ReadLines(uint32_t partition, uint64_t offset, absl::Span<std::byte> bytes) {
  const bool anew = !honest_ && input_.OneIn(16);
  for (size_t at = 0; at < bytes.size(); at += index::kLineBytes) {
    const Line& line = LineAt(partition, offset + at, anew);
    std::memcpy(bytes.data() + at, &line, std::min(sizeof(line), bytes.size() - at));
  }
}

std::byte HostileRegion::ByteOf(const Item& item, uint64_t at) {
  if (at < sizeof(item.header)) return reinterpret_cast<const std::byte*>(&item.header)[at];
  at -= sizeof(item.header);
  if (at < item.key.size()) return static_cast<std::byte>(item.key[at]);
  at -= item.key.size();
  if (at >= index::ItemFields::Unpack(item.header).value_length) return std::byte{0};
  return static_cast<std::byte>(item.pattern + at);
}

HostileRegion::Item HostileRegion::MakeItem(uint32_t partition, uint64_t offset) {
  Item item;
  const auto promised = promised_.find(offset);
  const bool keeps_it = promised != promised_.end() && !input_.OneIn(8);
  item.key = keeps_it ? promised->second.key : AnyKey();
  if (input_.OneIn(16)) item.key = input_.Text(300);
  item.pattern = input_.Byte();
  const uint64_t room = PartBytes() - offset;
  index::ItemFields fields;
  switch (keeps_it && promised->second.is_long ? 1 : input_.Choice(4)) {
    case 0:
      fields.value_length = input_.Byte();
      break;
    case 1:  // long ones, which come in pieces
      fields.value_length = uint64_t{input_.Byte()} << 12;
      break;
    case 2:
      fields.value_length = input_.Number() & 0xffffffff;
      break;
    case 3:
      fields.value_length = input_.Any<uint16_t>();
      break;
  }
  fields.cas_version = input_.Byte();
  if (input_.OneIn(4)) fields.expiry_ns = input_.Number() & ~uint64_t{0xffff};
  index::ItemTag tag;
  tag.key_length = static_cast<uint32_t>(item.key.size());
  tag.state = input_.OneIn(8) ? index::ItemState::kDead : index::ItemState::kLive;
  item.header.record.version = version_ += 2;
  item.header.record.tag = tag.Pack();
  if (input_.OneIn(16)) item.header.record.tag = input_.Any<uint32_t>();
  item.header.length_word = fields.length_word();
  item.header.cas_word = fields.cas_word();
  item.bytes = index::ItemBytes(item.key.size(), fields.value_length);
  if (item.bytes <= std::min(room, kItemBytesKept)) {
    std::vector<std::byte> data(item.bytes - sizeof(ItemHeader));
    for (size_t i = 0; i < data.size(); ++i) data[i] = ByteOf(item, sizeof(ItemHeader) + i);
    item.header.record.checksum =
        index::ItemChecksum(index::HashBytes(data), item.header, PlaceOf(partition, offset));
  } else {
    item.header.record.checksum = input_.Number();
  }
  return item;
}

// Of an item that begins there, or of the middle of one that began before.
bool HostileRegion::ReadItem(uint32_t partition, uint64_t offset, absl::Span<std::byte> bytes) {
  if (items_.size() > kRecordsMax) items_.clear();
  uint64_t start = offset;
  auto found = items_.upper_bound(KeyOf(partition, offset));
  if (found != items_.begin()) {
    --found;
    const uint64_t from = found->first & ((uint64_t{1} << 48) - 1);
    if (found->first >> 48 == partition && offset < from + found->second.bytes) start = from;
  }
  const bool known = items_.count(KeyOf(partition, start)) != 0;
  if (!known && offset < ItemsOffset()) return false;
  Item& item = items_[KeyOf(partition, start)];
  if (!known || (start == offset && !honest_ && input_.OneIn(16)))
    item = MakeItem(partition, start);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = ByteOf(item, offset - start + i);
  return true;
}

}  // namespace osprey::fuzz

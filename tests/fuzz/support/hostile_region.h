// A region that lies. Whatever is READ of it is made at that moment out of the fuzzer's bytes, and
// mostly so that the checksum fits. So readers accept it, and go where it leads.
//
//   HostileRegion region(shape, input);
//   region.WillBeAsked(key);           // lines and items are often of these keys
//   region.Read(offset, bytes);        // what a READ of [offset, offset + bytes.size()) brings
//
// What was READ once stands there from then on, so that confirmations are met as well. The input
// may choose otherwise, as a writer does, or a torn copy. The region does not check what may be
// READ: its user checks that against `shape` first.

#ifndef OSPREY_TESTS_FUZZ_SUPPORT_HOSTILE_REGION_H_
#define OSPREY_TESTS_FUZZ_SUPPORT_HOSTILE_REGION_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "index/layout/hash.h"
#include "index/layout/layout.h"
#include "index/layout/record.h"
#include "tests/fuzz/support/input.h"

namespace osprey::fuzz {

// What a Welcome tells of it.
struct RegionShape {
  uint64_t region_bytes = 0;
  uint32_t partitions = 1;
  uint64_t incarnation = 1;
  uint64_t hash_seed = 0;
};

class HostileRegion {
 public:
  HostileRegion(const RegionShape& shape, Input& input) : shape_(shape), input_(input) {}

  void WillBeAsked(std::string key);
  void Read(uint64_t offset, absl::Span<std::byte> bytes);
  const RegionShape& shape() const { return shape_; }
  // A slot that may lead somewhere.
  uint64_t AnySlot();
  // Where the next records are made as a writer makes them, until the input chooses otherwise.
  void set_honest(bool honest) { honest_ = honest; }

 private:
  struct Item {
    index::ItemHeader header{};
    std::string key;
    uint8_t pattern = 0;  // of the value's bytes
    uint64_t bytes = 0;   // header, key, value and padding
  };

  // All offsets from here on are from the partition's start.
  void ReadPart(uint32_t partition, uint64_t offset, absl::Span<std::byte> bytes);
  void MakeHeader(uint32_t partition, std::byte* to);
  void MakePage(uint32_t partition, uint64_t offset, std::byte* to);
  const index::Line& LineAt(uint32_t partition, uint64_t offset, bool anew);
  void ReadLines(uint32_t partition, uint64_t offset, absl::Span<std::byte> bytes);
  bool ReadItem(uint32_t partition, uint64_t offset, absl::Span<std::byte> bytes);
  Item MakeItem(uint32_t partition, uint64_t offset);
  static std::byte ByteOf(const Item& item, uint64_t at);
  void Spoil(absl::Span<std::byte> bytes);

  uint64_t PartBytes() const;
  uint64_t UnitsOffset() const { return index::UnitsOffset(PartBytes()); }
  // Items are from here on, lines before.
  uint64_t ItemsOffset() const;
  uint64_t AnyLineOffset();
  index::RecordPlace PlaceOf(uint32_t partition, uint64_t offset) const;
  const std::string& AnyKey();
  uint32_t AnyGeneration();

  const RegionShape shape_;
  Input& input_;
  bool honest_ = false;
  std::vector<std::string> keys_;
  uint32_t depth_ = 0;
  uint32_t version_ = 2;
  // By offset, what slots say of items.
  struct Promise {
    std::string key;
    bool is_long = false;  // READ in pieces
  };
  std::map<uint64_t, Promise> promised_;
  std::map<uint64_t, index::Line> lines_;  // by partition << 48 | offset, as items_
  std::map<uint64_t, Item> items_;
};

}  // namespace osprey::fuzz

#endif  // OSPREY_TESTS_FUZZ_SUPPORT_HOSTILE_REGION_H_

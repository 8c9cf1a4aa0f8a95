// Groups of entries: how the body of a record is made, and read.
//
//   GroupBuilder group(header);
//   group.Add(entry);                       for each entry, in the order of their lsns
//   log.Append({{RecordKind::kEntries, group.Parts()}});
//
// Thread rule: one thread for each object.

#ifndef OSPREY_SERVER_WAL_FORMAT_ENTRIES_H_
#define OSPREY_SERVER_WAL_FORMAT_ENTRIES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/wal/disk/file_system.h"
#include "server/wal/format/entry_format.h"

namespace osprey::server::wal {

// A part of a record's body.
struct BodyPart {
  Bytes bytes;
  // The log copies the bytes when they are appended. Pinned ones stay where they are: the caller
  // keeps them unchanged until the record is written.
  bool pinned = false;
};

struct Entry {
  EntryKind kind = EntryKind::kPut;
  uint64_t term = 0;
  uint64_t version = 0;
  uint64_t expiry = 0;  // ns, absolute; 0: none
  uint64_t client = 0;  // 0: no client's
  uint64_t sequence = 0;
  std::optional<EntryResult> result;  // absent: OK, with the entry's version and expiry
  bool has_number = false;            // the result's number is that of an increment
  std::optional<EntryBase> base;      // kExtend
  absl::string_view key;
  uint64_t value_length = 0;
  uint64_t value_checksum = 0;  // above kShortValueBytesMax: XXH3-64, unseeded; else 0
  Bytes value;                  // empty if it is in pieces
  std::vector<PieceRef> pieces;
};

// A put without a result of its own, and with a value of at most kShortValueBytesMax.
struct ShortPut {
  absl::string_view key;
  Bytes value;
  uint64_t version = 0;
  uint64_t expiry = 0;
  uint64_t client = 0;
  uint64_t sequence = 0;
};

// One without pinned values is one part.
using BodyParts = absl::InlinedVector<BodyPart, 3>;

class GroupBuilder {
 public:
  // `header.count` is counted here.
  explicit GroupBuilder(const GroupHeader& header) { Reset(header); }

  // Begins another group, in the memory of the last one, unless that was very long.
  void Reset(const GroupHeader& header);
  // Copies all but a value that is longer than kShortValueBytesMax. REQUIRES: the bounds that
  // ParseGroup checks.
  void Add(const Entry& entry);
  // As Add of an entry with these members. Most entries are such, and an Entry costs as much as this.
  void Add(const ShortPut& put);
  // Valid until the next Add, and for as long as the values.
  BodyParts Parts();
  uint64_t bytes() const { return copied_bytes_ + pinned_bytes_; }

 private:
  // The place of so many more bytes, valid until the next call.
  char* Extend(uint64_t bytes) {
    const uint64_t begin = copied_bytes_;
    copied_bytes_ += bytes;
    if (copied_bytes_ > copied_.size()) Grow();
    return copied_.data() + begin;
  }
  void Grow();
  char* Begin(EntryHeader& header, uint64_t bytes, uint64_t pinned_bytes);

  GroupHeader header_;
  std::string copied_;  // its first copied_bytes_ are used
  uint64_t copied_bytes_ = 0;
  std::vector<std::pair<size_t, Bytes>> pinned_;  // each behind so many of them
  uint64_t pinned_bytes_ = 0;
};

struct Group {
  GroupHeader header;
  std::vector<Entry> entries;  // they point into the body
};

// Reads the body of a record of kind kEntries. Returns why it is none; empty if it is one. Every
// offset and length is checked here.
std::string ParseGroup(Bytes body, Group& group);

}  // namespace osprey::server::wal

#endif  // OSPREY_SERVER_WAL_FORMAT_ENTRIES_H_

// The receiver of a table's changes, in their order, so that a log can repeat them.
//
// The table reports writes that succeeded, and evictions: all that changes which value a key has, or
// until when. A log can leave out expiries, which follow from the time. Moves of a key between forms
// and places are not reported.
//
// Thread rule: called by the thread that changes the table, after the change and before the call on
// the table returns. A call must not use the table.

#ifndef OSPREY_INDEX_WRITER_KEYS_CHANGES_H_
#define OSPREY_INDEX_WRITER_KEYS_CHANGES_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "index/layout/layout.h"

namespace osprey::index {

class Changes {
 public:
  virtual ~Changes() = default;
  // The key has this value. `expiry_ns`: server time; 0: never. Key and value are valid during the
  // call.
  virtual void OnPut(absl::string_view key, ByteSpan value, uint64_t version,
                     uint64_t expiry_ns) = 0;
  // The key has another expiry, and its value and version as before.
  virtual void OnExpire(absl::string_view key, uint64_t version, uint64_t expiry_ns) = 0;
  // The key is absent. Its value's version was `version`; the deletion has a version of its own.
  virtual void OnDelete(absl::string_view key, uint64_t version, uint64_t deletion) = 0;
  // Likewise, to make room.
  virtual void OnEvict(absl::string_view key, uint64_t version) = 0;
  // The key's value of that version has expired, and the table has removed it or is about to.
  virtual void OnExpired(absl::string_view key, uint64_t version) {
    (void)key;
    (void)version;
  }
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_WRITER_KEYS_CHANGES_H_

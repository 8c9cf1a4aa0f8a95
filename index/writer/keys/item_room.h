// Space for a new item when item space has none left: expired keys are swept, cold ones evicted,
// items moved; or the space for updates is lent.

#ifndef OSPREY_INDEX_WRITER_KEYS_ITEM_ROOM_H_
#define OSPREY_INDEX_WRITER_KEYS_ITEM_ROOM_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "index/space/compactor.h"
#include "index/space/update_room.h"
#include "index/writer/keys/evictor.h"
#include "index/writer/keys/expirer.h"
#include "index/writer/keys/keys.h"

namespace osprey::index {

// Not thread-safe.
class ItemRoom {
 public:
  // All must outlive this.
  ItemRoom(Keys& keys, Expirer& expirer, Evictor& evictor, Compactor& compactor,
           UpdateRoom& update_room)
      : keys_(keys),
        expirer_(expirer),
        evictor_(evictor),
        compactor_(compactor),
        update_room_(update_room) {}

  // Begins a new item, and frees space if there is none. Since any item may then move or end, the
  // key is located again if `at` is given.
  absl::optional<uint64_t> Begin(absl::string_view key, uint64_t value_length, Location* at,
                                 absl::Time now);
  // Begins an item in the space for updates, if the key's present value is as long already.
  absl::optional<uint64_t> BeginUpdate(absl::string_view key, uint64_t value_length,
                                       absl::Time now);
  // Begins an item for a replica's write: no key is evicted, or ended because it has expired.
  absl::optional<uint64_t> BeginHeld(absl::string_view key, uint64_t value_length, absl::Time now);
  // As Table::MayMakeRoom.
  bool MayMakeRoom(absl::string_view key, uint64_t value_length) const;

 private:
  absl::optional<uint64_t> BeginMoving(absl::string_view key, uint64_t value_length,
                                       absl::Time now);
  bool MayUseUpdateRoom(absl::string_view key, uint64_t bytes) const;

  Keys& keys_;
  Expirer& expirer_;
  Evictor& evictor_;
  Compactor& compactor_;
  UpdateRoom& update_room_;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_WRITER_KEYS_ITEM_ROOM_H_

// Values that arrive piece by piece (a rendezvous): items that no reader can reach yet.

#ifndef OSPREY_INDEX_WRITER_RESERVATION_H_
#define OSPREY_INDEX_WRITER_RESERVATION_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "index/layout/long_hash.h"
#include "index/space/item_store.h"
#include "index/space/update_room.h"
#include "index/writer/keys/pending_writes.h"

namespace osprey::index {

class Reservations;

// A span of item space that becomes an item. Move-only; destroying it without Table::Publish aborts.
// Must not outlive its Table. Other writes of the same key may come before Publish.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation();

  // The memory of the value (key and header are already there). Local or remote DMA writes may fill
  // it.
  absl::Span<std::byte> value() const { return value_; }
  // Hashes the next `bytes` of value(), which have arrived and will not change. So Publish need not
  // hash a long value, which would block all other requests. REQUIRES: there are so many.
  void Hash(uint64_t bytes);
  bool valid() const { return owner_ != nullptr; }
  // Frees the space; value() may no longer be written to.
  void Abort();

 private:
  friend class Reservations;
  friend class Table;  // which publishes it
  Reservation(Reservations* owner, uint64_t item);
  uint64_t item() const { return item_; }
  uint64_t HashRest();
  // Leaves the item to the caller.
  void Release();

  Reservations* owner_ = nullptr;
  uint64_t item_ = 0;  // its offset
  absl::Span<std::byte> value_;
  uint64_t hashed_ = 0;                  // bytes of value_
  std::unique_ptr<BytesHasher> hasher_;  // of the item's data
};

// What a replica's put of a value that comes in parts holds: the value's item, and a place for its key.
// Destroying it frees the item alone, Table::DropHeldValue both. Move-only.
struct HeldValue {
  HeldWrite place;
  Reservation reservation;
};

// All reservations of a table. Not thread-safe.
class Reservations {
 public:
  // Both must outlive this.
  Reservations(ItemStore& items, UpdateRoom& update_room)
      : items_(items), update_room_(update_room) {}

  // Of an item that was begun.
  Reservation Begin(uint64_t item) { return Reservation(this, item); }
  // The offsets of their items, which are not moved.
  const absl::flat_hash_set<uint64_t>& reserved() const { return reserved_; }

 private:
  friend class Reservation;

  ItemStore& items_;
  UpdateRoom& update_room_;
  absl::flat_hash_set<uint64_t> reserved_;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_WRITER_RESERVATION_H_

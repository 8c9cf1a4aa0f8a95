#include "index/writer/reservation.h"

#include <cassert>
#include <utility>

namespace osprey::index {

Reservation::Reservation(Reservations* owner, uint64_t item)
    : owner_(owner),
      item_(item),
      value_(owner->items_.Value(item)),
      hasher_(std::make_unique<BytesHasher>()) {
  const ByteSpan data = owner_->items_.Data(item);
  hasher_->Update(data.first(static_cast<size_t>(value_.data() - data.data())));
  owner_->reserved_.insert(item);
}

void Reservation::Hash(uint64_t bytes) {
  assert(valid() && bytes <= value_.size() - hashed_);
  hasher_->Update(value_.subspan(hashed_, bytes));
  hashed_ += bytes;
}

// Hashes the rest of the value, and the padding after it.
uint64_t Reservation::HashRest() {
  const ByteSpan data = owner_->items_.Data(item_);
  const auto value_at = static_cast<size_t>(value_.data() - data.data());
  hasher_->Update(data.subspan(value_at + hashed_));
  return hasher_->Digest();
}

Reservation::Reservation(Reservation&& other) noexcept { *this = std::move(other); }

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this == &other) return *this;
  Abort();
  owner_ = std::exchange(other.owner_, nullptr);
  item_ = other.item_;
  value_ = std::exchange(other.value_, {});
  hashed_ = other.hashed_;
  hasher_ = std::move(other.hasher_);
  return *this;
}

Reservation::~Reservation() { Abort(); }

void Reservation::Release() {
  owner_->reserved_.erase(item_);
  owner_ = nullptr;
  value_ = {};
}

void Reservation::Abort() {
  if (owner_ == nullptr) return;
  Reservations& owner = *owner_;
  Release();
  owner.items_.Discard(item_);
  owner.update_room_.TakeBack();
}

}  // namespace osprey::index

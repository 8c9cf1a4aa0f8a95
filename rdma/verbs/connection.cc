#include "rdma/verbs/connection.h"

#include <atomic>
#include <utility>

namespace osprey::rdma {
namespace {

// Relaxed: the values only have to differ.
std::atomic<uint64_t> next_serial{1};

}  // namespace

VerbsConnection* ConnectionTable::Add() {
  if (free_places_.empty()) {
    if (places_.size() > kPlaceMask) return nullptr;
    free_places_.push_back(places_.size());
    places_.emplace_back();
  }
  const uint64_t place = free_places_.back();
  free_places_.pop_back();
  places_[place] = std::make_unique<VerbsConnection>();
  const uint64_t serial = next_serial.fetch_add(1, std::memory_order_relaxed);
  places_[place]->id = static_cast<ConnectionId>((serial << kPlaceBits) | place);
  return places_[place].get();
}

std::unique_ptr<VerbsConnection> ConnectionTable::Remove(ConnectionId id) {
  if (Find(id) == nullptr) return nullptr;
  const uint64_t place = static_cast<uint64_t>(id) & kPlaceMask;
  free_places_.push_back(place);
  return std::move(places_[place]);
}

}  // namespace osprey::rdma

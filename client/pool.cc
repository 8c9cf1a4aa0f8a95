#include "client/pool.h"

#include <algorithm>
#include <cassert>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "client/common/errors.h"

namespace osprey {

namespace {

constexpr int kLanesMax = 4096;

}  // namespace

ClientPool::Lane::Lane(Lane&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), client_(std::move(other.client_)) {}

ClientPool::Lane& ClientPool::Lane::operator=(Lane&& other) noexcept {
  if (this == &other) return *this;
  Return();
  pool_ = std::exchange(other.pool_, nullptr);
  client_ = std::move(other.client_);
  return *this;
}

ClientPool::Lane::~Lane() { Return(); }

void ClientPool::Lane::Return() {
  if (client_ == nullptr) return;
  if (client_->in_flight() > 0) client_.reset();
  pool_->Return(std::move(client_));
}

absl::StatusOr<std::unique_ptr<ClientPool>> ClientPool::Create(absl::string_view uri,
                                                               const PoolOptions& options) {
  if (options.lanes_max < 1 || options.lanes_max > kLanesMax) {
    return client::BadOptionError("lanes_max", absl::StrCat(options.lanes_max),
                                  absl::StrCat("1 to ", kLanesMax));
  }
  std::unique_ptr<ClientPool> pool(new ClientPool(uri, options));
  if (absl::Status status = pool->Take().status(); !status.ok()) return status;
  return pool;
}

ClientPool::~ClientPool() {
  assert(static_cast<size_t>(lanes_) == idle_.size() && "a lane is still out");
}

absl::StatusOr<ClientPool::Lane> ClientPool::Take(absl::Duration wait) {
  if (wait < absl::ZeroDuration() || wait > kDeadlineMax())
    return client::BadDeadlineError(wait, kDeadlineMax());
  std::unique_lock<std::mutex> lock(mutex_);
  const auto there_is_one = [this] { return !idle_.empty() || lanes_ < options_.lanes_max; };
  if (!returned_.wait_for(lock, absl::ToChronoNanoseconds(wait), there_is_one)) {
    return MakeError(Reason::kLanesTaken,
                     absl::StrCat("all ", options_.lanes_max,
                                  " lanes are taken (PoolOptions::lanes_max); give one back, "
                                  "or wait longer"));
  }
  if (std::unique_ptr<Client> client = TakeIdle(); client != nullptr)
    return Lane(this, std::move(client));
  ++lanes_;  // reserves its place while it connects without the lock
  lock.unlock();
  return ConnectOne();
}

// The lane that this thread had last, otherwise the one used last. Null: there is none.
std::unique_ptr<Client> ClientPool::TakeIdle() {
  if (idle_.empty()) return nullptr;
  const std::thread::id self = std::this_thread::get_id();
  auto chosen =
      std::find_if(idle_.begin(), idle_.end(), [&](const Idle& idle) { return idle.last == self; });
  if (chosen == idle_.end()) chosen = std::prev(idle_.end());
  std::unique_ptr<Client> client = std::move(chosen->client);
  idle_.erase(chosen);
  return client;
}

absl::StatusOr<ClientPool::Lane> ClientPool::ConnectOne() {
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(uri_, options_.client);
  if (client.ok()) return Lane(this, *std::move(client));
  Return(nullptr);
  return client.status();
}

// Null: the Client is gone, and a new one may take its place.
void ClientPool::Return(std::unique_ptr<Client> client) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (client == nullptr) {
      --lanes_;
    } else {
      idle_.push_back({std::move(client), std::this_thread::get_id()});
    }
  }
  returned_.notify_one();
}

int ClientPool::lanes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return lanes_;
}

}  // namespace osprey

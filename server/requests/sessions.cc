#include "server/requests/sessions.h"

#include <cassert>
#include <utility>

namespace osprey::server {

ResultWindow::Lookup ResultWindow::Find(uint64_t sequence) const {
  const Seen seen = SeenOf(sequence);
  if (seen != Seen::kAnswered) return {seen, {}};
  return {seen, entries_[sequence % kResultsKept].result};
}

Sessions::Sessions(size_t sessions_max, std::function<uint64_t()> random)
    : sessions_max_(sessions_max), random_(std::move(random)) {}

Session& Sessions::Create(Connection* owner) {
  if (by_id_.size() >= sessions_max_) {
    assert(!kept_.empty());
    Forget(*kept_.front());
  }
  uint64_t id = 0;
  // 64 random bits: a second round is practically impossible. A hundredth means that `random` is
  // broken.
  for (int attempt = 0; id == 0 || by_id_.contains(id); ++attempt) {
    assert(attempt < 100);
    id = random_();
  }
  auto session = std::make_unique<Session>();
  session->id = id;
  session->owner = owner;
  Session& result = *session;
  by_id_.emplace(id, std::move(session));
  return result;
}

Session* Sessions::Find(uint64_t id) {
  auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : it->second.get();
}

void Sessions::Own(Session& session, Connection* owner) {
  assert(session.owner == nullptr && owner != nullptr);
  kept_.erase(session.place);
  session.owner = owner;
  session.keep_until = absl::InfiniteFuture();
}

void Sessions::Keep(Session& session, absl::Time now) {
  assert(session.owner != nullptr);
  session.owner = nullptr;
  session.keep_until = now + kSessionKept();
  session.place = kept_.insert(kept_.end(), &session);
}

void Sessions::Forget(Session& session) {
  assert(session.claimant == nullptr);
  if (session.owner == nullptr) kept_.erase(session.place);
  by_id_.erase(session.id);
}

size_t Sessions::Expire(absl::Time now) {
  size_t count = 0;
  while (!kept_.empty() && kept_.front()->keep_until <= now) {
    Forget(*kept_.front());
    ++count;
  }
  return count;
}

}  // namespace osprey::server

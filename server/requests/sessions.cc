#include "server/requests/sessions.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace osprey::server {

ResultWindow::Lookup ResultWindow::Find(uint64_t sequence) const {
  const Seen seen = SeenOf(sequence);
  if (seen != Seen::kAnswered) return {seen, {}};
  return {seen, entries_[sequence % kResultsKept].result};
}

std::vector<std::pair<uint64_t, Result>> ResultWindow::Remembered() const {
  std::vector<std::pair<uint64_t, Result>> results;
  for (const Entry& entry : entries_) {
    // An old answer keeps its place until a newer one takes it.
    if (entry.sequence != 0 && !IsForgotten(entry.sequence))
      results.emplace_back(entry.sequence, entry.result);
  }
  std::sort(results.begin(), results.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  return results;
}

Sessions::Sessions(size_t sessions_max, std::function<uint64_t()> random, SessionEvents events)
    : sessions_max_(sessions_max), random_(std::move(random)), events_(std::move(events)) {}

void Sessions::MakeRoom() {
  if (by_id_.size() < sessions_max_) return;
  assert(!kept_.empty());
  Forget(*kept_.front());
}

Session& Sessions::Create(Connection* owner) {
  MakeRoom();
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
  if (events_.begun) events_.begun(id);
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
  if (events_.ended) events_.ended(session.id);
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

void Sessions::Restore(const SessionImage& image, absl::Time now) {
  assert(image.id != 0 && !by_id_.contains(image.id));
  MakeRoom();
  auto session = std::make_unique<Session>();
  session->id = image.id;
  for (const auto& [sequence, answer] : image.results) {
    assert(sequence != 0);
    Result result = answer;
    result.slot_is_cursor = result.slot != 0;
    session->results.Remember(sequence, result);
  }
  session->keep_until = now + kSessionKept();
  session->place = kept_.insert(kept_.end(), session.get());
  by_id_.emplace(image.id, std::move(session));
}

std::vector<SessionImage> Sessions::Images() const {
  std::vector<const Session*> sessions(kept_.begin(), kept_.end());
  for (const auto& [id, session] : by_id_) {
    if (session->owner != nullptr) sessions.push_back(session.get());
  }
  // The map has no order of its own.
  std::sort(sessions.begin() + static_cast<ptrdiff_t>(kept_.size()), sessions.end(),
            [](const Session* a, const Session* b) { return a->id < b->id; });
  std::vector<SessionImage> images;
  images.reserve(sessions.size());
  for (const Session* session : sessions) {
    SessionImage& image = images.emplace_back();
    image.id = session->id;
    image.results = session->results.Remembered();
    for (auto& [sequence, result] : image.results) {
      if (!result.slot_is_cursor) result.slot = 0;
    }
  }
  return images;
}

}  // namespace osprey::server

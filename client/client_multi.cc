// Operations on many keys.

#include <algorithm>
#include <cassert>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/client.h"
#include "client/client_impl.h"
#include "client/multi.h"

namespace osprey {

namespace {

// The same answer for all keys.
template <typename T>
std::vector<absl::StatusOr<T>> All(size_t count, const absl::Status& status) {
  return std::vector<absl::StatusOr<T>>(count, status);
}

// A blocking call can refer to its arguments; an asynchronous one copies them.
std::vector<std::string> CopyOf(absl::Span<const absl::string_view> keys) {
  std::vector<std::string> copies;
  copies.reserve(keys.size());
  for (absl::string_view key : keys) copies.emplace_back(key);
  return copies;
}

std::vector<std::pair<std::string, std::string>> CopyOf(absl::Span<const KeyValue> items) {
  std::vector<std::pair<std::string, std::string>> copies;
  copies.reserve(items.size());
  for (const KeyValue& item : items) copies.emplace_back(item.key, item.value);
  return copies;
}

// Rounds of 16 GETs that are answered at once: Poll runs after some 100 us.
constexpr size_t kRoundsPerPoll = 64;

// Runs until all have ended. `start(i, callback)` starts the operation for key i, `key_of(i)`. An
// operation that cannot start by the deadline `end`, because others use up the limits, is answered
// with that error.
template <typename T, typename Impl, typename KeyOf, typename Start>
std::vector<absl::StatusOr<T>> BlockForAll(Impl& impl, size_t count, absl::Time end, KeyOf key_of,
                                           Start start) {
  client::Multi<T, Start> multi(count, client::PartsOf(impl.engines(), count, key_of),
                                std::move(start));
  multi.WaitForRoom(impl.engines(), end, /*polled=*/true);
  const auto advanced = [&] {
    multi.Advance();
    return multi.done();
  };
  if (!advanced()) impl.PollUntil(advanced, end);
  // Operations still in flight are late and end soon.
  if (!advanced()) impl.PollUntil(advanced, absl::InfiniteFuture());
  return multi.TakeResults();
}

// OK if a shard of the call has room for one of its keys.
absl::Status CheckRoomOf(client::ShardEngines& engines,
                         const std::vector<client::MultiPart>& parts) {
  absl::Status refused;
  for (uint32_t shard = 0; shard < parts.size(); ++shard) {
    if (parts[shard].empty()) continue;
    refused = engines.at(shard).start().CheckRoom();
    if (refused.ok()) return refused;
  }
  // (Without any key: shard 0 delivers the answer.)
  return refused.ok() ? engines.first().start().CheckRoom() : refused;
}

// Owns itself until it has called `done`.
template <typename T, typename Impl, typename KeyOf, typename Start, typename Done>
absl::Status StartAll(Impl& impl, size_t count, absl::Time end, KeyOf key_of, Start start,
                      Done done) {
  client::ShardEngines& engines = impl.engines();
  std::vector<client::MultiPart> parts = client::PartsOf(engines, count, key_of);
  if (absl::Status status = CheckRoomOf(engines, parts); !status.ok()) return status;
  auto holder = std::make_shared<std::unique_ptr<client::Multi<T, Start>>>();
  auto finish = [holder, done = std::move(done)]() mutable {
    std::vector<absl::StatusOr<T>> results = (*holder)->TakeResults();
    Done moved = std::move(done);
    holder->reset();  // and this with it
    moved(std::move(results));
  };
  *holder = std::make_unique<client::Multi<T, Start>>(count, std::move(parts), std::move(start));
  client::Multi<T, Start>& multi = **holder;
  if (engines.count() > 1) multi.WaitForRoom(engines, end, /*polled=*/false);
  multi.Advance();
  // Callbacks run in a later Poll, even if no operation was started.
  if (multi.done()) {
    engines.first().start().Defer(std::move(finish));
  } else {
    multi.set_on_done(std::move(finish));
  }
  return absl::OkStatus();
}

}  // namespace

void Client::Impl::Get(absl::string_view key, absl::StatusOr<Value>& answer,
                       absl::Duration deadline) {
  // (A sum of nanoseconds takes a third of the instructions of one of absl's types.)
  const int64_t now_ns = RawClockNs();
  const absl::Time now = absl::FromUnixNanos(now_ns);
  absl::Time end = absl::FromUnixNanos(now_ns + default_deadline_ns_);
  if (deadline != absl::ZeroDuration()) {
    const absl::StatusOr<absl::Time> own_end = DeadlineOf(deadline, now);
    if (!own_end.ok()) {
      answer = own_end.status();
      return;
    }
    end = *own_end;
  }
  if (engines_.count() > 1) return GetFromShard(key, answer, end, now);
  size_t unanswered = 0;
  size_t begun = 0;
  client::ClientEngine& engine = engines_.first();
  if (spins_ && engine.GetOne(key, answer, end, now, unanswered)) {
    begun = 1;
    if (unanswered == 0) return PollIfDue(now);
    engine.AwaitReads(unanswered, now);
  }
  AwaitAll({&key, 1}, &answer, end, now, begun, unanswered, /*waits_for_room=*/false);
}

void Client::Impl::GetAll(absl::Span<const absl::string_view> keys, absl::StatusOr<Value>* answers,
                          absl::Duration deadline, bool waits_for_room) {
  if (keys.empty()) return;
  const absl::Time now = client::Now();
  const absl::StatusOr<absl::Time> end = DeadlineOf(deadline, now);
  if (!end.ok()) {
    std::fill_n(answers, keys.size(), absl::StatusOr<Value>(end.status()));
    return;
  }
  if (engines_.count() > 1) return GetFromShards(keys, answers, *end, now, waits_for_room);
  client::ClientEngine& engine = engines_.first();
  size_t unanswered = 0;
  const size_t begun = engine.StartGets(keys, answers, *end, now, unanswered);
  // Most end here, before anything else need be done.
  if (unanswered > 0 && spins_) engine.AwaitReads(unanswered, now);
  AwaitAll(keys, answers, *end, now, begun, unanswered, waits_for_room);
}

// (Apart, for a client without shards to execute nothing of it.)
void Client::Impl::GetFromShard(absl::string_view key, absl::StatusOr<Value>& answer,
                                absl::Time end, absl::Time now) {
  assert(!engines_.polling() && "a callback may not call a blocking operation");
  size_t unanswered = 0;
  client::ClientEngine& engine = engines_.Of(key);
  if (!spins_ || !engine.GetOne(key, answer, end, now, unanswered))
    return GetFromShards({&key, 1}, &answer, end, now, /*waits_for_room=*/false);
  const auto is_answered = [&] { return unanswered == 0; };
  if (!is_answered()) engine.AwaitReads(unanswered, now);
  AwaitAnswers(is_answered, end, now);
}

// Begins GETs in all shards, and then awaits them: READs of all are under way at once.
void Client::Impl::GetFromShards(absl::Span<const absl::string_view> keys,
                                 absl::StatusOr<Value>* answers, absl::Time end, absl::Time now,
                                 bool waits_for_room) {
  assert(!engines_.polling() && "a callback may not call a blocking operation");
  // The keys of a shard, and the places of their answers.
  struct Part {
    client::MultiPart places;
    std::vector<absl::string_view> keys;
    std::vector<absl::StatusOr<Value>> answers;
    size_t begun = 0;
    size_t unanswered = 0;
    bool is_done() const { return begun == keys.size() && unanswered == 0; }
  };
  std::vector<client::MultiPart> places =
      client::PartsOf(engines_, keys.size(), [&](size_t i) { return keys[i]; });
  std::vector<Part> parts(places.size());
  for (size_t shard = 0; shard < parts.size(); ++shard) {
    Part& part = parts[shard];
    part.places = std::move(places[shard]);
    part.keys.reserve(part.places.size());
    for (const size_t place : part.places) part.keys.push_back(keys[place]);
    part.answers.resize(part.keys.size());
  }
  size_t rounds = 0;
  const auto begin_more = [&](Part& part, client::ClientEngine& engine) {
    while (part.begun < part.keys.size()) {
      const size_t more =
          engine.StartGets(absl::MakeSpan(part.keys).subspan(part.begun),
                           part.answers.data() + part.begun, end, now, part.unanswered);
      if (more == 0 && (part.unanswered > 0 ||
                        (waits_for_room && engine.in_flight() > 0 && client::Now() < end)))
        return;
      if (more == 0) part.answers[part.begun] = engine.start().CheckRoom();
      part.begun += std::max<size_t>(more, 1);
      if (part.begun < part.keys.size() && ++rounds % kRoundsPerPoll == 0)
        engines_.Poll(now = client::Now());
    }
  };
  const auto all_answered = [&] {
    bool all = true;
    for (size_t shard = 0; shard < parts.size(); ++shard) {
      begin_more(parts[shard], engines_.at(static_cast<uint32_t>(shard)));
      all = all && parts[shard].is_done();
    }
    return all;
  };
  if (!all_answered() && spins_) {
    for (size_t shard = 0; shard < parts.size(); ++shard) {
      if (parts[shard].unanswered > 0)
        engines_.at(static_cast<uint32_t>(shard)).AwaitReads(parts[shard].unanswered, now);
    }
  }
  AwaitAnswers(all_answered, end, now);
  for (Part& part : parts) {
    for (size_t i = 0; i < part.places.size(); ++i)
      answers[part.places[i]] = std::move(part.answers[i]);
  }
}

template <typename Predicate>
void Client::Impl::AwaitAnswers(const Predicate& all_answered, absl::Time end,
                                const absl::Time& now) {
  if (all_answered()) return PollIfDue(now);
  PollUntil(all_answered, end, now);
  // GETs still in flight are late and end soon.
  if (!all_answered()) PollUntil(all_answered, absl::InfiniteFuture());
}

// The first `begun` have begun, of which `unanswered` are under way. REQUIRES: there is one engine.
void Client::Impl::AwaitAll(absl::Span<const absl::string_view> keys,
                            absl::StatusOr<Value>* answers, absl::Time end, absl::Time now,
                            size_t begun, size_t& unanswered, bool waits_for_room) {
  size_t rounds = 0;
  const auto room_comes = [&] {
    return unanswered > 0 ||
           (waits_for_room && engines_.first().in_flight() > 0 && client::Now() < end);
  };
  const auto all_answered = [&] {
    while (begun < keys.size()) {
      const size_t more =
          engines_.first().StartGets(keys.subspan(begun), answers + begun, end, now, unanswered);
      if (more == 0 && room_comes()) return false;
      if (more == 0) answers[begun] = engines_.first().start().CheckRoom();
      begun += std::max<size_t>(more, 1);
      // Poll runs in between, however many GETs are answered at once.
      if (begun < keys.size() && ++rounds % kRoundsPerPoll == 0) engines_.Poll(now = client::Now());
    }
    return unanswered == 0;
  };
  // (As AwaitAnswers, by which a GET takes 14 instructions more.)
  if (all_answered()) return PollIfDue(now);
  PollUntil(all_answered, end, now);
  // GETs still in flight are late and end soon.
  if (!all_answered()) PollUntil(all_answered, absl::InfiniteFuture());
}

std::vector<absl::StatusOr<Value>> Client::MultiGet(absl::Span<const absl::string_view> keys,
                                                    absl::Duration deadline) {
  std::vector<absl::StatusOr<Value>> answers(keys.size());
  impl_->GetAll(keys, answers.data(), deadline, /*waits_for_room=*/true);
  return answers;
}

std::vector<absl::StatusOr<uint64_t>> Client::MultiPut(absl::Span<const KeyValue> items,
                                                       const WriteOptions& options) {
  const absl::StatusOr<absl::Time> end = impl_->WriteDeadlineOf(options.deadline);
  if (!end.ok()) return All<uint64_t>(items.size(), end.status());
  return BlockForAll<uint64_t>(
      *impl_, items.size(), *end, [&](size_t i) { return items[i].key; },
      [&](size_t i, WriteCallback done) {
        return impl_->StartOf(items[i].key)
            .Put(items[i].key, items[i].value, options, *end, std::move(done));
      });
}

std::vector<absl::StatusOr<uint64_t>> Client::MultiDelete(absl::Span<const absl::string_view> keys,
                                                          const WriteOptions& options) {
  const absl::StatusOr<absl::Time> end = impl_->WriteDeadlineOf(options.deadline);
  if (!end.ok()) return All<uint64_t>(keys.size(), end.status());
  return BlockForAll<uint64_t>(
      *impl_, keys.size(), *end, [&](size_t i) { return keys[i]; },
      [&](size_t i, WriteCallback done) {
        return impl_->StartOf(keys[i]).Delete(keys[i], options, *end, std::move(done));
      });
}

absl::Status Client::StartMultiGet(absl::Span<const absl::string_view> keys, MultiGetCallback done,
                                   absl::Duration deadline) {
  const absl::StatusOr<absl::Time> end = impl_->DeadlineOf(deadline);
  if (!end.ok()) return end.status();
  return StartAll<Value>(
      *impl_, keys.size(), *end, [&](size_t i) { return keys[i]; },
      [impl = impl_.get(), end = *end, keys = CopyOf(keys)](size_t i, GetCallback one) {
        return impl->StartOf(keys[i]).Get(keys[i], /*want_value=*/true, end, std::move(one));
      },
      std::move(done));
}

absl::Status Client::StartMultiPut(absl::Span<const KeyValue> items, const WriteOptions& options,
                                   MultiWriteCallback done) {
  const absl::StatusOr<absl::Time> end = impl_->WriteDeadlineOf(options.deadline);
  if (!end.ok()) return end.status();
  return StartAll<uint64_t>(
      *impl_, items.size(), *end, [&](size_t i) { return items[i].key; },
      [impl = impl_.get(), options, end = *end, items = CopyOf(items)](size_t i,
                                                                       WriteCallback one) {
        return impl->StartOf(items[i].first)
            .Put(items[i].first, items[i].second, options, end, std::move(one));
      },
      std::move(done));
}

absl::Status Client::StartMultiDelete(absl::Span<const absl::string_view> keys,
                                      const WriteOptions& options, MultiWriteCallback done) {
  const absl::StatusOr<absl::Time> end = impl_->WriteDeadlineOf(options.deadline);
  if (!end.ok()) return end.status();
  return StartAll<uint64_t>(
      *impl_, keys.size(), *end, [&](size_t i) { return keys[i]; },
      [impl = impl_.get(), options, end = *end, keys = CopyOf(keys)](size_t i, WriteCallback one) {
        return impl->StartOf(keys[i]).Delete(keys[i], options, end, std::move(one));
      },
      std::move(done));
}

}  // namespace osprey

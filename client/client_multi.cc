// Operations on many keys.

#include <algorithm>
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

// Runs until all have ended. `start(i, callback)` starts the operation for key i. An operation that
// cannot start by the deadline `end`, because others use up the limits, is answered with that
// error.
template <typename T, typename Impl, typename Start>
std::vector<absl::StatusOr<T>> BlockForAll(Impl& impl, size_t count, absl::Time end, Start start) {
  client::Multi<T, Start> multi(count, std::move(start));
  const auto advanced = [&] {
    multi.Advance(/*others=*/impl.engine().in_flight() > 0 && client::Now() < end);
    return multi.done();
  };
  if (!advanced()) impl.PollUntil(advanced, end);
  // Operations still in flight are late and end soon.
  if (!advanced()) impl.PollUntil(advanced, absl::InfiniteFuture());
  return multi.TakeResults();
}

// Owns itself until it has called `done`.
template <typename T, typename Start, typename Done>
absl::Status StartAll(client::ClientEngine& engine, size_t count, Start start, Done done) {
  if (absl::Status status = engine.start().CheckRoom(); !status.ok()) return status;
  auto holder = std::make_shared<std::unique_ptr<client::Multi<T, Start>>>();
  auto finish = [holder, done = std::move(done)]() mutable {
    std::vector<absl::StatusOr<T>> results = (*holder)->TakeResults();
    Done moved = std::move(done);
    holder->reset();  // and this with it
    moved(std::move(results));
  };
  *holder = std::make_unique<client::Multi<T, Start>>(count, std::move(start));
  client::Multi<T, Start>& multi = **holder;
  multi.Advance(/*others=*/false);
  // Callbacks run in a later Poll, even if no operation was started.
  if (multi.done()) {
    engine.start().Defer(std::move(finish));
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
  size_t unanswered = 0;
  size_t begun = 0;
  if (spins_ && engine_->GetOne(key, answer, end, now, unanswered)) {
    begun = 1;
    if (unanswered == 0) return PollIfDue(now);
    engine_->AwaitReads(unanswered, now);
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
  size_t unanswered = 0;
  const size_t begun = engine_->StartGets(keys, answers, *end, now, unanswered);
  // Most end here, before anything else need be done.
  if (unanswered > 0 && spins_) engine_->AwaitReads(unanswered, now);
  AwaitAll(keys, answers, *end, now, begun, unanswered, waits_for_room);
}

// The first `begun` have begun, of which `unanswered` are under way.
void Client::Impl::AwaitAll(absl::Span<const absl::string_view> keys,
                            absl::StatusOr<Value>* answers, absl::Time end, absl::Time now,
                            size_t begun, size_t& unanswered, bool waits_for_room) {
  size_t rounds = 0;
  const auto room_comes = [&] {
    return unanswered > 0 || (waits_for_room && engine_->in_flight() > 0 && client::Now() < end);
  };
  const auto all_answered = [&] {
    while (begun < keys.size()) {
      const size_t more =
          engine_->StartGets(keys.subspan(begun), answers + begun, end, now, unanswered);
      if (more == 0 && room_comes()) return false;
      if (more == 0) answers[begun] = engine_->start().CheckRoom();
      begun += std::max<size_t>(more, 1);
      // Poll runs in between, however many GETs are answered at once.
      if (begun < keys.size() && ++rounds % kRoundsPerPoll == 0) engine_->Poll(now = client::Now());
    }
    return unanswered == 0;
  };
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
  return BlockForAll<uint64_t>(*impl_, items.size(), *end, [&](size_t i, WriteCallback done) {
    return impl_->engine().start().Put(items[i].key, items[i].value, options, *end,
                                       std::move(done));
  });
}

std::vector<absl::StatusOr<uint64_t>> Client::MultiDelete(absl::Span<const absl::string_view> keys,
                                                          const WriteOptions& options) {
  const absl::StatusOr<absl::Time> end = impl_->WriteDeadlineOf(options.deadline);
  if (!end.ok()) return All<uint64_t>(keys.size(), end.status());
  return BlockForAll<uint64_t>(*impl_, keys.size(), *end, [&](size_t i, WriteCallback done) {
    return impl_->engine().start().Delete(keys[i], options, *end, std::move(done));
  });
}

absl::Status Client::StartMultiGet(absl::Span<const absl::string_view> keys, MultiGetCallback done,
                                   absl::Duration deadline) {
  const absl::StatusOr<absl::Time> end = impl_->DeadlineOf(deadline);
  if (!end.ok()) return end.status();
  client::ClientEngine& engine = impl_->engine();
  return StartAll<Value>(
      engine, keys.size(),
      [&engine, end = *end, keys = CopyOf(keys)](size_t i, GetCallback one) {
        return engine.start().Get(keys[i], /*want_value=*/true, end, std::move(one));
      },
      std::move(done));
}

absl::Status Client::StartMultiPut(absl::Span<const KeyValue> items, const WriteOptions& options,
                                   MultiWriteCallback done) {
  const absl::StatusOr<absl::Time> end = impl_->WriteDeadlineOf(options.deadline);
  if (!end.ok()) return end.status();
  client::ClientEngine& engine = impl_->engine();
  return StartAll<uint64_t>(
      engine, items.size(),
      [&engine, options, end = *end, items = CopyOf(items)](size_t i, WriteCallback one) {
        return engine.start().Put(items[i].first, items[i].second, options, end, std::move(one));
      },
      std::move(done));
}

absl::Status Client::StartMultiDelete(absl::Span<const absl::string_view> keys,
                                      const WriteOptions& options, MultiWriteCallback done) {
  const absl::StatusOr<absl::Time> end = impl_->WriteDeadlineOf(options.deadline);
  if (!end.ok()) return end.status();
  client::ClientEngine& engine = impl_->engine();
  return StartAll<uint64_t>(
      engine, keys.size(),
      [&engine, options, end = *end, keys = CopyOf(keys)](size_t i, WriteCallback one) {
        return engine.start().Delete(keys[i], options, end, std::move(one));
      },
      std::move(done));
}

}  // namespace osprey

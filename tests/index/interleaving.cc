#include "tests/index/interleaving.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace osprey::index {
namespace {

constexpr uint64_t kRegionBytes = 2 << 20;
constexpr size_t kReaders = 3;
// The step of expiries; a write has 10 to 50 stores.
constexpr uint64_t kTickNs = uint64_t{1} << kExpiryStepBits;

// A pool of keys by home, with keys of a shared fingerprint first in each home. Made once.
const std::map<uint32_t, std::vector<std::string>>& KeyPool() {
  static const auto* const pool = [] {
    std::map<uint64_t, std::vector<std::string>> by_fingerprint;
    for (int i = 0; i < 150000; ++i) {
      std::string key = absl::StrCat("k", i);
      const KeyHash hash = HashKey(key, kTestSeed);
      by_fingerprint[uint64_t{hash.home()} << 16 | hash.fingerprint()].push_back(std::move(key));
    }
    auto* homes = new std::map<uint32_t, std::vector<std::string>>;
    for (auto& [home_and_fingerprint, keys] : by_fingerprint) {
      std::vector<std::string>& home = (*homes)[static_cast<uint32_t>(home_and_fingerprint >> 16)];
      home.insert(keys.size() > 1 ? home.begin() : home.end(), keys.begin(), keys.end());
    }
    return homes;
  }();
  return *pool;
}

}  // namespace

Interleaving::Interleaving(uint64_t seed, Scene scene)
    : random_(seed), scene_(scene), evicting_(seed / 6 % 4 == 0), memory_(kRegionBytes) {
  TableOptions options;
  options.incarnation = kTestIncarnation;
  options.hash_seed = kTestSeed;
  options.reuse_grace = Random(3) == 0 ? absl::Seconds(1000) : absl::ZeroDuration();
  options.evict = evicting_;
  if (scene_ == Scene::kGrowing) options.split_percent = 0;
  if (scene_ == Scene::kExpiring) {
    options.clock = [this] { return absl::FromUnixNanos(static_cast<int64_t>(clock_ns_)); };
    const uint64_t errors[] = {0, kTickNs / 10, 10 * kTickNs};
    clock_error_ns_ = errors[Random(3)];
  }
  table_ = *Table::Create(memory_.span(), options);
  // Longer items are READ in pieces: none, some, or all that are longer than a head.
  const uint64_t whole[] = {kLookupReadBytesMax, 128, 0};
  whole_read_bytes_max_ = whole[seed % 3];
  ChooseKeys();
  readers_.resize(kReaders);
  for (Reader& reader : readers_) {
    reader.map = std::make_unique<DirectoryCache>(kTestIncarnation, kRegionBytes);
    FillMap(*reader.map, memory_.data());
  }
  store_observer = this;
  // Items move between the writes of half of the runs.
  compaction_forced = seed / 3 % 2 == 0;
  rewriting_forced = seed / 5 % 3 == 0;
  merging_forced = scene_ == Scene::kGrowing && seed % 2 == 0;
  low_runs_forced = scene_ == Scene::kGrowing && seed / 2 % 2 == 0;
}

Interleaving::~Interleaving() {
  store_observer = nullptr;
  compaction_forced = false;
  rewriting_forced = false;
  merging_forced = segment_moves_forced = low_runs_forced = false;
}

// Few keys, so that writes and reads collide. They have one home and its neighbour, so that they
// share lines. They are enough for a chain in half of the runs, and include twins of one
// fingerprint.
void Interleaving::ChooseKeys() {
  const auto home =
      std::next(KeyPool().begin(), static_cast<ptrdiff_t>(Random(KeyPool().size() - 1)));
  size_t of_home = Random(2) == 0 ? 2 + Random(4) : 28 + Random(20);
  if (scene_ == Scene::kGrowing && Random(3) == 0) of_home += 40;  // so that chains outlive a split
  const size_t of_next = Random(6);
  keys_.reserve(of_home + of_next);
  for (size_t i = 0; i < of_home; ++i) keys_.emplace_back().name = home->second[i];
  for (size_t i = 0; i < of_next; ++i) keys_.emplace_back().name = std::next(home)->second[i];
  const uint64_t bounds[] = {30, 60, 150, 400};
  value_bytes_max_ = bounds[Random(4)];
  // Values of one size reuse each other's space.
  value_bytes_min_ = Random(2) == 0 ? value_bytes_max_ - 1 : 0;
  // Reserve and Publish never write in place.
  const uint64_t percents[] = {5, 30, 90};
  reserve_percent_ = percents[Random(3)];
  delete_percent_ = 10 + Random(50);
}

std::string Interleaving::Run(int writes) {
  // Chains need full windows, so every key is present at first.
  for (Key& key : keys_) {
    BeginState(key, NewValue(key));
    const WriteResult result =
        table_->Put(key.name, BytesOf(*key.states.back().value), {}, TestTime(++now_));
    if (!result.status.ok()) wrong_ = "the region is too small for the test";
    key.completed = key.begun;
    key.version = result.version;
  }
  for (int i = 0; i < writes && wrong_.empty(); ++i) {
    if (scene_ == Scene::kExpiring) {
      WriteInTime(ChooseKey());
      if (wrong_.empty()) AskServer(ChooseKey());
      if (wrong_.empty()) Sweep();
    } else {
      Write();
    }
    if (scene_ == Scene::kGrowing && wrong_.empty()) Grow();
    if (compaction_forced && wrong_.empty()) Compact();
    if (evicting_ && wrong_.empty()) Evict();
  }
  return wrong_;
}

// Only at times, so that writes occur in every state between.
void Interleaving::Grow() {
  if (Random(20) == 0) {
    old_maps_.emplace_back(kTestIncarnation, kRegionBytes);
    FillMap(old_maps_.back(), memory_.data());
  }
  segment_moves_forced = merging_forced && Random(4) == 0;
  if (Random(6) == 0) table_->GrowStep(TestTime(++now_));
}

// An inline value, so that the write touches only the line that was already copied.
void Interleaving::BetweenCopyAndPublish(Table&) {
  for (Key& key : keys_) {
    const absl::StatusOr<Table::View> view = table_->Find(key.name);
    if (view.ok() && view->slot != 0) continue;
    BeginState(key, absl::StrCat("#", ++value_number_));
    const WriteResult result =
        table_->Put(key.name, BytesOf(*key.states.back().value), {}, TestTime(++now_));
    if (result.status.ok()) key.completed = key.begun;
    return;
  }
}

std::string Interleaving::NewValue(const Key& key) {
  std::string value = absl::StrCat(key.name, "#", ++value_number_, "#");
  const uint64_t bytes = std::max<uint64_t>(
      value.size(), value_bytes_min_ + Random(value_bytes_max_ - value_bytes_min_));
  value.resize(bytes, static_cast<char>('a' + value_number_ % 26));
  return value;
}

void Interleaving::BeginState(Key& key, absl::optional<std::string> value, uint64_t expiry_ns) {
  key.states.push_back({std::move(value), expiry_ns, false});
  key.begun = key.states.size() - 1;
}

// Mostly one key or two, so that it collides with readers.
Interleaving::Key& Interleaving::ChooseKey() {
  return keys_[Random(2) == 0 ? Random(std::min<uint64_t>(keys_.size(), 2)) : Random(keys_.size())];
}

void Interleaving::Write() {
  Key& key = ChooseKey();
  ++now_;
  WriteResult result;
  if (Random(100) < delete_percent_) {
    if (!key.states.back().value.has_value()) return;
    BeginState(key, absl::nullopt);
    result = table_->Delete(key.name, {}, TestTime(now_));
  } else if (Random(100) < reserve_percent_) {
    const std::string value = NewValue(key);
    absl::StatusOr<Reservation> reservation =
        table_->Reserve(key.name, value.size(), TestTime(now_));
    if (!reservation.ok()) {
      wrong_ = "the region is too small for the test";
      return;
    }
    for (size_t i = 0; i < value.size(); ++i) {
      BeforeStore();
      reservation->value()[i] = static_cast<std::byte>(value[i]);
    }
    BeginState(key, value);
    result = table_->Publish(*std::move(reservation), {}, TestTime(now_));
  } else {
    BeginState(key, NewValue(key));
    result = table_->Put(key.name, BytesOf(*key.states.back().value), {}, TestTime(now_));
  }
  if (!result.status.ok()) wrong_ = absl::StrCat("a write failed: ", result.status.ToString());
  key.completed = key.begun;
  if (result.slot != 0) key.hints.push_back(result.slot);
}

// --- Time ------------------------------------------------------------------

// A write whose key may expire during it.
void Interleaving::WriteInTime(Key& key) {
  ++now_;
  const State before = key.states.back();
  const uint64_t began_at_ns = clock_ns_;
  const bool present = before.value.has_value() && !HasPassed(before.expiry_ns);
  Condition condition;
  if (before.value.has_value() && Random(2) == 0)
    condition = {Condition::Kind::kVersionIs, key.version};
  const bool conditional = condition.kind == Condition::Kind::kVersionIs;
  // The table reads its clock before its first store, unless it has to end the key first.
  Lifetime lifetime;
  uint64_t expiry_ns = 0;
  if (present && Random(5) == 0) {
    lifetime = Lifetime::Kept();
    expiry_ns = before.expiry_ns;
  } else if ((present || !before.value.has_value()) && Random(4) != 0) {
    const uint64_t ttl_ns = kTickNs * (1 + Random(Random(3) == 0 ? 200 : 20));
    lifetime = Lifetime::For(absl::Nanoseconds(static_cast<int64_t>(ttl_ns)));
    expiry_ns = RoundUpToExpiry(clock_ns_ + ttl_ns);
  }
  const uint64_t rng = Random(100);
  WriteResult result;
  if (rng < 15) {
    BeginState(key, absl::nullopt);
    result = table_->Delete(key.name, condition, TestTime(now_));
    return EndWriteInTime(key, result, before.value.has_value(), began_at_ns);
  }
  if (rng < 45 && before.value.has_value() && lifetime.kind != Lifetime::Kind::kKept) {
    BeginState(key, before.value, expiry_ns);
    result = table_->Expire(key.name, condition, lifetime, TestTime(now_));
    return EndWriteInTime(key, result, true, began_at_ns);
  }
  const std::string value = NewValue(key);
  BeginState(key, value, expiry_ns);
  if (Random(100) < reserve_percent_) {
    absl::StatusOr<Reservation> reservation =
        table_->Reserve(key.name, value.size(), TestTime(now_));
    // Time passes while the value arrives; and the time from which the lifetime counts.
    store_observer = nullptr;
    std::memcpy(reservation->value().data(), value.data(), value.size());
    store_observer = this;
    if (clock_ns_ != began_at_ns) {
      // Reserve has stored something.
      State& state = key.states.back();
      if (lifetime.kind == Lifetime::Kind::kLimited) {
        state.expiry_ns = RoundUpToExpiry(
            clock_ns_ + static_cast<uint64_t>(absl::ToInt64Nanoseconds(lifetime.ttl)));
      }
      if (before.value.has_value() && HasPassed(before.expiry_ns)) {
        lifetime = Lifetime::Forever();
        state.expiry_ns = 0;
      }
    }
    result = table_->Publish(*std::move(reservation), condition, TestTime(now_), lifetime);
  } else {
    result = table_->Put(key.name, BytesOf(value), condition, TestTime(now_), lifetime);
  }
  EndWriteInTime(key, result, conditional, began_at_ns);
}

void Interleaving::EndWriteInTime(Key& key, const WriteResult& result, bool needs_presence,
                                  uint64_t began_at_ns) {
  State& before = key.states[key.begun - 1];
  State& after = key.states[key.begun];
  const bool was_present = before.value.has_value();
  if (was_present && began_at_ns < before.expiry_ns && HasPassed(before.expiry_ns))
    ++counts_.expired_in_write;
  if (result.status.ok()) {
    if (needs_presence && HasPassed(before.expiry_ns) && began_at_ns >= before.expiry_ns)
      wrong_ = absl::StrCat("a write found ", key.name, ", which had expired before it began");
    // The key was present at an instant of this write, and from then on with the new value.
    const bool prolonged = before.expiry_ns != 0 && after.value.has_value() &&
                           (after.expiry_ns == 0 || after.expiry_ns > before.expiry_ns);
    if (needs_presence && prolonged) {
      before.outlived = true;
      if (key.seen == 2 * key.begun - 1)
        wrong_ = absl::StrCat(key.name, " came back, which a GET had found expired");
    }
    key.version = result.version;
    if (result.slot != 0) key.hints.push_back(result.slot);
  } else if (absl::IsNotFound(result.status) && needs_presence &&
             (!was_present || HasPassed(before.expiry_ns))) {
    if (key.seen >= 2 * key.begun)
      wrong_ = absl::StrCat("a value of ", key.name, " was seen that was never written");
    after = State();
  } else if (absl::IsNotFound(result.status) && !after.value.has_value()) {
    // There was no key to delete.
    if (was_present && !HasPassed(before.expiry_ns))
      wrong_ = absl::StrCat("a delete did not find ", key.name);
  } else {
    wrong_ = absl::StrCat("a write of ", key.name, " failed: ", result.status.ToString());
  }
  key.completed = key.begun;
}

// At times runs all steps that are due; sweep periods pass meanwhile.
void Interleaving::Sweep() {
  if (Random(8) != 0) return;
  now_ += 1000;
  const absl::Time now = absl::FromUnixNanos(static_cast<int64_t>(clock_ns_)) + absl::Seconds(now_);
  for (int i = 0; i < 100 && table_->SweepStep(now); ++i) {
  }
}

// A GET by message, between two writes.
void Interleaving::AskServer(Key& key) {
  const absl::StatusOr<Table::View> view = table_->Find(key.name);
  absl::optional<std::string> answer;
  if (view.ok()) answer = TextOf(view->value);
  Judge(key, std::max(2 * key.completed, key.seen), clock_ns_, answer,
        view.ok() ? view->expiry_ns : 0);
}

// A few steps or none, so short that a copy takes several, with writes in between. They change the
// state of no key.
void Interleaving::Compact() {
  const CompactionBound bound{1 + Random(4), uint64_t{64} << Random(7)};
  for (uint64_t steps = Random(4); steps > 0; --steps) table_->CompactStep(TestTime(now_), bound);
}

// Rare, so that most keys are present most of the time. The state of an evicted key is known when
// its eviction ends.
void Interleaving::Evict() {
  if (Random(20) != 0) return;
  evictions_forced = static_cast<uint32_t>(1 + Random(3));
  table_->EvictStep(TestTime(++now_));
  evictions_forced = 0;
  for (Key& key : keys_) key.completed = key.begun;
}

void Interleaving::BeforeEviction(absl::string_view name) {
  for (Key& key : keys_) {
    if (key.name == name) BeginState(key, absl::nullopt);
  }
}

// --- Readers ---------------------------------------------------------------

void Interleaving::BeforeStore() {
  if (scene_ == Scene::kExpiring && Random(3) == 0) clock_ns_ += Random(kTickNs);
  for (Reader& reader : readers_) {
    if (reader.stalled > 0) {
      --reader.stalled;
      continue;
    }
    const uint64_t rng = Random(100);
    // Nothing; a few pieces; about a READ; several GETs.
    uint64_t pieces = 0;
    if (rng >= 60) pieces = 1 + Random(4);
    if (rng >= 80) pieces = Random(40);
    if (rng >= 96) pieces = Random(1000);
    while (pieces-- > 0 && reader.stalled == 0 && wrong_.empty()) Advance(reader);
    if (Random(60) == 0) reader.stalled = static_cast<int>(Random(200));
  }
}

void Interleaving::Advance(Reader& reader) {
  if (reader.lookup == nullptr) return StartGet(reader);
  if (!reader.pieces.empty()) {
    const Piece piece = reader.pieces.back();
    reader.pieces.pop_back();
    std::memcpy(reader.bytes.data() + piece.from, memory_.data() + reader.step.offset + piece.from,
                piece.bytes);
    return;
  }
  if (reader.step.kind == Lookup::Kind::kReadValue) {
    TakeValue(reader);
  } else {
    reader.time.latest_ns = clock_ns_ + Random(clock_error_ns_ + 1);
    if (scene_ != Scene::kExpiring || Random(50) == 0) reader.time = {};
    reader.step = reader.lookup->Resume(reader.bytes, reader.time);
  }
  const bool goes_on =
      reader.step.kind == Lookup::Kind::kRead || reader.step.kind == Lookup::Kind::kReadValue;
  if (!goes_on) return EndGet(reader);
  PostRead(reader);
  reader.stalled = reader.step.backoff * static_cast<int>(1 + Random(10));
}

// All pieces have landed, in any order; they are hashed in order.
void Interleaving::TakeValue(Reader& reader) {
  ByteSpan left(reader.bytes);
  while (!left.empty()) {
    const size_t bytes = std::min<size_t>(left.size(), 1 + Random(100));
    reader.lookup->TakeValue(left.first(bytes));
    left.remove_prefix(bytes);
  }
  reader.value = TextOf(reader.bytes);
  reader.step = reader.lookup->FinishValue();
  ++counts_.in_pieces;
  if (reader.step.kind != Lookup::Kind::kHit) ++counts_.torn_in_pieces;
}

void Interleaving::StartGet(Reader& reader) {
  Key& key = ChooseKey();
  reader.key = &key;
  reader.floor = std::max(2 * key.completed, key.seen);
  reader.began_at_ns = clock_ns_;
  // A client's cache may hold any slot that was ever the key's, mostly a recent one.
  uint64_t hint = 0;
  if (!key.hints.empty() && Random(2) == 0) {
    const size_t back =
        Random(3) == 0 ? Random(key.hints.size()) : Random(std::min<size_t>(key.hints.size(), 3));
    hint = key.hints[key.hints.size() - 1 - back];
  }
  LookupOptions options;
  options.whole_read_bytes_max = whole_read_bytes_max_;
  if (!old_maps_.empty() && Random(10) == 0) {
    *reader.map = old_maps_[Random(old_maps_.size())];
  }
  reader.lookup = std::make_unique<Lookup>(*reader.map, key.name, options);
  reader.step = reader.lookup->Start(hint);
  PostRead(reader);
}

void Interleaving::PostRead(Reader& reader) {
  reader.time.earliest_ns = clock_ns_ - Random(clock_error_ns_ + 1);
  if (reader.step.offset == 0) ++counts_.refreshes;  // the header
  const uint32_t length = reader.step.kind == Lookup::Kind::kReadValue
                              ? static_cast<uint32_t>(reader.step.value_length)
                              : reader.step.length;
  if (reader.step.offset > kRegionBytes || length > kRegionBytes - reader.step.offset) {
    wrong_ = "a READ outside the region";
    return;
  }
  reader.bytes.assign(length, std::byte{0});
  reader.pieces.clear();
  const uint32_t grains[] = {1, 8, 8, 16, 64};
  const uint32_t grain = grains[Random(5)];
  for (uint32_t from = 0; from < length; from += grain) {
    reader.pieces.push_back({from, std::min(grain, length - from)});
  }
  switch (Random(4)) {
    case 0:  // ascending
      std::reverse(reader.pieces.begin(), reader.pieces.end());
      break;
    case 1:  // descending
      break;
    case 2:  // any order
      std::shuffle(reader.pieces.begin(), reader.pieces.end(), random_);
      break;
    case 3:  // in two halves, the second first
      std::rotate(reader.pieces.begin(),
                  reader.pieces.begin() + static_cast<ptrdiff_t>(Random(reader.pieces.size())),
                  reader.pieces.end());
      break;
  }
}

void Interleaving::EndGet(Reader& reader) {
  Key& key = *reader.key;
  const Lookup::Step& step = reader.step;
  const LookupCounters& counters = reader.lookup->counters();
  ++counts_.gets;
  counts_.reads += counters.reads;
  counts_.torn += counters.torn;
  counts_.restarts += counters.restarts;
  counts_.stale_hints += counters.stale_hints;
  absl::optional<std::string> answer;
  if (step.kind == Lookup::Kind::kHit) {
    ++counts_.hits;
    answer = step.in_pieces ? reader.value : TextOf(step.value);
    if (step.slot != 0) key.hints.push_back(step.slot);
  } else if (step.kind == Lookup::Kind::kMiss) {
    ++counts_.misses;
  } else {
    ++counts_.asked_server;
    reader.lookup.reset();
    return;
  }
  reader.lookup.reset();
  Judge(key, reader.floor, reader.began_at_ns, answer, step.expiry_ns);
}

// The oldest possible answer, which restricts other GETs least.
void Interleaving::Judge(Key& key, uint64_t floor, uint64_t began_at_ns,
                         const absl::optional<std::string>& answer, uint64_t expiry_ns) {
  for (uint64_t at = floor; at <= 2 * key.begun + 1; ++at) {
    const State& state = key.states[at / 2];
    const bool expired = at % 2 == 1;
    if (expired) {
      if (answer.has_value() || state.outlived || !HasPassed(state.expiry_ns)) continue;
      ++counts_.found_expired;
    } else {
      if (state.value != answer) continue;
      if (answer.has_value() && state.expiry_ns != expiry_ns) continue;
      if (state.expiry_ns != 0 && began_at_ns >= state.expiry_ns) continue;
    }
    key.seen = std::max(key.seen, at);
    return;
  }
  wrong_ =
      absl::StrCat("GET of ", key.name, " answered ", answer.has_value() ? *answer : "'not found'",
                   ", which is none of its states ", floor / 2, " to ", key.begun);
}

}  // namespace osprey::index

#include "tests/interleaving.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace osprey::index {
namespace {

constexpr uint64_t kRegionBytes = 2 << 20;
constexpr size_t kReaders = 3;

// A pool of keys by home, and in each home those that share a fingerprint first. Made once.
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

Interleaving::Interleaving(uint64_t seed, bool growing)
    : random_(seed), growing_(growing), evicting_(seed / 6 % 4 == 0), memory_(kRegionBytes) {
  TableOptions options;
  options.incarnation = kTestIncarnation;
  options.hash_seed = kTestSeed;
  options.reuse_grace = Random(3) == 0 ? absl::Seconds(1000) : absl::ZeroDuration();
  options.evict = evicting_;
  if (growing_) options.split_percent = 0;
  table_ = *Table::Create(memory_.span(), options);
  // Items above are READ in pieces: none, some, all that are longer than a head.
  const uint64_t whole[] = {kLookupReadBytesMax, 128, 0};
  whole_read_bytes_max_ = whole[seed % 3];
  ChooseKeys();
  readers_.resize(kReaders);
  for (Reader& reader : readers_) {
    reader.map = std::make_unique<RegionMap>(kTestIncarnation, kRegionBytes);
    FillMap(*reader.map, memory_.data());
  }
  store_observer = this;
  // Items move between the writes of half of the runs.
  compaction_forced = seed / 3 % 2 == 0;
}

Interleaving::~Interleaving() {
  store_observer = nullptr;
  compaction_forced = false;
}

// Few keys, so that they are written while they are read; of one home and its neighbour, so that
// they share lines; enough for a chain in half of the runs; twins of one fingerprint among them.
void Interleaving::ChooseKeys() {
  const auto home =
      std::next(KeyPool().begin(), static_cast<ptrdiff_t>(Random(KeyPool().size() - 1)));
  size_t of_home = Random(2) == 0 ? 2 + Random(4) : 28 + Random(20);
  if (growing_ && Random(3) == 0) of_home += 40;  // so that chains outlive a split
  const size_t of_next = Random(6);
  keys_.reserve(of_home + of_next);
  for (size_t i = 0; i < of_home; ++i) keys_.emplace_back().name = home->second[i];
  for (size_t i = 0; i < of_next; ++i) keys_.emplace_back().name = std::next(home)->second[i];
  const uint64_t bounds[] = {30, 60, 150, 400};
  value_bytes_max_ = bounds[Random(4)];
  // Values of one size take each other's places.
  value_bytes_min_ = Random(2) == 0 ? value_bytes_max_ - 1 : 0;
  // Reserve and Publish never write in place.
  const uint64_t percents[] = {5, 30, 90};
  reserve_percent_ = percents[Random(3)];
  delete_percent_ = 10 + Random(50);
}

std::string Interleaving::Run(int writes) {
  // Chains need full windows: every key is there at first.
  for (Key& key : keys_) {
    BeginState(key, NewValue(key));
    if (table_->Put(key.name, BytesOf(*key.states.back()), {}, TestTime(++now_)).status.ok()) {
      key.completed = key.begun;
    } else {
      wrong_ = "the region is too small for the test";
    }
  }
  for (int i = 0; i < writes && wrong_.empty(); ++i) {
    Write();
    if (growing_ && wrong_.empty()) Grow();
    if (compaction_forced && wrong_.empty()) Compact();
    if (evicting_ && wrong_.empty()) Evict();
  }
  return wrong_;
}

// Now and then, so that there are writes in every state between.
void Interleaving::Grow() {
  if (Random(20) == 0) {
    old_maps_.emplace_back(kTestIncarnation, kRegionBytes);
    FillMap(old_maps_.back(), memory_.data());
  }
  if (Random(6) == 0) table_->GrowStep(TestTime(++now_));
}

// An inline value, so that the write needs nothing but the line that was already copied.
void Interleaving::BetweenCopyAndPublish() {
  for (Key& key : keys_) {
    const absl::StatusOr<Table::View> view = table_->Find(key.name);
    if (view.ok() && view->slot != 0) continue;
    BeginState(key, absl::StrCat("#", ++value_number_));
    const WriteResult result =
        table_->Put(key.name, BytesOf(*key.states.back()), {}, TestTime(++now_));
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

void Interleaving::BeginState(Key& key, absl::optional<std::string> value) {
  key.states.push_back(std::move(value));
  key.begun = key.states.size() - 1;
}

void Interleaving::Write() {
  // Mostly one key or two, so that readers of it are in its way.
  Key& key =
      keys_[Random(2) == 0 ? Random(std::min<uint64_t>(keys_.size(), 2)) : Random(keys_.size())];
  ++now_;
  WriteResult result;
  if (Random(100) < delete_percent_) {
    if (!key.states.back().has_value()) return;
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
    result = table_->Put(key.name, BytesOf(*key.states.back()), {}, TestTime(now_));
  }
  if (!result.status.ok()) wrong_ = absl::StrCat("a write failed: ", result.status.ToString());
  key.completed = key.begun;
  if (result.slot != 0) key.hints.push_back(result.slot);
}

// A few steps or none, so short that a copy takes several, with writes in between. No key gets
// another state by it.
void Interleaving::Compact() {
  const CompactionBound bound{1 + Random(4), uint64_t{64} << Random(7)};
  for (uint64_t steps = Random(4); steps > 0; --steps) table_->CompactStep(TestTime(now_), bound);
}

// Not often, so that most keys are there most of the time. What has become of a key that was
// evicted is known when its eviction ends.
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
  for (Reader& reader : readers_) {
    if (reader.stalled > 0) {
      --reader.stalled;
      continue;
    }
    const uint64_t dice = Random(100);
    // Nothing; a few pieces; about a READ; several GETs.
    uint64_t pieces = 0;
    if (dice >= 60) pieces = 1 + Random(4);
    if (dice >= 80) pieces = Random(40);
    if (dice >= 96) pieces = Random(1000);
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
    reader.step = reader.lookup->Resume(reader.bytes);
  }
  const bool goes_on =
      reader.step.kind == Lookup::Kind::kRead || reader.step.kind == Lookup::Kind::kReadValue;
  if (!goes_on) return EndGet(reader);
  PostRead(reader);
  reader.stalled = reader.step.backoff * static_cast<int>(1 + Random(10));
}

// All of it has landed, in whatever order; it is hashed in order.
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
  Key& key =
      keys_[Random(2) == 0 ? Random(std::min<uint64_t>(keys_.size(), 2)) : Random(keys_.size())];
  reader.key = &key;
  reader.floor = std::max(key.completed, key.seen);
  // Any slot that was ever the key's may be in a client's cache, mostly a recent one.
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
  reader.lookup = std::make_unique<Lookup>(*reader.map, key.name, hint, options);
  reader.step = reader.lookup->Start();
  PostRead(reader);
}

void Interleaving::PostRead(Reader& reader) {
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
  for (uint64_t state = reader.floor; state <= key.begun; ++state) {
    if (key.states[state] != answer) continue;
    key.seen = std::max(key.seen, state);
    return;
  }
  wrong_ =
      absl::StrCat("GET of ", key.name, " answered ", answer.has_value() ? *answer : "'not found'",
                   ", which is none of its states ", reader.floor, " to ", key.begun);
}

}  // namespace osprey::index

#include "tests/server/cluster/table/table_world.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/layout/layout.h"

namespace osprey::server {
namespace {

constexpr uint64_t kMillisecondNs = 1000000;
constexpr uint64_t kSessions = 3;
constexpr uint64_t kClocksDifferMs = 5000;
// Of a client, on what it READs.
constexpr absl::Duration kLease = absl::Milliseconds(400);

}  // namespace

// --- A server ------------------------------------------------------------------

TableNode::TableNode(const TableWorldOptions& options, uint64_t memory_bytes,
                     const absl::Time& clock, absl::Duration ahead_of_it, uint64_t id)
    : memory(memory_bytes), now(clock), ahead(ahead_of_it) {
  std::vector<PartitionChanges*> receivers;
  for (uint32_t i = 0; i < TableWorld::kPartitions; ++i) {
    changes.push_back(
        std::make_unique<ReplicatedChanges>(i, *this, [this] { return tables->LastVersion(); }));
    receivers.push_back(changes.back().get());
  }
  index::TableOptions table;
  table.incarnation = id;
  table.hash_seed = 77;
  table.evict = options.evict;
  table.clock = [this] { return Now(); };
  tables = *Tables::Create(memory.span(), TableWorld::kPartitions, table, receivers);
  replica.emplace(*tables, id);
}

void TableNode::Decide(uint32_t, std::string body, uint64_t entries) {
  groups.emplace_back(std::move(body), entries);
}

void TableNode::Maintain() {
  for (uint32_t i = 0; i < tables->partitions(); ++i) {
    const LockedTable table = tables->Lock(i);
    (void)table->GrowStep(Now());
    (void)table->SweepStep(Now());
    (void)table->EvictStep(Now());
    (void)table->CompactStep(Now());
  }
}

// --- Requests --------------------------------------------------------------------

TableWorld::TableWorld(const TableWorldOptions& options)
    : options_(options), random_(options.seed) {
  nodes_.push_back(NewNode(/*is_primary=*/true));
  for (int i = 0; i < 2; ++i) {
    nodes_.push_back(NewNode(/*is_primary=*/false));
    nodes_.back()->replica->BeginBackup();
    nodes_.back()->in_sync = true;
  }
}

std::unique_ptr<TableNode> TableWorld::NewNode(bool is_primary) {
  return std::make_unique<TableNode>(
      options_, is_primary ? options_.memory_bytes : options_.backup_memory_bytes, now_,
      absl::Milliseconds(random_.Below(kClocksDifferMs)), 1000 + ++ids_);
}

std::string TableWorld::Value() {
  if (random_.Chance(options_.long_values))
    return std::string(1 + random_.Below(options_.long_value_bytes), 'l');
  const uint64_t bytes[] = {8, 40, 300, 5000};
  const uint64_t length = random_.Below(bytes[random_.Below(4)]);
  return std::string(length, static_cast<char>('a' + random_.Below(26)));
}

KeyedRequest TableWorld::RandomRequest(Decided& decided) {
  KeyedRequest request;
  const uint64_t kind = random_.Below(12);
  std::string value;
  const bool is_counter = kind == 6;
  decided.key = absl::StrCat(is_counter ? "counter" : "key",
                             random_.Below(static_cast<uint64_t>(options_.keys)));
  if (kind < 6) {
    request.opcode = rdma::Opcode::kPut;
    value = Value();
    if (random_.Chance(25)) request.ttl_ns = (1 + random_.Below(3000)) * kMillisecondNs;
    if (random_.Chance(15)) request.condition.kind = index::Condition::Kind::kAbsent;
  } else if (kind == 6) {
    request.opcode = rdma::Opcode::kIncrement;
    request.by = 1 + static_cast<int64_t>(random_.Below(9));
  } else if (kind == 7) {
    request.opcode = rdma::Opcode::kAppend;
    value = std::string(1 + random_.Below(200), '+');
  } else if (kind < 10) {
    request.opcode = rdma::Opcode::kExpire;
    if (random_.Chance(60)) request.ttl_ns = (1 + random_.Below(3000)) * kMillisecondNs;
  } else {
    request.opcode = rdma::Opcode::kDelete;
  }
  decided.frame = std::move(value);
  request.key = decided.key;
  request.value = AsFrameBytes(decided.frame);
  request.hash = primary().tables->HashOf(decided.key);
  if (request.condition.kind == index::Condition::Kind::kNone && random_.Chance(20)) {
    const absl::StatusOr<index::Table::View> view =
        primary().tables->Lock(primary().tables->PartitionOf(request.hash))->Find(decided.key);
    if (view.ok()) request.condition = {index::Condition::Kind::kVersionIs, view->version};
  }
  return request;
}

void TableWorld::DecideSome() {
  const uint64_t count = 1 + random_.Below(8);
  for (uint64_t i = 0; i < count; ++i) {
    Decided& one = decided_.emplace_back();
    one.request = RandomRequest(one);
    one.partition = primary().tables->PartitionOf(one.request.hash);
    const uint64_t session = 1 + random_.Below(kSessions);
    one.write = {session, ++sequences_[session], one.request.opcode};
    const LockedTable table = primary().tables->Lock(one.partition);
    PartitionChanges& changes = *table.changes();
    changes.SetWrite(&one.write);
    Verdict verdict;
    if (!changes.IsPending(one.request.hash.bits))
      verdict = server::Decide(*table, one.request, kReplicatedValueBytesMax, primary().Now());
    if (!verdict.decision.has_value()) {
      decided_.pop_back();
      continue;
    }
    one.decision = *std::move(verdict.decision);
    Report(one.decision, {one.request.key, one.request.hash}, changes);
    Expect(one);
  }
  DecideMark();
  TakeGroups();
}

// --- A value in parts ----------------------------------------------------------

void TableWorld::BeginParted() {
  Decided one;
  one.key = absl::StrCat("key", random_.Below(static_cast<uint64_t>(options_.keys)));
  one.request.key = one.key;
  one.request.hash = primary().tables->HashOf(one.key);
  one.request.opcode = rdma::Opcode::kPut;
  one.parted = std::make_unique<PartedPut>();
  PartedPut& put = *one.parted;
  put.access = std::make_unique<TableAccess>(*primary().tables);
  LockedTable table = put.access->For(one.key);
  one.partition = table.partition();
  const uint64_t bytes = 5000 + random_.Below(5 * kPartBytes);
  absl::StatusOr<index::Reservation> space = table->Reserve(one.key, bytes, primary().Now());
  if (!space.ok()) return;
  put.space = TableSpace(*put.access, one.partition, *std::move(space));
  table.Release();
  uint64_t word = random_.Next();
  for (std::byte& byte : put.space.value())
    byte = static_cast<std::byte>((word += 0x9E3779B9) >> 24);
  parted_put_ = std::move(one);
  parted_put_->request.key = parted_put_->key;
}

// Some parts, or the put.
void TableWorld::StepParted() {
  Decided& one = *parted_put_;
  PartedPut& put = *one.parted;
  for (uint64_t parts = random_.Below(5); parts > 0 && !put.IsLogged(); --parts) {
    if (put.sent == 0) unit_ = stream_.size();
    Append(ValuePartBody(one.partition, one.key, put.space.value(), put.sent, kPartBytes), 1);
    put.sent = std::min(put.sent + kPartBytes, put.space.value().size());
  }
  if (random_.Chance(3)) return DropParted();
  if (!put.IsLogged() || random_.Chance(30)) return;
  const uint64_t session = 1 + random_.Below(kSessions);
  one.write = {session, ++sequences_[session], one.request.opcode};
  put.access->set_write(one.write);
  const auto lifetime = random_.Chance(25)
                            ? index::Lifetime::For(absl::Seconds(1 + random_.Below(3)))
                            : index::Lifetime();
  absl::optional<Verdict> verdict =
      DecideReserved(*put.access, put.space, &put, one.key, {}, lifetime, primary().Now());
  if (!verdict.has_value()) return;  // another write of the key is pending
  if (!verdict->decision.has_value()) return DropParted();
  one.decision = *std::move(verdict->decision);
  Expect(one);
  decided_.push_back(std::move(one));
  decided_.back().request.key = decided_.back().key;
  parted_put_.reset();
  DecideMark();
  TakeGroups();
}

void TableWorld::DropParted() {
  if (parted_put_->parted->sent > 0) {
    Append(PartsDroppedBody(parted_put_->partition), 1);
    ++parts_dropped_;
  }
  parted_put_.reset();
}

void TableWorld::Append(std::string body, uint64_t entries) {
  ReplicatedGroup group;
  group.first_lsn = stream_.empty() ? 1 : stream_.back().last_lsn + 1;
  group.last_lsn = group.first_lsn + entries - 1;
  group.term = term_;
  EXPECT_LE(body.size(), uint64_t{8} << 20);
  group.body = std::make_shared<const std::string>(std::move(body));
  stream_.push_back(std::move(group));
}

// Before the groups that may need it.
void TableWorld::DecideMark() {
  const std::optional<uint64_t> mark_ns = primary().marks.Due(primary().Now());
  if (!mark_ns.has_value()) return;
  Append(TimeMarkBody(*mark_ns), 1);
  marks_.push_back(*mark_ns);
}

// What the primary has decided takes its place.
void TableWorld::TakeGroups() {
  for (auto& [body, entries] : std::exchange(primary().groups, {}))
    Append(std::move(body), entries);
}

// A client looks at all keys, if the primary may judge them now.
std::string TableWorld::Look() {
  TableNode& node = primary();
  const uint64_t now_ns = node.NowNs();
  if (!node.marks.MayJudge(node.Now()) && now_ > lease_end_) {
    ++looks_refused_;
    return "";
  }
  if (node.Now() + kLease <= node.marks.ReadsUntil()) lease_end_ = now_ + kLease;
  std::map<std::string, Seen> there;
  for (uint32_t i = 0; i < kPartitions; ++i) {
    const LockedTable table = node.tables->Lock(i);
    uint64_t cursor = 0;
    do {
      cursor = table->Walk(cursor, 1 << 20, [&](const index::WalkedKey& key) {
        if (key.expiry_ns == 0 || key.expiry_ns > now_ns)
          there[std::string(key.key)] = {key.version, key.expiry_ns};
      });
    } while (cursor != 0);
  }
  for (const auto& [key, seen] : std::exchange(seen_, there)) {
    const auto found = there.find(key);
    const bool is_there = found != there.end() && found->second.version == seen.version;
    if (is_there || seen.expiry_ns == 0 || seen.expiry_ns > now_ns) continue;
    expired_.emplace(key, seen.version);
    ++expired_seen_;
  }
  for (const auto& [key, seen] : there) {
    if (expired_.contains({key, seen.version}))
      return absl::StrCat(key, ", which has expired, is there again");
  }
  return "";
}

// A part of a flush. It is made at once.
void TableWorld::Flush() {
  TableAccess access(*primary().tables);
  const uint64_t session = 1 + random_.Below(kSessions);
  access.set_write({session, ++sequences_[session], rdma::Opcode::kFlush});
  const Answer answer = ExecuteFlush(access, {}, primary().Now());
  if (answer.body.version == 0) return;
  expected_[{session, sequences_[session]}] = ResultOf(answer);
  TakeGroups();
}

// Some keys that no write is pending of.
void TableWorld::Evict() {
  for (uint64_t i = 1 + random_.Below(15); i > 0; --i) {
    const std::string key =
        absl::StrCat("key", random_.Below(static_cast<uint64_t>(options_.keys)));
    const index::HashedKey hashed{key, primary().tables->HashOf(key)};
    const LockedTable table = primary().tables->Lock(primary().tables->PartitionOf(hashed.hash));
    const uint64_t version = table->HeldVersion(hashed);
    if (version == 0 || table.changes()->IsPending(hashed.hash.bits)) continue;
    EXPECT_TRUE(table->MakeDelete(hashed, version, primary().Now()));
    table.changes()->OnEvict(key, version);
  }
  TakeGroups();
}

// --- Groups ----------------------------------------------------------------------

void TableWorld::Drop(TableNode& node) {
  ++refusals_;
  for (std::unique_ptr<TableNode>& one : nodes_) {
    if (one.get() == &node) one = nullptr;  // it joins again
  }
}

// False: there is no group, or the node has no room and is dropped.
bool TableWorld::ReserveNext(TableNode& node) {
  if (node.reserved == stream_.size()) return false;
  const ReplicatedGroup& group = stream_[node.reserved];
  const absl::Status status = node.replica->Reserve(group);
  if (!status.ok()) {
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    Drop(node);
    return false;
  }
  node.pending.push_back(group);
  ++node.reserved;
  during_copies_ += node.replica->is_copying();
  return true;
}

void TableWorld::ApplyNext(TableNode& node) {
  if (node.pending.empty() || node.applied() >= committed_) return;
  node.replica->Apply(node.pending.front());
  node.pending.pop_front();
}

void TableWorld::Expect(const Decided& one) {
  Result result;
  result.code = absl::StatusCode::kOk;
  result.version = one.decision.version;
  result.has_number = one.request.opcode == rdma::Opcode::kIncrement;
  result.number = one.decision.number;
  if (one.request.opcode == rdma::Opcode::kAppend)
    result.value_length = one.decision.bytes().size();
  if (one.request.opcode == rdma::Opcode::kExpire) result.expiry = one.decision.expiry_ns;
  expected_[{one.write.session, one.write.sequence}] = result;
}

// These writes are answered, and no other one that was decided will be.
void TableWorld::Settle(const std::set<std::pair<uint64_t, uint64_t>>& committed) {
  for (const auto& [write, result] : expected_) {
    if (!committed.contains(write)) continue;
    results_[write] = result;
    answered_ = std::max(answered_, result.version);
  }
  expected_.clear();
}

std::vector<SessionImage> TableWorld::SessionsOfClients() const {
  std::map<uint64_t, SessionImage> images;
  for (const auto& [write, result] : results_) {
    SessionImage& image = images[write.first];
    image.id = write.first;
    image.results.emplace_back(write.second, result);
    if (image.results.size() > kResultsKept) image.results.erase(image.results.begin());
  }
  std::vector<SessionImage> sessions;
  for (auto& [id, image] : images) sessions.push_back(std::move(image));
  return sessions;
}

void TableWorld::ReserveAllInSync() {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (i == primary_) continue;
    while (nodes_[i] != nullptr && nodes_[i]->in_sync && ReserveNext(*nodes_[i])) {
    }
  }
}

std::string TableWorld::Commit() {
  ReserveAllInSync();
  committed_ = stream_.size();
  for (const uint64_t mark_ns : std::exchange(marks_, {})) {
    primary().marks.NoteHeld(mark_ns);
    primary().replica->NoteTimeMark(mark_ns);
  }
  std::set<std::pair<uint64_t, uint64_t>> all;
  for (const auto& [write, result] : expected_) all.insert(write);
  for (Decided& one : decided_) {
    if (one.parted != nullptr) {
      one.parted->access->set_write(one.write);
      const Answer made = ApplyReserved(*one.parted->access, one.parted->space, one.key,
                                        one.decision, primary().Now());
      if (made.code() != absl::StatusCode::kOk) return "the primary refuses a value in parts";
      ++parted_;
      continue;
    }
    const LockedTable table = primary().tables->Lock(one.partition);
    table.changes()->SetWrite(&one.write);
    const Answer answer =
        Apply(*table, one.request, one.decision, *table.changes(), primary().Now());
    if (answer.code() != absl::StatusCode::kOk) return "the primary refuses what it has decided";
  }
  Settle(all);
  decided_.clear();
  if (!parted_put_.has_value() || parted_put_->parted->sent == 0) unit_.reset();
  TakeGroups();  // keys that expired, or were evicted, before they were made
  return "";
}

// The primary goes on as a backup. What no member has of it may have had no place yet. False: it has no room.
bool TableWorld::Demote(TableNode& node) {
  size_t placed = committed_;
  demoted_amid_ += Applied() < committed_;
  for (const std::unique_ptr<TableNode>& one : nodes_) {
    if (one != nullptr && one.get() != &node && one->in_sync)
      placed = std::max(placed, one->reserved);
  }
  placed += random_.Below(stream_.size() - placed + 1);
  node.tables->DropPrepared();
  node.replica->BeginBackup(SessionsOfClients());
  for (size_t i = placed; i < stream_.size(); ++i) node.replica->NoteDropped(*stream_[i].body);
  node.in_sync = true;
  node.pending.clear();
  for (node.reserved = Applied(); node.reserved < placed; ++node.reserved) {
    if (!node.replica->Reserve(stream_[node.reserved]).ok()) return false;
    node.pending.push_back(stream_[node.reserved]);
  }
  return true;
}

// The primary is lost, with what it has decided and not committed. A member goes on.
std::string TableWorld::FailOver() {
  std::vector<size_t> members;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (i != primary_ && nodes_[i] != nullptr && nodes_[i]->in_sync) members.push_back(i);
  }
  if (members.empty()) return Commit();
  // Readers' leases end first.
  now_ = std::max(now_, lease_end_);
  parted_put_.reset();
  std::set<std::pair<uint64_t, uint64_t>> parted;
  for (Decided& one : decided_) {
    if (one.parted == nullptr) continue;
    parted.emplace(one.write.session, one.write.sequence);
    one.parted->space.Drop();
  }
  if (std::string wrong = Look(); !wrong.empty()) return wrong;
  ++failovers_;
  evictions_ += primary().tables->stats().evictions;
  expiries_ += primary().tables->stats().expiries;
  if (!random_.Chance(options_.demotions) || !Demote(primary())) nodes_[primary_] = nullptr;
  primary_ = members[random_.Below(members.size())];
  // Its tail is what it has. What others have behind that is replaced.
  stream_.resize(primary().reserved);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i] == nullptr || i == primary_) continue;
    if (!nodes_[i]->in_sync) {
      nodes_[i] = nullptr;  // its copy was the old primary's
      continue;
    }
    for (; nodes_[i]->reserved > stream_.size(); --nodes_[i]->reserved) {
      nodes_[i]->replica->Release(nodes_[i]->pending.back());
      nodes_[i]->pending.pop_back();
      ++replaced_;
    }
  }
  ReserveAllInSync();
  std::set<std::pair<uint64_t, uint64_t>> survived;
  for (size_t i = committed_; i < stream_.size(); ++i) {
    wal::Group group;
    EXPECT_EQ(wal::ParseGroup(wal::BytesOfText(*stream_[i].body), group), "");
    for (const wal::Entry& entry : group.entries) {
      if (entry.kind == wal::EntryKind::kValuePart) continue;
      survived.emplace(entry.client, entry.sequence);
      survived_ += parted.contains({entry.client, entry.sequence});
    }
  }
  Settle(survived);
  decided_.clear();
  committed_ = stream_.size();
  unit_.reset();
  while (!primary().pending.empty()) ApplyNext(primary());
  std::string wrong = CompareSessions(primary());
  if (!wrong.empty()) return absl::StrCat("a new primary: ", wrong);
  TableNode& node = primary();
  const auto mark_ns = static_cast<int64_t>(node.replica->time_mark_ns());
  const absl::Duration missing = absl::FromUnixNanos(mark_ns) - node.Now();
  if (missing > absl::ZeroDuration()) {
    node.ahead += missing;
    ++clock_jumps_;
  }
  marks_.clear();
  lease_end_ = absl::InfinitePast();
  node.marks.Begin(node.replica->time_mark_ns(), node.tables->stats().expiring_keys > 0);
  (void)node.replica->TakeOver();
  if (primary().tables->LastVersion() < answered_)
    return "a new primary gives out versions that clients have seen";
  ++term_;
  for (const auto& [body, entries] : primary().groups) lost_removals_ += entries;
  TakeGroups();
  return "";
}

// --- Joiners ---------------------------------------------------------------------

void TableWorld::BeginJoin(size_t node) {
  nodes_[node] = NewNode(/*is_primary=*/false);
  TableNode& joiner = *nodes_[node];
  joiner.replica->BeginBackup();
  joiner.replica->BeginCopy();
  joiner.copy.emplace(*primary().tables, SessionsOfClients());
  joiner.reserved = Applied();
  joined_amid_ += Applied() < committed_;
}

// False: it has no room and is dropped.
bool TableWorld::StepJoin(TableNode& node) {
  if (!node.copy->at_end() && random_.Chance(60)) {
    node.chunks.push_back(node.copy->NextChunk(primary().replica->time_mark_ns()));
    node.copied_to = stream_.size();
  }
  if (!node.chunks.empty() && random_.Chance(50)) {
    const absl::Status status = node.replica->TakeChunk(node.chunks.front());
    node.chunks.pop_front();
    if (!status.ok()) {
      EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
      Drop(node);
      return false;
    }
  }
  if (!node.copy->at_end() || node.replica->is_copying()) return true;
  if (node.reserved < committed_ || node.copied_to > committed_) return true;
  node.in_sync = true;
  ++joined_;
  return true;
}

// --- Rounds ----------------------------------------------------------------------

void TableWorld::DeliverSome(size_t node) {
  for (uint64_t step = random_.Below(12); step > 0; --step) {
    if (nodes_[node] == nullptr) return;
    TableNode& one = *nodes_[node];
    if (random_.Chance(50)) {
      (void)ReserveNext(one);
    } else if (random_.Chance(70)) {
      ApplyNext(one);
    } else if (!one.in_sync && !StepJoin(one)) {
      return;
    }
  }
}

std::string TableWorld::Round() {
  now_ += absl::Milliseconds(random_.Below(150));
  if (std::string wrong = Look(); !wrong.empty()) return wrong;
  if (random_.Chance(options_.flushes)) Flush();
  if (random_.Chance(options_.removals)) Evict();
  for (uint64_t i = random_.Below(3); i > 0; --i) DecideSome();
  if (options_.parted_values > 0 && !parted_put_.has_value() && !unit_.has_value() &&
      random_.Chance(options_.parted_values))
    BeginParted();
  if (parted_put_.has_value()) StepParted();
  for (const std::unique_ptr<TableNode>& node : nodes_) {
    if (node != nullptr) node->Maintain();
  }
  DecideMark();
  TakeGroups();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (i != primary_) DeliverSome(i);
  }
  if (random_.Chance(options_.stalls)) {
    now_ += absl::Milliseconds(2000 + random_.Below(2000));
    if (std::string wrong = Look(); !wrong.empty()) return wrong;
  }
  const bool has_parted = !decided_.empty() && decided_.back().parted != nullptr;
  const bool fails = random_.Chance(has_parted ? 3 * options_.failovers : options_.failovers);
  std::string wrong = fails ? FailOver() : Commit();
  if (wrong.empty()) wrong = Look();
  if (!wrong.empty()) return wrong;
  const size_t dropped = random_.Below(nodes_.size());
  if (dropped != primary_ && random_.Chance(options_.drops)) nodes_[dropped] = nullptr;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (i == primary_) continue;
    if (nodes_[i] == nullptr && random_.Chance(30)) BeginJoin(i);
    DeliverSome(i);
  }
  return "";
}

std::string TableWorld::Run() {
  for (int round = 1; round <= options_.rounds; ++round) {
    std::string wrong = Round();
    if (wrong.empty() && (round % 40 == 0 || round == options_.rounds)) wrong = CompareAll();
    if (!wrong.empty()) return absl::StrCat("round ", round, ": ", wrong);
  }
  evictions_ += primary().tables->stats().evictions;
  expiries_ += primary().tables->stats().expiries;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i] == nullptr || i == primary_) continue;
    std::string wrong = CompareEmpty(*nodes_[i]);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

}  // namespace osprey::server

// Large values: PUT by rendezvous (W6), GET by slot under a lease (R6), appends to long values, and
// a full region.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/layout/layout.h"
#include "server/engine/engine.h"
#include "tests/server/server_harness.h"

namespace osprey::server {
namespace {

using absl::StatusCode;

// --- Rendezvous ----------------------------------------------------------------------------------

TEST(ServerRendezvousTest, ARendezvousFetchesTheValueInPieces) {
  HarnessOptions options;
  options.network.read_bytes_max = 4096;
  ServerHarness server(options);
  RawClient client(server);
  client.Establish();
  const std::string value = Large(300001);
  EXPECT_EQ(client.Ask(client.RendezvousFrame(1, "key", value)).code, StatusCode::kOk);
  EXPECT_EQ(server.Stored("key"), value);
  EXPECT_EQ(server.counters().rendezvous_reads, 74);
  EXPECT_EQ(server.counters().rendezvous_bytes, value.size());
}

TEST(ServerRendezvousTest, ItsTimeCountsFromTheTurnThatReceivedIt) {
  HarnessOptions options;
  options.times_puts = true;
  ServerHarness server(options);
  server.set_clock([&] { return server.now() + absl::Microseconds(7); });
  RawClient client(server);
  client.Establish();
  server.network().HoldReads(server.network().Peer(client.id()), true);
  client.Send(client.RendezvousFrame(1, "key", Large(50000)));
  server.Settle();
  EXPECT_EQ(server.counters().put_latency_ns, 0u);
  server.Advance(absl::Milliseconds(100));
  server.network().HoldReads(server.network().Peer(client.id()), false);
  server.Settle();
  ASSERT_EQ(client.replies(), 1u);
  EXPECT_EQ(server.counters().put_latency_ns, 100'007'000u);
  EXPECT_EQ(server.counters().put_latencies[rdma::LatencyBucketOf(100'007'000)], 1u);
}

TEST(ServerRendezvousTest, AValueThatChangedUnderItsHashIsNotWritten) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  ASSERT_EQ(client.Ask(client.RendezvousFrame(1, "key", Large(50000))).code, StatusCode::kOk);
  const uint64_t item_bytes = server.table().stats().item_bytes;
  const std::string frame = client.RendezvousFrame(2, "key", Large(50000, 'A'));
  client.value_memory()[49999] ^= std::byte{1};
  EXPECT_EQ(client.Ask(frame).code, StatusCode::kDataLoss);
  EXPECT_EQ(server.Stored("key"), Large(50000));
  EXPECT_EQ(server.table().stats().item_bytes, item_bytes);
  EXPECT_FALSE(client.disconnected());
}

TEST(ServerRendezvousTest, OtherRequestsAreAnsweredWhileAValueIsFetched) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  const rdma::ConnectionId server_end = server.network().Peer(client.id());
  server.network().HoldReads(server_end, true);
  client.Send(client.RendezvousFrame(1, "large", Large(50000)));
  EXPECT_EQ(client.Ask(client.PutFrame(2, "small", "value")).sequence, 2);
  EXPECT_EQ(server.Stored("large"), std::nullopt);
  server.network().HoldReads(server_end, false);
  server.Settle();
  EXPECT_EQ(client.TakeReply()->sequence, 1);
  EXPECT_EQ(server.Stored("large"), Large(50000));
}

TEST(ServerRendezvousTest, MoreRendezvousThanReadsInFlightAllEnd) {
  HarnessOptions options;
  options.network.read_bytes_max = 1024;
  ServerHarness server(options);
  RawClient client(server);
  client.Establish();
  const std::string value = Large(60000);
  constexpr uint64_t kCount = 12;  // of 59 READs each
  for (uint64_t i = 1; i <= kCount; ++i) {
    client.Send(client.RendezvousFrame(i, absl::StrCat("key", i), value));
  }
  server.Settle();
  EXPECT_EQ(client.replies(), kCount);
  for (uint64_t i = 1; i <= kCount; ++i) {
    EXPECT_EQ(server.Stored(absl::StrCat("key", i)), value);
  }
}

TEST(ServerRendezvousTest, AValueTooLongIsRefusedWithTheBound) {
  HarnessOptions options;
  options.value_bytes_max = 2000;
  ServerHarness server(options);
  RawClient client(server);
  client.Establish();
  const RawReply eager = client.Ask(client.PutFrame(1, "key", std::string(2001, 'x')));
  EXPECT_EQ(eager.code, StatusCode::kInvalidArgument);
  EXPECT_NE(eager.data.find("2000"), std::string::npos);
  const RawReply rendezvous = client.Ask(client.RendezvousFrame(2, "key", std::string(2001, 'x')));
  EXPECT_EQ(rendezvous.code, StatusCode::kInvalidArgument);
  EXPECT_NE(rendezvous.data.find("2000"), std::string::npos);
  EXPECT_EQ(client.Ask(client.RendezvousFrame(3, "key", std::string(2000, 'x'))).code,
            StatusCode::kOk);
  EXPECT_EQ(server.counters().rendezvous_reads, 1);  // nothing of the refused ones was fetched
}

TEST(ServerRendezvousTest, AVanishedClientIsNoticedWhileItsValueIsFetched) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  const uint64_t free_before = server.table().stats().item_bytes;
  server.network().HoldReads(server.network().Peer(client.id()), true);
  client.Send(client.RendezvousFrame(1, "key", Large(500000)));
  server.Settle();
  server.network().Cut(client.id());
  server.Advance(kSilenceMax() + kLivenessTimeout() + absl::Milliseconds(200));
  EXPECT_EQ(server.engine().connections(), 0);
  EXPECT_EQ(server.Stored("key"), std::nullopt);
  EXPECT_EQ(server.table().stats().item_bytes, free_before);
}

// --- W6: the bytes READ match the announced hash -------------------------------------------------

// The buffer changes at every possible moment. The server writes the announced value, or nothing.
TEST(ServerRendezvousTest, ABufferThatChangesWhileItIsReadIsNotWrittenHalfNewHalfOld) {
  const std::string value = Large(40000), other = Large(40000, 'A');
  int refused = 0, written = 0;
  for (size_t change_at = 0; change_at <= 11; ++change_at) {
    HarnessOptions options;
    options.network.read_piece_bytes = 4096;  // ten pieces
    ServerHarness server(options);
    RawClient client(server);
    client.Establish();
    ASSERT_EQ(client.Ask(client.PutFrame(1, "key", "before")).code, StatusCode::kOk);
    size_t piece = 0;
    server.network().before_piece = [&](absl::Span<const std::byte>) {
      if (piece++ == change_at) std::memcpy(client.value_memory(), other.data(), other.size());
    };
    const RawReply reply = client.Ask(client.RendezvousFrame(2, "key", value));
    server.network().before_piece = nullptr;
    const std::string stored = *server.Stored("key");
    if (reply.code == StatusCode::kOk) {
      ++written;
      EXPECT_EQ(stored, value) << change_at;
    } else {
      ++refused;
      EXPECT_EQ(reply.code, StatusCode::kDataLoss);
      EXPECT_EQ(reply.reason, Reason::kValueChanged);
      EXPECT_EQ(stored, "before") << change_at;
    }
    EXPECT_FALSE(client.disconnected());
  }
  EXPECT_EQ(refused, 10);
  EXPECT_EQ(written, 2);  // the change came too late to be seen
}

// Its request is under way when the client gives up. Its memory has another use when the server
// READs it.
TEST(ServerRendezvousTest, ABufferThatWasReusedIsNotTakenForTheValue) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  ASSERT_EQ(client.Ask(client.PutFrame(1, "key", "before")).code, StatusCode::kOk);
  const rdma::ConnectionId server_end = server.network().Peer(client.id());
  server.network().HoldReads(server_end, true);
  client.Send(client.RendezvousFrame(2, "key", Large(50000)));
  server.Settle();
  const std::string reused = Large(50000, 'Q');
  std::memcpy(client.value_memory(), reused.data(), reused.size());
  server.network().HoldReads(server_end, false);
  server.Settle();
  EXPECT_EQ(client.TakeReply()->reason, Reason::kValueChanged);
  EXPECT_EQ(server.Stored("key"), "before");
  EXPECT_EQ(server.counters().rendezvous_aborted, 1);
}

TEST(ServerRendezvousTest, OldValueStaysUntilTheNewOneIsComplete) {
  HarnessOptions options;
  options.network.read_piece_bytes = 4096;
  ServerHarness server(options);
  RawClient client(server);
  client.Establish();
  ASSERT_EQ(client.Ask(client.RendezvousFrame(1, "key", Large(40000))).code, StatusCode::kOk);
  int looks = 0;
  server.network().before_piece = [&](absl::Span<const std::byte>) {
    ++looks;
    EXPECT_EQ(server.Stored("key"), Large(40000));
  };
  EXPECT_EQ(client.Ask(client.RendezvousFrame(2, "key", Large(40000, 'A'))).code, StatusCode::kOk);
  server.network().before_piece = nullptr;
  EXPECT_EQ(looks, 10);
  EXPECT_EQ(server.Stored("key"), Large(40000, 'A'));
}

// --- READs on their way --------------------------------------------------------------------------

TEST(ServerRendezvousTest, TheNextReadIsPostedWhenOneLandsNotWhenAllHave) {
  HarnessOptions options;
  options.network.read_bytes_max = 1024;
  ServerHarness server(options);
  RawClient client(server);
  client.Establish();
  constexpr uint64_t kPieces = 100;
  const rdma::ConnectionId server_end = server.network().Peer(client.id());
  server.network().HoldReads(server_end, true);
  client.Send(client.RendezvousFrame(1, "key", Large(kPieces * 1024)));
  server.Settle();
  EXPECT_EQ(server.counters().rendezvous_reads, kPiecesInFlightMax);
  server.network().HoldReads(server_end, false);
  for (uint64_t landed = 1; landed <= kPieces; ++landed) {
    server.engine().Poll(server.now());  // one READ of a connection ends in each turn
    EXPECT_EQ(server.counters().rendezvous_reads, std::min(landed + kPiecesInFlightMax, kPieces));
  }
  server.Settle();
  EXPECT_EQ(server.Stored("key"), Large(kPieces * 1024));
}

TEST(ServerRendezvousTest, ASlowOneThatMovesIsNotTakenForADeadClient) {
  HarnessOptions options;
  options.value_bytes_max = 4 << 20;
  ServerHarness server(options);
  RawClient client(server);
  client.Establish();
  const std::string value = Large(12 * kPieceBytesMax);
  const rdma::ConnectionId server_end = server.network().Peer(client.id());
  server.network().HoldReads(server_end, true);
  client.Send(client.RendezvousFrame(1, "key", value));
  server.Settle();
  // A piece every 3.5 s.
  for (int turn = 0; turn < 14 && client.replies() == 0; ++turn) {
    server.Advance(absl::Milliseconds(3500));
    server.network().HoldReads(server_end, false);
    server.engine().Poll(server.now());
    server.network().HoldReads(server_end, true);
    server.Settle();
  }
  ASSERT_EQ(client.replies(), 1);
  EXPECT_EQ(client.TakeReply()->code, StatusCode::kOk);
  EXPECT_TRUE(server.Stored("key") == value);
}

TEST(ServerRendezvousTest, AClientHoldsLittleOfTheRegionHoweverManyValuesItAnnounces) {
  HarnessOptions options;
  options.value_bytes_max = 4 << 20;
  ServerHarness server(options);
  RawClient slow(server), other(server);
  slow.Establish();
  other.Establish();
  const rdma::ConnectionId server_end = server.network().Peer(slow.id());
  server.network().HoldReads(server_end, true);
  const std::string value = Large(3 << 20);
  for (uint64_t i = 1; i <= 6; ++i) {
    slow.Send(slow.RendezvousFrame(i, absl::StrCat("key", i), value));
  }
  server.Settle();
  EXPECT_LE(server.table().stats().item_bytes, kReservedBytesMax);
  EXPECT_EQ(other.Ask(other.RendezvousFrame(1, "other", value)).code, StatusCode::kOk);
  // Not all of them fit; those that do are written.
  server.network().HoldReads(server_end, false);
  server.Settle();
  ASSERT_EQ(slow.replies(), 6);
  for (uint64_t i = 1; i <= 6; ++i) {
    const RawReply reply = *slow.TakeReply();
    EXPECT_EQ(reply.code == StatusCode::kOk,
              server.Stored(absl::StrCat("key", reply.sequence)).has_value());
    EXPECT_TRUE(reply.code == StatusCode::kOk || reply.reason == Reason::kServerFull);
  }
  EXPECT_TRUE(server.Stored("key1") == value);
  EXPECT_TRUE(server.Stored("other") == value);
}

// --- Appends to long values ----------------------------------------------------------------------

TEST(ServerLongAppendTest, TheValueIsCopiedInStepsWhileOthersAreAnswered) {
  HarnessOptions options;
  options.value_bytes_max = 4 << 20;
  ServerHarness server(options);
  RawClient client(server), other(server);
  client.Establish();
  other.Establish();
  const std::string value = Large(3 << 20);
  ASSERT_EQ(client.Ask(client.RendezvousFrame(1, "key", value)).code, StatusCode::kOk);
  client.Send(client.AppendFrame(2, "key", "!"));
  other.Send(other.PutFrame(1, "small", "value"));
  // One step a turn; the old value stays until the last.
  for (uint64_t step = 1; step < value.size() / kAppendStepBytes; ++step) {
    EXPECT_TRUE(server.engine().Poll(server.now())) << "it would sleep";
    EXPECT_EQ(server.Stored("small"), "value");
    ASSERT_EQ(server.Stored("key")->size(), value.size()) << step;
  }
  server.Settle();
  EXPECT_EQ(other.TakeReply()->code, StatusCode::kOk);
  const RawReply reply = *client.TakeReply();
  EXPECT_EQ(reply.code, StatusCode::kOk);
  EXPECT_EQ(reply.body.value_length, value.size() + 1);
  EXPECT_TRUE(server.Stored("key") == value + "!");
  EXPECT_EQ(server.counters().long_appends, 1);
  // Repeated, it is answered from memory.
  EXPECT_EQ(client.Ask(client.AppendFrame(2, "key", "!")).body.version, reply.body.version);
  EXPECT_TRUE(server.Stored("key") == value + "!");
  EXPECT_FALSE(server.engine().Poll(server.now()));
}

TEST(ServerLongAppendTest, AppendsToOneKeyAreAllThere) {
  ServerHarness server;
  RawClient client(server), other(server);
  client.Establish();
  other.Establish();
  const std::string value = Large(500000);
  ASSERT_EQ(client.Ask(client.RendezvousFrame(1, "key", value)).code, StatusCode::kOk);
  client.Send(
      client.BatchFrame({client.AppendFrame(2, "key", "a"), client.AppendFrame(3, "key", "b"),
                         client.AppendFrame(4, "key", "c")}));
  other.Send(other.AppendFrame(1, "key", "d"));
  server.Settle();
  EXPECT_EQ(client.replies(), 3);
  EXPECT_EQ(other.replies(), 1);
  std::string tail = server.Stored("key")->substr(value.size());
  std::sort(tail.begin(), tail.end());
  EXPECT_EQ(tail, "abcd");
}

TEST(ServerLongAppendTest, AWriteThatComesBetweenIsAppendedTo) {
  ServerHarness server;
  RawClient client(server), other(server);
  client.Establish();
  other.Establish();
  uint64_t sequence = 0;
  for (const char* with : {"short", "", "deleted"}) {
    ASSERT_EQ(client.Ask(client.RendezvousFrame(++sequence, "key", Large(900000))).code,
              StatusCode::kOk);
    client.Send(client.AppendFrame(++sequence, "key", "!"));
    server.engine().Poll(server.now());
    server.engine().Poll(server.now());
    ASSERT_EQ(client.replies(), 0);
    const bool deleted = absl::string_view(with) == "deleted";
    other.Send(deleted ? other.DeleteFrame(sequence, "key")
                       : other.PutFrame(sequence, "key", with));
    server.Settle();
    EXPECT_EQ(client.TakeReply()->code, StatusCode::kOk);
    EXPECT_EQ(server.Stored("key"), deleted ? "!" : absl::StrCat(with, "!"));
  }
}

TEST(ServerLongAppendTest, OneWithAConditionIsRefusedWhenTheVersionChanges) {
  ServerHarness server;
  RawClient client(server), other(server);
  client.Establish();
  other.Establish();
  const uint64_t version = client.Ask(client.RendezvousFrame(1, "key", Large(900000))).body.version;
  client.Send(client.AppendFrame(2, "key", "!", version));
  server.engine().Poll(server.now());
  server.engine().Poll(server.now());
  other.Send(other.PutFrame(1, "key", "value"));
  server.Settle();
  EXPECT_EQ(client.TakeReply()->reason, Reason::kWrongVersion);
  EXPECT_EQ(server.Stored("key"), "value");
}

TEST(ServerLongAppendTest, AConnectionThatBreaksLeavesNothingOfIt) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  ASSERT_EQ(client.Ask(client.RendezvousFrame(1, "key", Large(900000))).code, StatusCode::kOk);
  const uint64_t item_bytes = server.table().stats().item_bytes;
  const std::string append = client.AppendFrame(2, "key", "!");
  client.Send(append);
  server.engine().Poll(server.now());
  server.engine().Poll(server.now());
  EXPECT_GT(server.table().stats().item_bytes, item_bytes);
  server.network().Break(client.id());
  server.Settle();
  EXPECT_EQ(server.table().stats().item_bytes, item_bytes);
  EXPECT_TRUE(server.Stored("key") == Large(900000));
  // Repeated, it is executed.
  client.Establish(client.session());
  EXPECT_EQ(client.Ask(append).code, StatusCode::kOk);
  EXPECT_TRUE(server.Stored("key") == Large(900000) + "!");
}

TEST(ServerLongAppendTest, AppendWithoutSpaceForTheCopyKeepsTheValue) {
  HarnessOptions options;
  options.region_bytes = 4 << 20;
  options.value_bytes_max = 4 << 20;
  ServerHarness server(options);
  RawClient client(server);
  client.Establish();
  const std::string value = Large(2 << 20);
  ASSERT_EQ(client.Ask(client.RendezvousFrame(1, "key", value)).code, StatusCode::kOk);
  EXPECT_EQ(client.Ask(client.AppendFrame(2, "key", "!")).reason, Reason::kServerFull);
  EXPECT_TRUE(server.Stored("key") == value);
}

TEST(ServerLongAppendTest, AServerThatEndsFinishesItFirst) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  ASSERT_EQ(client.Ask(client.RendezvousFrame(1, "key", Large(900000))).code, StatusCode::kOk);
  client.Send(client.AppendFrame(2, "key", "!"));
  server.engine().Poll(server.now());
  server.engine().Stop(server.now());
  EXPECT_FALSE(client.got_disconnect_notice());
  server.Settle();
  EXPECT_EQ(client.TakeReply()->code, StatusCode::kOk);
  EXPECT_TRUE(client.got_disconnect_notice());
}

// --- R6: GETs of values that fit no reply --------------------------------------------------------

TEST(ServerLeaseTest, ALargeValueIsGotByItsSlotUnderALease) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  const std::string value = Large(100000);
  ASSERT_EQ(client.Ask(client.RendezvousFrame(1, "key", value)).code, StatusCode::kOk);
  const RawReply get = client.Ask(client.GetFrame(2, "key"));
  EXPECT_EQ(get.code, StatusCode::kOk);
  EXPECT_EQ(get.data, "");
  EXPECT_EQ(get.body.value_length, value.size());
  EXPECT_EQ(get.body.lease_ms, absl::ToInt64Milliseconds(LeaseOf(value.size())));
  ASSERT_NE(get.body.slot, 0);

  // The item dies, its grace period passes, and all space is needed. But the lease still holds. So
  // a READ finds a dead item at worst, and the value's bytes in place.
  const index::Slot slot = index::Slot::Unpack(get.body.slot);
  ASSERT_EQ(client.Ask(client.DeleteFrame(3, "key")).code, StatusCode::kOk);
  server.Advance(absl::Milliseconds(1500));
  uint64_t sequence = 3;
  const auto fill = [&] {
    for (int i = 0; i < 1000; ++i) {
      ++sequence;
      client.Send(
          client.RendezvousFrame(sequence, absl::StrCat("other", sequence), Large(100000, 'A')));
      server.Settle();
      // The last one waits for the lease's end.
      const std::optional<RawReply> put = client.TakeReply();
      if (!put.has_value() || put->code == StatusCode::kResourceExhausted) return;
    }
    ADD_FAILURE() << "it is never full";
  };
  fill();
  const std::string item =
      client.Read(slot.offset, static_cast<uint32_t>(sizeof(index::ItemHeader) + 3 + value.size()));
  EXPECT_EQ(item.substr(sizeof(index::ItemHeader) + 3), value);

  // The lease ends: the space is used again.
  server.Advance(kGetLease());
  EXPECT_EQ(client.TakeReply()->code, StatusCode::kOk);
  fill();
  EXPECT_NE(client.Read(slot.offset, static_cast<uint32_t>(item.size())), item);
}

TEST(ServerLeaseTest, ALongerValueIsLeasedLonger) {
  EXPECT_EQ(LeaseOf(0), kGetLease());
  EXPECT_EQ(LeaseOf(64 << 20), kGetLease() + absl::Seconds(1));
  EXPECT_EQ(LeaseOf(uint64_t{1} << 30), kGetLease() + absl::Seconds(16));
}

TEST(ServerLeaseTest, AskingAgainAndAgainProlongsItAndCostsNoMemory) {
  const absl::Time start = absl::UnixEpoch() + absl::Seconds(1000);
  for (int ms = 0; ms < 1000; ++ms) {
    const absl::Time now = start + absl::Milliseconds(ms);
    const absl::Time end = LeaseEnd(kGetLease(), now);
    EXPECT_GE(end, now + kGetLease());
    EXPECT_LT(end, now + kGetLease() + kGetLeaseStep());
    EXPECT_EQ((end - absl::UnixEpoch()) % kGetLeaseStep(), absl::ZeroDuration());
  }
}

// --- Full ----------------------------------------------------------------------------------------

TEST(ServerFullTest, AFullRegionRefusesAndKeepsWhatItHas) {
  HarnessOptions options;
  options.region_bytes = 1 << 20;
  ServerHarness server(options);
  RawClient client(server);
  client.Establish();
  const std::string value = Large(50000);
  uint64_t sequence = 0;
  RawReply reply;
  do {
    ++sequence;
    reply = client.Ask(client.RendezvousFrame(sequence, absl::StrCat("key", sequence), value));
  } while (reply.code == StatusCode::kOk && sequence < 100);
  EXPECT_EQ(reply.code, StatusCode::kResourceExhausted);
  EXPECT_FALSE(reply.data.empty());
  ASSERT_GT(sequence, 5);
  const StatusCode eager =
      client.Ask(client.PutFrame(++sequence, "eager", value.substr(0, 8000))).code;
  EXPECT_EQ(eager,
            server.Stored("eager").has_value() ? StatusCode::kOk : StatusCode::kResourceExhausted);
  for (int i = 1; i < 5; ++i) EXPECT_EQ(server.Stored(absl::StrCat("key", i)), value);
  EXPECT_FALSE(client.disconnected());
}

// Puts values of `bytes` until one is refused; returns how many there are.
int FillByRendezvous(RawClient& client, uint64_t& sequence, size_t bytes) {
  for (int i = 0; i < 10000; ++i) {
    const RawReply reply =
        client.Ask(client.RendezvousFrame(++sequence, absl::StrCat("key", i), Large(bytes)));
    if (reply.code == StatusCode::kOk) continue;
    EXPECT_EQ(reply.reason, Reason::kServerFull);
    return i;
  }
  return 0;
}

TEST(ServerFullTest, WhatIsStoredStaysWritableWithValuesOfItsLength) {
  for (const size_t bytes : {2000u, 7000u, 30000u}) {
    HarnessOptions options;
    options.region_bytes = 4 << 20;
    ServerHarness server(options);
    RawClient one(server), two(server), three(server);
    one.Establish();
    two.Establish();
    three.Establish();
    uint64_t sequence = 0;
    const int stored = FillByRendezvous(one, sequence, bytes);
    ASSERT_GT(stored, 50);
    for (int i = 0; i + 2 < stored; i += 3) {
      // In a frame, and by rendezvous: more of these at once than there is room for.
      if (bytes < 8000) {
        ASSERT_EQ(one.Ask(one.PutFrame(++sequence, absl::StrCat("key", i), Large(bytes, 'b'))).code,
                  StatusCode::kOk);
      }
      const auto start = [&](RawClient& client, int key, uint64_t number) {
        client.Send(client.RendezvousFrame(number, absl::StrCat("key", key), Large(bytes, 'c')));
      };
      start(one, i, ++sequence);
      start(two, i + 1, static_cast<uint64_t>(i + 1));
      start(three, i + 2, static_cast<uint64_t>(i + 1));
      server.Advance(absl::Milliseconds(500));
      for (RawClient* client : {&one, &two, &three}) {
        const std::optional<RawReply> reply = client->TakeReply();
        ASSERT_TRUE(reply.has_value()) << i;
        ASSERT_EQ(reply->code, StatusCode::kOk) << i << ": " << reply->data;
      }
    }
    for (int i = 0; i < stored / 3 * 3; ++i)
      ASSERT_TRUE(server.Stored(absl::StrCat("key", i)) == Large(bytes, 'c')) << i;
    EXPECT_EQ(one.Ask(one.RendezvousFrame(++sequence, "more", Large(bytes))).reason,
              Reason::kServerFull);
  }
}

TEST(ServerFullTest, WhatWasDeletedIsUsableWithinASecond) {
  HarnessOptions options;
  options.region_bytes = 4 << 20;
  ServerHarness server(options);
  RawClient client(server);
  client.Establish();
  uint64_t sequence = 0;
  const int stored = FillByRendezvous(client, sequence, 5000);
  const auto put = [&](const std::string& key, size_t bytes) {
    client.Send(client.RendezvousFrame(++sequence, key, Large(bytes)));
    server.Advance(absl::Seconds(1));
    const std::optional<RawReply> reply = client.TakeReply();
    return reply.has_value() && reply->code == StatusCode::kOk;
  };
  const auto remove = [&](int i) {
    EXPECT_EQ(client.Ask(client.DeleteFrame(++sequence, absl::StrCat("key", i))).code,
              StatusCode::kOk);
  };
  for (int i = 0; put(absl::StrCat("small", i), 2000); ++i) ASSERT_LT(i, 1000);
  ASSERT_FALSE(put("more", 2000));
  remove(10);
  remove(200);
  EXPECT_TRUE(put("more", 2000));
  EXPECT_TRUE(put("another", 2000));
  ASSERT_FALSE(put("long", 100000));
  for (int i = 0; i < 40; ++i) remove(11 + i * (stored - 20) / 40);
  EXPECT_TRUE(put("long", 100000));
}

}  // namespace
}  // namespace osprey::server

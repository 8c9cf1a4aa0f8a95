// The contract, part two: READs, failures, and resources left afterwards.

#include <atomic>
#include <cstring>
#include <thread>

#include "rdma/errors.h"
#include "tests/rdma/transport_contract.h"

namespace osprey::rdma {
namespace {

using Kind = Event::Kind;

// A server whose memory a client has attached.
struct Shared {
  std::unique_ptr<Memory> region;  // the server's
  std::unique_ptr<Memory> buffer;  // the client's
  RemoteMemory remote;
};

class TransportReads : public TransportContract {
 protected:
  Shared ShareRegion(Side& server, Side& client, const Ids& ids, size_t bytes) {
    Shared shared;
    shared.region = Allocate(server, bytes, Access::kRemoteRead);
    Fill(*shared.region, 1);
    shared.buffer = Allocate(client, bytes, Access::kLocal);
    shared.remote = Share(server, ids.server, client, ids.client, *shared.region);
    EXPECT_EQ(shared.remote.length, shared.region->size());
    return shared;
  }
  bool BothEnded(Side& server, Side& client, const Ids& ids) {
    return Until({&server, &client}, [&] {
      return server.Find(Kind::kDisconnected, ids.server) != nullptr &&
             client.Find(Kind::kDisconnected, ids.client) != nullptr;
    });
  }
};

INSTANTIATE_TEST_SUITE_P(Way, TransportReads, testing::ValuesIn(ContractWays()),
                         [](const auto& instance) { return instance.param; });

TEST_P(TransportReads, AReadBringsTheRightBytesAtAnyOffsetAndLength) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  const Shared shared = ShareRegion(server, client, ids, 8192);
  for (const uint64_t offset : {0, 1, 7, 8, 63, 4095, 4096}) {
    for (const uint32_t length : {1, 2, 7, 8, 9, 63, 64, 65, 256, 4000}) {
      std::memset(shared.buffer->data(), 0xee, shared.buffer->size());
      ASSERT_TRUE(ReadNow(client, ids.client, shared.remote, offset, length, *shared.buffer,
                          {&server, &client})
                      .ok());
      EXPECT_EQ(std::memcmp(shared.buffer->data(), shared.region->data() + offset, length), 0)
          << offset << " " << length;
      EXPECT_EQ(shared.buffer->data()[length], std::byte{0xee}) << "wrote past the segment";
    }
  }
}

TEST_P(TransportReads, AReadGoesIntoTwoSegmentsInOrder) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  const Shared shared = ShareRegion(server, client, ids, 8192);
  ReadRequest read;
  read.remote_address = shared.remote.address + 100;
  read.remote_key = shared.remote.key;
  read.segment_count = 2;
  read.segments[0] = {shared.buffer->data() + 5000, 33, shared.buffer.get()};
  read.segments[1] = {shared.buffer->data() + 1, 500, shared.buffer.get()};
  ASSERT_TRUE(client.Post(ids.client, {read}, 5).ok());
  ASSERT_TRUE(Until({&server, &client}, [&] { return client.Done(5) != nullptr; }));
  EXPECT_TRUE(client.Done(5)->status.ok());
  EXPECT_EQ(std::memcmp(shared.buffer->data() + 5000, shared.region->data() + 100, 33), 0);
  EXPECT_EQ(std::memcmp(shared.buffer->data() + 1, shared.region->data() + 133, 500), 0);
}

TEST_P(TransportReads, AMegabyteArrivesInOneRead) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  constexpr uint32_t kBytes = 1 << 20;
  const Shared shared = ShareRegion(server, client, ids, kBytes + 4096);
  ASSERT_TRUE(
      ReadNow(client, ids.client, shared.remote, 3, kBytes, *shared.buffer, {&server, &client})
          .ok());
  EXPECT_EQ(std::memcmp(shared.buffer->data(), shared.region->data() + 3, kBytes), 0);
}

TEST_P(TransportReads, BatchHasOneCompletionAndHoldsItsCreditsUntilThen) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  const Shared shared = ShareRegion(server, client, ids, 1 << 16);
  const size_t room = client.transport().ReadRoom(ids.client);
  ASSERT_GE(room, 1u);
  std::vector<ReadRequest> reads(std::min<size_t>(room, 100));
  for (size_t i = 0; i < reads.size(); ++i) {
    reads[i].remote_address = shared.remote.address + i * 333;
    reads[i].remote_key = shared.remote.key;
    reads[i].segments[0] = {shared.buffer->data() + i * 256, 256, shared.buffer.get()};
  }
  ASSERT_TRUE(client.Post(ids.client, reads, 77).ok());
  EXPECT_EQ(client.transport().ReadRoom(ids.client), room - reads.size());
  ASSERT_TRUE(Until({&server, &client}, [&] { return client.Done(77) != nullptr; }));
  EXPECT_TRUE(client.Done(77)->status.ok());
  for (int i = 0; i < 100; ++i) client.Pump();  // Side checks that the completion is the only one
  EXPECT_EQ(client.transport().ReadRoom(ids.client), room);
  for (size_t i = 0; i < reads.size(); ++i) {
    EXPECT_EQ(std::memcmp(shared.buffer->data() + i * 256, shared.region->data() + i * 333, 256), 0)
        << i;
  }
}

TEST_P(TransportReads, PollReadsTakesTheEndsOfBatchesInOrderAndNothingElse) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  const Shared shared = ShareRegion(server, client, ids, 1 << 16);
  Transport& transport = client.transport();
  Transport::ReadsDone done;
  EXPECT_FALSE(transport.PollReads(done));
  const size_t room = transport.ReadRoom(ids.client);
  for (const uint64_t cookie : {5, 6, 7}) {
    ReadRequest read;
    read.remote_address = shared.remote.address + cookie * 100;
    read.remote_key = shared.remote.key;
    read.segments[0] = {shared.buffer->data() + cookie * 256, 100, shared.buffer.get()};
    ASSERT_TRUE(transport.PostReads(ids.client, {&read, 1}, cookie).ok());
  }
  for (const uint64_t cookie : {5, 6, 7}) {
    ASSERT_TRUE(Until({&server}, [&] { return transport.PollReads(done); }));
    EXPECT_EQ(done.connection, ids.client);
    EXPECT_EQ(done.cookie, cookie);
    EXPECT_TRUE(done.status.ok()) << done.status;
    EXPECT_EQ(std::memcmp(shared.buffer->data() + cookie * 256,
                          shared.region->data() + cookie * 100, 100),
              0);
  }
  EXPECT_EQ(transport.ReadRoom(ids.client), room);
  EXPECT_FALSE(transport.PollReads(done));
  // What comes meanwhile is left to Poll, once each.
  const size_t frames = client.Frames(ids.client).size();
  ASSERT_TRUE(server.Send(ids.server, "frame").ok());
  for (int i = 0; i < 1000; ++i) ASSERT_FALSE(transport.PollReads(done));
  ASSERT_TRUE(Until({&server, &client}, [&] { return client.Frames(ids.client).size() > frames; }));
  EXPECT_EQ(client.Frames(ids.client)[frames], "frame");
  server.transport().Disconnect(ids.server);
  for (int i = 0; i < 1000; ++i) ASSERT_FALSE(transport.PollReads(done));
  EXPECT_TRUE(BothEnded(server, client, ids));
}

TEST_P(TransportReads, BatchThatDoesNotFitIsRefusedEntirely) {
  TransportOptions few;
  few.reads_in_flight_max = 4;
  Side server(*fixture_), client(*fixture_, few);
  const Ids ids = Join(server, client, Listen(server));
  const Shared shared = ShareRegion(server, client, ids, 4096);
  EXPECT_EQ(client.transport().limits(ids.client).reads_in_flight_max, 4);
  ReadRequest read;
  read.remote_address = shared.remote.address;
  read.remote_key = shared.remote.key;
  read.segments[0] = {shared.buffer->data(), 8, shared.buffer.get()};
  const std::vector<ReadRequest> five(5, read), three(3, read), two(2, read);
  EXPECT_EQ(client.Post(ids.client, five, 1).code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(client.Post(ids.client, three, 2).ok());
  EXPECT_EQ(client.Post(ids.client, two, 3).code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(client.Post(ids.client, {read}, 4).ok());
  ASSERT_TRUE(Until({&server, &client}, [&] { return client.Done(2) && client.Done(4); }));
  EXPECT_EQ(client.Done(1), nullptr);
  EXPECT_EQ(client.Done(3), nullptr);
  ASSERT_TRUE(client.Post(ids.client, two, 5).ok());
  ASSERT_TRUE(Until({&server, &client}, [&] { return client.Done(5) != nullptr; }));
}

TEST_P(TransportReads, ABadReadBreaksItsOwnConnectionAndNoOther) {
  Side server(*fixture_), client(*fixture_);
  const std::string uri = Listen(server);
  const Ids good = Join(server, client, uri);
  const Shared shared = ShareRegion(server, client, good, 8192);
  struct Case {
    std::string name;
    bool exposed;
    uint64_t offset;
    uint32_t key_change;
  };
  for (const Case& c :
       {Case{"past the end", true, shared.remote.length - 8, 0},
        Case{"far outside", true, 1 << 30, 0}, Case{"before the beginning", true, ~uint64_t{0}, 0},
        Case{"another key", true, 0, 0x5500},
        Case{"not exposed to this connection", false, 0, 0}}) {
    SCOPED_TRACE(c.name);
    const Ids bad = Join(server, client, uri);
    RemoteMemory remote = shared.remote;
    if (c.exposed) remote = Share(server, bad.server, client, bad.client, *shared.region);
    remote.key ^= c.key_change;
    const absl::Status status =
        ReadNow(client, bad.client, remote, c.offset, 64, *shared.buffer, {&server, &client});
    EXPECT_FALSE(status.ok());
    ASSERT_TRUE(BothEnded(server, client, bad));
    EXPECT_FALSE(client.Find(Kind::kDisconnected, bad.client)->status.ok());
    EXPECT_TRUE(
        ReadNow(client, good.client, shared.remote, 0, 64, *shared.buffer, {&server, &client})
            .ok());
  }
  Join(server, client, uri);
}

TEST_P(TransportReads, TheServerReadsTheClientsMemory) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  const std::unique_ptr<Memory> value = Allocate(client, 100000, Access::kRemoteRead);
  Fill(*value, 9);
  const std::unique_ptr<Memory> item = Allocate(server, 100000, Access::kLocal);
  const RemoteMemory remote = Share(client, ids.client, server, ids.server, *value);
  ASSERT_TRUE(ReadNow(server, ids.server, remote, 17, 99000, *item, {&server, &client}).ok());
  EXPECT_EQ(std::memcmp(item->data(), value->data() + 17, 99000), 0);
}

TEST_P(TransportReads, WhatWasAnnouncedIsReadOnceItIsExposed) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  const std::unique_ptr<Memory> memory = Allocate(server, 4096, Access::kRemoteRead);
  Fill(*memory, 1);
  const absl::StatusOr<RemoteMemory> announced = server.transport().Announce(ids.server, *memory);
  ASSERT_TRUE(announced.ok()) << announced.status();
  const RemoteMemory exposed = Share(server, ids.server, client, ids.client, *memory);
  EXPECT_EQ(announced->address, exposed.address);
  EXPECT_EQ(announced->length, exposed.length);
  EXPECT_EQ(announced->key, exposed.key);
  const std::unique_ptr<Memory> into = Allocate(client, 4096, Access::kLocal);
  EXPECT_TRUE(ReadNow(client, ids.client, exposed, 0, 64, *into, {&server, &client}).ok());
  EXPECT_EQ(std::memcmp(into->data(), memory->data(), 64), 0);
}

TEST_P(TransportReads, BothEndsReadAndManyMemoriesAreExposed) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  const std::unique_ptr<Memory> into = Allocate(client, 4096, Access::kLocal);
  std::vector<std::unique_ptr<Memory>> memories;
  std::vector<RemoteMemory> remotes;
  for (uint64_t i = 0; i < 5; ++i) {
    memories.push_back(Allocate(server, 4096, Access::kRemoteRead));
    Fill(*memories.back(), 100 + i);
    remotes.push_back(Share(server, ids.server, client, ids.client, *memories.back()));
  }
  for (size_t i = 0; i < memories.size(); ++i) {
    ASSERT_TRUE(ReadNow(client, ids.client, remotes[i], 8, 4000, *into, {&server, &client}).ok());
    EXPECT_EQ(std::memcmp(into->data(), memories[i]->data() + 8, 4000), 0) << i;
  }
}

TEST_P(TransportReads, RegisteredHostMemoryIsReadLikeAnyOther) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  absl::StatusOr<HostMemory> host = HostMemory::Create("region", 1 << 16);
  ASSERT_TRUE(host.ok()) << host.status();
  const absl::StatusOr<std::unique_ptr<Memory>> region =
      server.domain().Register(*host, Access::kRemoteRead);
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_EQ((*region)->data(), host->data());
  const std::unique_ptr<Memory> into = Allocate(client, 4096, Access::kLocal);
  const RemoteMemory remote = Share(server, ids.server, client, ids.client, **region);
  Fill(**region, 3);  // after it was exposed: a READ returns the present bytes
  ASSERT_TRUE(ReadNow(client, ids.client, remote, 60000, 4096, *into, {&server, &client}).ok());
  EXPECT_EQ(std::memcmp(into->data(), host->data() + 60000, 4096), 0);
}

TEST_P(TransportReads, ReadsLandInMemoryOfTheUsers) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  const Shared shared = ShareRegion(server, client, ids, 8192);
  std::vector<std::byte> own(5000);  // at any address
  const absl::StatusOr<std::unique_ptr<Memory>> memory =
      client.domain().RegisterSpan(own.data() + 3, 4900, Access::kLocal);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ((*memory)->data(), own.data() + 3);
  EXPECT_EQ((*memory)->size(), 4900u);
  ASSERT_TRUE(
      ReadNow(client, ids.client, shared.remote, 100, 4900, **memory, {&server, &client}).ok());
  EXPECT_EQ(std::memcmp(own.data() + 3, shared.region->data() + 100, 4900), 0);
  EXPECT_EQ(own[2], std::byte{0});
  EXPECT_EQ(own[4903], std::byte{0});
}

TEST_P(TransportReads, UserMemoryIsReadableByThePeerOrRefusedWithAFix) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  std::vector<std::byte> own(5000, std::byte{0x5a});
  const absl::StatusOr<std::unique_ptr<Memory>> memory =
      client.domain().RegisterSpan(own.data(), own.size(), Access::kRemoteRead);
  if (!memory.ok()) {
    EXPECT_EQ(memory.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(memory.status().message().find("AllocateBuffer"), absl::string_view::npos);
    return;
  }
  const std::unique_ptr<Memory> into = Allocate(server, 5000, Access::kLocal);
  const RemoteMemory remote = Share(client, ids.client, server, ids.server, **memory);
  ASSERT_TRUE(ReadNow(server, ids.server, remote, 0, 5000, *into, {&server, &client}).ok());
  EXPECT_EQ(std::memcmp(into->data(), own.data(), 5000), 0);
}

TEST_P(TransportReads, WithdrawnMemoryFreesCapacityForMore) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  const std::unique_ptr<Memory> into = Allocate(server, 4096, Access::kLocal);
  const std::unique_ptr<Memory> kept = Allocate(client, 4096, Access::kRemoteRead);
  Fill(*kept, 1);
  const RemoteMemory kept_remote = Share(client, ids.client, server, ids.server, *kept);
  for (uint64_t i = 0; i < 100; ++i) {  // more than may be exposed at a time over shm
    const std::unique_ptr<Memory> passing = Allocate(client, 4096, Access::kRemoteRead);
    Fill(*passing, 100 + i);
    const RemoteMemory remote = Share(client, ids.client, server, ids.server, *passing);
    ASSERT_TRUE(ReadNow(server, ids.server, remote, 0, 4096, *into, {&server, &client}).ok()) << i;
    ASSERT_EQ(std::memcmp(into->data(), passing->data(), 4096), 0) << i;
    client.transport().Withdraw(ids.client, *passing);
    client.transport().Withdraw(ids.client, *passing);  // nothing to do
  }
  EXPECT_TRUE(
      Until({&server, &client}, [&] { return server.transport().resources().peer_memories <= 1; }));
  ASSERT_TRUE(ReadNow(server, ids.server, kept_remote, 0, 4096, *into, {&server, &client}).ok());
  EXPECT_EQ(std::memcmp(into->data(), kept->data(), 4096), 0);
}

TEST_P(TransportReads, WhatWasWithdrawnAndIsGoneIsReadNoMore) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  const std::unique_ptr<Memory> into = Allocate(server, 4096, Access::kLocal);
  std::unique_ptr<Memory> memory = Allocate(client, 4096, Access::kRemoteRead);
  const RemoteMemory remote = Share(client, ids.client, server, ids.server, *memory);
  client.transport().Withdraw(ids.client, *memory);
  memory.reset();
  for (int i = 0; i < 1000; ++i) server.Pump();  // over shm it goes by packet
  EXPECT_FALSE(ReadNow(server, ids.server, remote, 0, 64, *into, {&server, &client}).ok());
  EXPECT_TRUE(BothEnded(server, client, ids));
}

TEST_P(TransportReads, AReaderSeesAWritersWordsWhileItWrites) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  const Shared shared = ShareRegion(server, client, ids, 4096);
  constexpr uint64_t kRounds = 2000;
  const auto word = [&](size_t i) {
    return std::atomic_ref<uint64_t>(reinterpret_cast<uint64_t*>(shared.region->data())[i]);
  };
  for (size_t i = 0; i < 32; ++i) word(i).store(0, std::memory_order_relaxed);
  std::atomic<bool> stop{false};
  // Its own words, which no other party writes; the transport reads them.
  std::thread writer([&] {
    for (uint64_t round = 1; round <= kRounds || !stop.load(std::memory_order_relaxed); ++round) {
      for (size_t i = 0; i < 32; ++i) word(i).store(round, std::memory_order_release);
    }
  });
  uint64_t first = 0;
  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(
        ReadNow(client, ids.client, shared.remote, 0, 256, *shared.buffer, {&server, &client})
            .ok());
    uint64_t now = 0;
    std::memcpy(&now, shared.buffer->data(), sizeof(now));
    EXPECT_GE(now, first) << "time went backwards";
    first = now;
  }
  stop = true;
  writer.join();
  ASSERT_TRUE(
      ReadNow(client, ids.client, shared.remote, 0, 256, *shared.buffer, {&server, &client}).ok());
  EXPECT_EQ(std::memcmp(shared.buffer->data(), shared.region->data(), 256), 0);
}

TEST_P(TransportReads, DisconnectWithReadsInFlightCompletesThemFirst) {
  Side server(*fixture_), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  const Shared shared = ShareRegion(server, client, ids, 1 << 20);
  ReadRequest read;
  read.remote_address = shared.remote.address;
  read.remote_key = shared.remote.key;
  read.segments[0] = {shared.buffer->data(), 1 << 20, shared.buffer.get()};
  for (uint64_t cookie = 0; cookie < 4; ++cookie)
    ASSERT_TRUE(client.Post(ids.client, {read}, cookie).ok());
  client.transport().Disconnect(ids.client);
  EXPECT_EQ(client.Post(ids.client, {read}, 9).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(BothEnded(server, client, ids));
  // Side checks that no READ lands after kDisconnected, and that each is completed. This checks the
  // bytes too:
  std::memset(shared.buffer->data(), 0x11, shared.buffer->size());
  absl::SleepFor(absl::Milliseconds(50));
  for (size_t i = 0; i < shared.buffer->size(); ++i)
    ASSERT_EQ(shared.buffer->data()[i], std::byte{0x11}) << i;
  for (uint64_t cookie = 0; cookie < 4; ++cookie) EXPECT_NE(client.Done(cookie), nullptr);
}

// --- Failures.

TEST_P(TransportReads, AKilledClientIsNoticedByTheServer) {
  Side server(*fixture_), witness(*fixture_);
  const std::string uri = Listen(server);
  Child child(GetParam(), "client", uri);
  ASSERT_TRUE(Until({&server}, [&] { return server.Find(Kind::kConnectRequest) != nullptr; }));
  const ConnectionId id = server.Find(Kind::kConnectRequest)->id;
  ASSERT_TRUE(server.transport().Accept(id).ok());
  ASSERT_TRUE(
      Until({&server}, [&] { return server.Frames(id) == std::vector<std::string>{"hello"}; }));
  child.Kill();
  EXPECT_TRUE(Until(
      {&server}, [&] { return server.Find(Kind::kDisconnected, id) != nullptr; },
      absl::Seconds(10)));
  Join(server, witness, uri);
}

TEST_P(TransportReads, AKilledServerIsNoticedByTheClient) {
  Child child(GetParam(), "server", fixture_->ListenUri());
  const std::string uri = child.FirstLine();
  Side client(*fixture_);
  const absl::StatusOr<ConnectionId> id = client.transport().Connect(uri);
  ASSERT_TRUE(id.ok()) << id.status();
  ASSERT_TRUE(Until({&client}, [&] { return client.Find(Kind::kConnected, *id) != nullptr; }));
  child.Kill();
  EXPECT_TRUE(Until(
      {&client}, [&] { return client.Find(Kind::kDisconnected, *id) != nullptr; },
      absl::Seconds(10)));
  EXPECT_EQ(client.transport().resources().connections, 0u);
}

TEST_P(TransportReads, ATransportDestroyedWithLiveConnectionsEndsThemAtThePeer) {
  for (const bool the_client : {true, false}) {
    Side server(*fixture_), client(*fixture_);
    const Ids ids = Join(server, client, Listen(server));
    const Shared shared = ShareRegion(server, client, ids, 4096);
    Side& survivor = the_client ? server : client;
    (the_client ? client : server).DestroyTransport();
    EXPECT_TRUE(Until({&survivor}, [&] { return survivor.Find(Kind::kDisconnected) != nullptr; }));
  }
}

TEST_P(TransportReads, AnAddressIsFreeAgainWhenItsListenerIsGone) {
  const std::string asked = fixture_->ListenUri();
  std::string uri;
  {
    Side server(*fixture_), client(*fixture_);
    const absl::StatusOr<std::string> ready = server.transport().Listen(asked, 1);
    ASSERT_TRUE(ready.ok()) << ready.status();
    uri = *ready;
    Join(server, client, uri);
  }
  Side server(*fixture_), client(*fixture_);
  absl::StatusOr<std::string> ready = server.transport().Listen(uri, 2);
  ASSERT_TRUE(ready.ok()) << ready.status();
  Join(server, client, *ready);
}

TEST_P(TransportReads, EverythingAConnectionHeldIsGivenBack) {
  Side server(*fixture_), client(*fixture_);
  const std::string uri = Listen(server);
  const auto round = [&] {
    const Ids ids = Join(server, client, uri);
    const Shared shared = ShareRegion(server, client, ids, 4096);
    ASSERT_TRUE(
        ReadNow(client, ids.client, shared.remote, 0, 64, *shared.buffer, {&server, &client}).ok());
    client.transport().Disconnect(ids.client);
    ASSERT_TRUE(BothEnded(server, client, ids));
  };
  round();  // allocates all one-time state
  const auto held = [&](Side& side) {
    const Transport::Resources now = side.transport().resources();
    return now.connections + now.queue_pairs + now.peer_memories;
  };
  ASSERT_TRUE(Until({&server, &client}, [&] { return held(server) == 0 && held(client) == 0; }));
  const size_t descriptors = OpenDescriptors();
  for (int i = 0; i < 5; ++i) round();
  EXPECT_TRUE(Until({&server, &client}, [&] { return held(server) == 0 && held(client) == 0; }));
  EXPECT_TRUE(Until(
      {&server, &client}, [&] { return OpenDescriptors() <= descriptors; }, absl::Seconds(5)))
      << OpenDescriptors() << " descriptors, " << descriptors << " before";
}

}  // namespace
}  // namespace osprey::rdma

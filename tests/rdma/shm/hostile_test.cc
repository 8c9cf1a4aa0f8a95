// Peers that violate the shm protocol: each loses its own connection, and no other is affected.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rdma/errors.h"
#include "rdma/shm/connection_end.h"
#include "rdma/shm/domain.h"
#include "rdma/shm/listener.h"
#include "rdma/shm/mapping.h"
#include "rdma/shm/socket.h"
#include "tests/rdma/shm/packets.h"
#include "tests/rdma/transport_contract.h"

namespace osprey::rdma {
namespace {

using Kind = Event::Kind;

std::string PathOf(const std::string& uri) { return uri.substr(std::strlen("shm://")); }

// A socket connected to `path` that has sent nothing.
UniqueFd RawConnect(const std::string& path) {
  UniqueFd fd = NewSocket().value();
  EXPECT_EQ(ConnectSocket(fd.get(), SocketAddress(path).value()), 0);
  return fd;
}

// An accepted client whose further actions the test chooses.
struct RawClient {
  UniqueFd socket;
  UniqueFd ring_file;
  Mapping rings;  // as the client maps them: to the server, then to the client
  ConnectionId server_id = ConnectionId::kNone;

  std::atomic_ref<uint32_t> word(size_t offset) {
    return std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(rings.data() + offset));
  }
  void Send(const ShmPacket& packet, absl::Span<const int> fds = {}) {
    EXPECT_EQ(SendPacket(socket.get(), packet, fds), 0);
  }
};

class ShmHostileTest : public TransportContract {
 protected:
  void SetUp() override {
    TransportContract::SetUp();
    server_ = std::make_unique<Side>(*fixture_);
    bystander_ = std::make_unique<Side>(*fixture_);
    uri_ = Listen(*server_);
    good_ = Join(*server_, *bystander_, uri_);
  }

  RawClient Intrude(const ShmPacket& greeting = ConnectPacket()) {
    RawClient client;
    client.socket = RawConnect(PathOf(uri_));
    client.Send(greeting);
    const size_t seen = server_->events().size();
    EXPECT_TRUE(Until({server_.get()}, [&] {
      for (size_t i = seen; i < server_->events().size(); ++i) {
        if (server_->events()[i].kind == Kind::kConnectRequest)
          client.server_id = server_->events()[i].id;
      }
      return client.server_id != ConnectionId::kNone;
    }));
    EXPECT_TRUE(server_->transport().Accept(client.server_id).ok());
    ReceivedPacket answer;
    EXPECT_EQ(ReceivePacket(client.socket.get(), lane_, &answer), ReceiveResult::kPacket);
    EXPECT_EQ(answer.fd_count, 2u);
    client.rings = MapSealed(answer.fds[0].get(), 1, MapAccess::kReadWrite).value();
    client.ring_file = UniqueFd(answer.fds[0].release());
    return client;
  }
  // The result of Attach.
  absl::Status Expose(RawClient& client, const UniqueFd& fd, uint64_t bytes, uint32_t key) {
    ShmPacket expose = PacketOf(PacketKind::kExpose);
    expose.key = key;
    expose.length = bytes;
    client.Send(expose, {fd.get()});
    return server_->transport().Attach(client.server_id, RemoteMemory{0, bytes, key});
  }
  // READs `bytes` at `offset` of the memory that the client exposed.
  bool IsZeroAt(const RawClient& client, uint32_t key, uint64_t offset, uint32_t bytes) {
    const std::unique_ptr<Memory> into = Allocate(*server_, bytes, Access::kLocal);
    std::memset(into->data(), 'x', bytes);
    const RemoteMemory remote = {0, offset + bytes, key};
    const absl::Status status =
        ReadNow(*server_, client.server_id, remote, offset, bytes, *into, {server_.get()});
    EXPECT_TRUE(status.ok()) << status;
    return std::count(into->data(), into->data() + bytes, std::byte{0}) == bytes;
  }
  static uint64_t PagesOf(const UniqueFd& fd) {
    struct stat info = {};
    EXPECT_EQ(fstat(fd.get(), &info), 0);
    return static_cast<uint64_t>(info.st_blocks) * 512 / 4096;
  }
  // Bytes mapped by this process.
  static uint64_t AddressBytes() {
    std::ifstream file("/proc/self/statm");
    uint64_t pages = 0;
    EXPECT_TRUE(file >> pages);
    return pages * 4096;
  }
  void ExpectBroken(const RawClient& client) {
    EXPECT_TRUE(Until({server_.get()}, [&] {
      return server_->Find(Kind::kDisconnected, client.server_id) != nullptr;
    }));
    ASSERT_NE(server_->Find(Kind::kDisconnected, client.server_id), nullptr);
    EXPECT_TRUE(BrokeRules(server_->Find(Kind::kDisconnected, client.server_id)->status));
    ExpectUndisturbed();
  }
  void ExpectUndisturbed() {
    const size_t seen = server_->Frames(good_.server).size();
    ASSERT_TRUE(bystander_->Send(good_.client, "still here").ok());
    EXPECT_TRUE(Until({server_.get(), bystander_.get()},
                      [&] { return server_->Frames(good_.server).size() == seen + 1; }));
    Side newcomer(*fixture_);
    Join(*server_, newcomer, uri_);
  }

  const std::shared_ptr<CloserLane> lane_ = CloserLane::Create();
  std::unique_ptr<Side> server_, bystander_;
  std::string uri_;
  Ids good_;
};

INSTANTIATE_TEST_SUITE_P(Way, ShmHostileTest, testing::ValuesIn(ContractWays()),
                         [](const auto& instance) { return instance.param; });

TEST_P(ShmHostileTest, SilentClientsGiveWayToOnesThatSpeak) {
  const size_t descriptors = OpenDescriptors();
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(RawConnect(PathOf(uri_)));
  for (int i = 0; i < 5000; ++i) server_->Pump();
  EXPECT_LE(OpenDescriptors(), descriptors + silent.size() + 64)
      << "half-open connections are bounded";
  EXPECT_EQ(server_->transport().resources().connections, 1u);
  ExpectUndisturbed();
}

TEST_P(ShmHostileTest, GarbageInPlaceOfAGreetingIsDropped) {
  ShmPacket no_magic = ConnectPacket(), no_credits = ConnectPacket(), rejection = ConnectPacket(),
            wake = PacketOf(PacketKind::kWake);
  no_magic.connect.magic = 1;
  no_credits.connect.receive_credits = 0;
  rejection.connect.reason = 2;
  for (const ShmPacket& packet : {no_magic, no_credits, rejection, wake}) {
    const UniqueFd socket = RawConnect(PathOf(uri_));
    ASSERT_EQ(SendPacket(socket.get(), packet), 0);
    ReceivedPacket answer;
    ReceiveResult result = ReceiveResult::kNothing;
    ASSERT_TRUE(Until({server_.get()}, [&] {
      result = ReceivePacket(socket.get(), lane_, &answer);
      return result != ReceiveResult::kNothing;
    }));
    EXPECT_EQ(result, ReceiveResult::kHangUp);
  }
  for (const size_t length : {0, 1, 7, 24, 47}) {
    const UniqueFd socket = RawConnect(PathOf(uri_));
    const ShmPacket packet = ConnectPacket();
    ASSERT_EQ(send(socket.get(), &packet, length, 0), static_cast<ssize_t>(length));
    for (int i = 0; i < 200; ++i) server_->Pump();
  }
  EXPECT_EQ(server_->transport().resources().connections, 1u);
  ExpectUndisturbed();
}

TEST_P(ShmHostileTest, ABrokenRingCostsItsConnection) {
  constexpr size_t kSlotBytes = (8 + 256 + 63) / 64 * 64;
  // Plausible lengths, so that the check of the counter must detect the error.
  const auto plausible = [](RawClient& c) {
    for (size_t slot = 0; slot < 32; ++slot) c.word(128 + slot * kSlotBytes).store(1);
  };
  const std::vector<std::function<void(RawClient&)>> breaches = {
      [&](RawClient& c) { plausible(c), c.word(0).store(33); },          // more than the slots
      [&](RawClient& c) { plausible(c), c.word(0).store(0xffffffff); },  // tail behind
      [](RawClient& c) { c.word(0).store(1); },                          // a frame of length 0
      [](RawClient& c) { c.word(128).store(257), c.word(0).store(1); },  // a frame too long
      [](RawClient& c) { c.word(128).store(0xffffffff), c.word(0).store(1); },
  };
  for (const auto& breach : breaches) {
    RawClient client = Intrude();
    breach(client);
    ExpectBroken(client);
    EXPECT_TRUE(server_->Frames(client.server_id).empty());
  }
}

TEST_P(ShmHostileTest, AHeadOutOfRangeCostsItsConnectionWhenTheServerSends) {
  RawClient client = Intrude();
  // The ring to the client comes after the one to the server: 32 slots (the server's credits) of
  // 256 bytes and a header.
  const size_t to_client = 128 + 32 * ((8 + 256 + 63) / 64 * 64);
  client.word(to_client + 64).store(77);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(server_->Send(client.server_id, "x").ok());
  EXPECT_EQ(server_->transport().SendRoom(client.server_id), 0u);
  EXPECT_EQ(server_->Send(client.server_id, "x").code(), absl::StatusCode::kUnavailable);
  ExpectBroken(client);
}

TEST_P(ShmHostileTest, PacketsOutOfPlaceCostTheirConnection) {
  ShmPacket unknown;
  unknown.kind = 99;
  for (const ShmPacket& packet :
       {ConnectPacket(), unknown, PacketOf(PacketKind::kExpose),  // which has no descriptor
        PacketOf(PacketKind::kWithdraw)}) {                       // of memory that was not exposed
    RawClient client = Intrude();
    client.Send(packet);
    ExpectBroken(client);
  }
  RawClient client = Intrude();
  ASSERT_EQ(send(client.socket.get(), "short", 5, 0), 5);
  ExpectBroken(client);
}

TEST_P(ShmHostileTest, DescriptorsThatWereNotAskedForCostTheirConnection) {
  const size_t descriptors = OpenDescriptors();
  for (const PacketKind kind : {PacketKind::kWake, PacketKind::kBye, PacketKind::kWithdraw}) {
    RawClient client = Intrude();
    const UniqueFd memory = NewMemfd(4096, kMemorySeals);
    client.Send(PacketOf(kind), {memory.get(), memory.get()});
    ExpectBroken(client);
  }
  EXPECT_TRUE(Until({server_.get()}, [&] { return OpenDescriptors() <= descriptors; }));
}

TEST_P(ShmHostileTest, MemoryThatCouldVanishIsNotAttached) {
  struct Case {
    UniqueFd fd;
    uint64_t claimed;
  };
  std::vector<Case> cases;
  cases.push_back({NewMemfd(4096, 0), 4096});             // may be truncated at any time
  cases.push_back({NewMemfd(4096, F_SEAL_GROW), 4096});   // likewise
  cases.push_back({NewMemfd(4096, kMemorySeals), 8192});  // shorter than declared
  cases.push_back({NewMemfd(4096, kMemorySeals), ~uint64_t{0}});
  RawClient client = Intrude();
  uint32_t key = 1;
  ASSERT_TRUE(Expose(client, NewMemfd(4096, kMemorySeals), 4096, key++).ok());
  for (const Case& c : cases) {
    ShmPacket expose = PacketOf(PacketKind::kExpose);
    expose.key = key++;
    expose.length = c.claimed;
    client.Send(expose, {c.fd.get()});
    const absl::Status status =
        server_->transport().Attach(client.server_id, RemoteMemory{0, c.claimed, expose.key});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << expose.key << status;
  }
  EXPECT_EQ(server_->transport().resources().peer_memories, 1u);
  ExpectUndisturbed();
}

// Files without pages cost their owner nothing, and use address space of the process that maps
// them.
TEST_P(ShmHostileTest, MemoriesThatAreLongAndEmptyLeaveAddressesToOthers) {
  constexpr uint64_t kTiB = uint64_t{1} << 40;
  const uint64_t addresses = AddressBytes();
  RawClient client = Intrude();
  const UniqueFd fd = NewMemfd(static_cast<off_t>(32 * kTiB), kMemorySeals);
  for (uint32_t key = 1; key <= 8; ++key) {
    ASSERT_TRUE(Expose(client, fd, 32 * kTiB, key).ok());
    EXPECT_TRUE(IsZeroAt(client, key, 32 * kTiB - 4096, 4096));
  }
  EXPECT_LE(AddressBytes(), addresses + (uint64_t{1} << 30));
  EXPECT_EQ(PagesOf(fd), 0u);
  ExpectUndisturbed();
}

// A load from a hole through a mapping makes the kernel allocate the page, and charge it to the
// loading process.
TEST_P(ShmHostileTest, HolesThatAreReadStayHoles) {
  constexpr uint32_t kBytes = 8 << 20;
  RawClient client = Intrude();
  const UniqueFd fd = NewMemfd(kBytes, kMemorySeals);
  ASSERT_TRUE(Expose(client, fd, kBytes, 1).ok());
  EXPECT_TRUE(IsZeroAt(client, 1, 0, kBytes));
  EXPECT_EQ(PagesOf(fd), 0u);
  // A page of data between them.
  const std::string page(4096, 'd');
  ASSERT_EQ(pwrite(fd.get(), page.data(), page.size(), 40960), 4096);
  const std::unique_ptr<Memory> into = Allocate(*server_, kBytes, Access::kLocal);
  ASSERT_TRUE(
      ReadNow(*server_, client.server_id, {0, kBytes, 1}, 0, kBytes, *into, {server_.get()}).ok());
  const std::string read(reinterpret_cast<const char*>(into->data()), kBytes);
  EXPECT_EQ(read.substr(40960, 4096), page);
  EXPECT_EQ(std::count(read.begin(), read.end(), 0), kBytes - 4096);
  EXPECT_EQ(PagesOf(fd), 1u);
}

// Through a mapping, a hole that is punched on huge pages may have no page to fill it.
TEST_P(ShmHostileTest, HolesOnHugePagesAreReadToo) {
  const UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  constexpr uint32_t kHugePageBytes = 2 << 20;
  if (!fd.valid() || ftruncate(fd.get(), kHugePageBytes) != 0)
    GTEST_SKIP() << "this system has no huge pages";
  ASSERT_EQ(fcntl(fd.get(), F_ADD_SEALS, kMemorySeals), 0);
  RawClient client = Intrude();
  ASSERT_TRUE(Expose(client, fd, kHugePageBytes, 1).ok());
  EXPECT_TRUE(IsZeroAt(client, 1, 0, kHugePageBytes));
  EXPECT_EQ(PagesOf(fd), 0u);
  ExpectUndisturbed();
}

// A descriptor that cannot be read.
TEST_P(ShmHostileTest, MemoryThatCannotBeReadCostsItsConnection) {
  const UniqueFd fd = NewMemfd(4096, kMemorySeals);
  const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
  const UniqueFd write_only(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(write_only.valid());
  RawClient client = Intrude();
  ASSERT_TRUE(Expose(client, write_only, 4096, 1).ok());
  const std::unique_ptr<Memory> into = Allocate(*server_, 4096, Access::kLocal);
  EXPECT_EQ(ReadNow(*server_, client.server_id, {0, 4096, 1}, 0, 64, *into, {server_.get()}).code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_NE(server_->Find(Kind::kDisconnected, client.server_id), nullptr);
  ExpectUndisturbed();
}

TEST_P(ShmHostileTest, OnlyWhatWasExposedIsAttached) {
  RawClient client = Intrude();
  ShmPacket expose = PacketOf(PacketKind::kExpose);
  expose.key = 7;
  expose.length = 4096;
  const UniqueFd memory = NewMemfd(4096, kMemorySeals);
  client.Send(expose, {memory.get()});
  Transport& transport = server_->transport();
  EXPECT_FALSE(transport.Attach(client.server_id, RemoteMemory{0, 4096, 8}).ok());
  EXPECT_FALSE(transport.Attach(client.server_id, RemoteMemory{0, 4097, 7}).ok());
  EXPECT_FALSE(transport.Attach(client.server_id, RemoteMemory{8, 4096, 7}).ok());
  EXPECT_FALSE(transport.Attach(client.server_id, RemoteMemory{~uint64_t{0}, 8, 7}).ok());
  EXPECT_EQ(transport.resources().peer_memories, 0u);
  EXPECT_TRUE(
      transport.Attach(client.server_id, RemoteMemory{8, 100, 7}).ok());  // a part of it is allowed
  EXPECT_TRUE(
      transport.Attach(client.server_id, RemoteMemory{0, 4096, 7}).ok());  // again: nothing to do
  EXPECT_EQ(transport.resources().peer_memories, 1u);
}

// Requests all the memory that a server reserves for replies.
ShmPacket GreedyGreeting() {
  ShmPacket packet = ConnectPacket();
  packet.connect.receive_credits = 0xffff;
  packet.connect.frame_bytes_max = 8192;
  return packet;
}

TEST_P(ShmHostileTest, RepliesHaveAsManySlotsAsRequestsNeed) {
  const RawClient client = Intrude(GreedyGreeting());
  EXPECT_EQ(server_->transport().limits(client.server_id).send_credits_max, kShmCreditsMax);
  EXPECT_LE(client.rings.size(), size_t{2} << 20);
}

class ShmRingsEndTest : public ShmHostileTest {
 protected:
  // A client whose slots the server has filled.
  RawClient Fill() {
    RawClient client = Intrude(GreedyGreeting());
    const std::string frame(8192, 'f');
    while (server_->transport().SendRoom(client.server_id) > 0)
      EXPECT_TRUE(server_->Send(client.server_id, frame).ok());
    EXPECT_GT(PagesOf(client.ring_file), 256u) << "void unless the server has filled pages";
    return client;
  }
  bool Ended(const RawClient& client) {
    return Until({server_.get()},
                 [&] { return server_->Find(Kind::kDisconnected, client.server_id) != nullptr; });
  }
};

INSTANTIATE_TEST_SUITE_P(Way, ShmRingsEndTest, testing::ValuesIn(ContractWays()),
                         [](const auto& instance) { return instance.param; });

TEST_P(ShmRingsEndTest, PagesAreGivenBackWhenTheClientGoesOrBreaksARule) {
  RawClient gone = Fill();
  gone.socket.reset();
  ASSERT_TRUE(Ended(gone));
  EXPECT_EQ(PagesOf(gone.ring_file), 0u);
  RawClient breach = Fill();
  breach.Send(PacketOf(PacketKind::kWithdraw));
  ASSERT_TRUE(Ended(breach));
  EXPECT_EQ(PagesOf(breach.ring_file), 0u);
}

TEST_P(ShmRingsEndTest, PagesOfFramesThatWereTakenAreGivenBack) {
  // All of them; and more than exist, as a broken ring states.
  for (const uint32_t taken : {kShmCreditsMax + 0u, kShmCreditsMax + 1u}) {
    RawClient client = Fill();
    const size_t to_client = client.rings.size() - RingShape{kShmCreditsMax, 8192}.bytes();
    client.word(to_client + 64).store(taken);
    server_->transport().Disconnect(client.server_id);
    ASSERT_TRUE(Ended(client));
    EXPECT_EQ(PagesOf(client.ring_file), 0u) << taken;
  }
}

// Otherwise a refused client could not report the reason.
TEST_P(ShmRingsEndTest, FramesThatWereNotTakenStayUntilManyMoreEnd) {
  RawClient client = Fill();
  const size_t to_client = client.rings.size() - RingShape{kShmCreditsMax, 8192}.bytes();
  const size_t slots = to_client + RingShape::kControlBytes;
  const size_t slot_bytes = RingShape{kShmCreditsMax, 8192}.slot_bytes();
  client.word(to_client + 64).store(kShmCreditsMax - 1);
  ASSERT_EQ(server_->transport().SendRoom(client.server_id), kShmCreditsMax - 1u);
  ASSERT_TRUE(server_->Send(client.server_id, std::string(8192, 'g')).ok());
  // The ring to the server holds nothing for the client.
  for (size_t at = RingShape::kControlBytes; at < to_client; at += 4096)
    client.rings.data()[at] = std::byte{1};
  server_->transport().Disconnect(client.server_id);
  ASSERT_TRUE(Ended(client));
  const auto first_byte = [&](size_t slot) {
    return static_cast<char>(client.rings.data()[slots + slot * slot_bytes + 8]);
  };
  EXPECT_EQ(first_byte(kShmCreditsMax - 1), 'f');
  EXPECT_EQ(first_byte(0), 'g');
  EXPECT_EQ(client.word(to_client).load(), kShmCreditsMax + 1u) << "the counter of frames";
  EXPECT_EQ(first_byte(kShmCreditsMax / 2), 0);
  EXPECT_LE(PagesOf(client.ring_file), 8u);
  for (size_t i = 0; i < UnreadRings::kRingsMax; ++i) {
    EXPECT_GT(PagesOf(client.ring_file), 0u);
    RawClient next = Fill();
    server_->transport().Disconnect(next.server_id);
    ASSERT_TRUE(Ended(next));
  }
  EXPECT_EQ(PagesOf(client.ring_file), 0u);
}

// A key-value server attaches the first memory after the client's proof of the key.
TEST_P(ShmHostileTest, APeerExposesOneMemoryBeforeItIsAttached) {
  const size_t descriptors = OpenDescriptors();
  const uint64_t addresses = AddressBytes();
  // Of the server: the stack of the thread that closes descriptors, the heap of that thread, and buffers.
  const uint64_t kOwnBytes = uint64_t{256} << 20;
  const UniqueFd memory = NewMemfd(off_t{64} << 30, kMemorySeals);
  RawClient client = Intrude();
  const uint64_t addresses_with_client = AddressBytes();
  for (uint32_t key = 1; key <= 2; ++key) {
    ShmPacket expose = PacketOf(PacketKind::kExpose);
    expose.key = key;
    expose.length = uint64_t{64} << 30;
    client.Send(expose, {memory.get()});
    for (int i = 0; i < 200; ++i) server_->Pump();
    EXPECT_TRUE(Until({server_.get()}, [&] { return OpenDescriptors() <= descriptors + 5; }))
        << "its socket at both ends, the test's memfd, the file of its rings, and one memory";
    EXPECT_LE(AddressBytes(), addresses_with_client + kOwnBytes);
  }
  ExpectBroken(client);
  EXPECT_NE(server_->Find(Kind::kDisconnected, client.server_id)
                ->status.message()
                .find("more than the 1 memory"),
            absl::string_view::npos);
  client.rings = Mapping();
  EXPECT_LE(AddressBytes(), addresses + kOwnBytes);
}

TEST_P(ShmHostileTest, ExposingWithoutEndClosesTheConnectionAndDescriptors) {
  const size_t descriptors = OpenDescriptors();
  {
    RawClient client = Intrude();
    const UniqueFd memory = NewMemfd(4096, kMemorySeals);
    ASSERT_TRUE(Expose(client, memory, 4096, 1).ok());
    for (uint32_t key = 2; key <= 100; ++key) {
      ShmPacket expose = PacketOf(PacketKind::kExpose);
      expose.key = key;
      expose.length = 4096;
      if (SendPacket(client.socket.get(), expose, {memory.get()}) != 0)
        break;  // it may be disconnected already
      server_->Pump();
      // Of the connection some, and 16 of what it exposed.
      EXPECT_LE(OpenDescriptors(), descriptors + kShmMemoriesMax + 10);
    }
    ExpectBroken(client);
  }
  EXPECT_TRUE(Until(
      {server_.get()}, [&] { return OpenDescriptors() <= descriptors; }, absl::Seconds(5)));
}

TEST_P(ShmHostileTest, FloodOfWakeUpsDelaysOthersOnlyBriefly) {
  RawClient client = Intrude();
  int sent = 0;
  while (sent < 100000 && SendPacket(client.socket.get(), PacketOf(PacketKind::kWake)) == 0) ++sent;
  EXPECT_GT(sent, 50);
  ExpectUndisturbed();
}

TEST_P(ShmHostileTest, WithoutDescriptorsANewClientIsRefusedAndOthersContinue) {
  const UniqueFd newcomer = RawConnect(PathOf(uri_));
  ASSERT_EQ(SendPacket(newcomer.get(), ConnectPacket()), 0);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {static_cast<rlim_t>(newcomer.get() + 1), before.rlim_max};
  // Fill what is free below the limit.
  std::vector<UniqueFd> fill;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  for (UniqueFd fd(dup(0)); fd.valid(); fd.reset(dup(0))) fill.push_back(std::move(fd));
  ReceivedPacket answer;
  EXPECT_TRUE(Until({server_.get()}, [&] {
    return ReceivePacket(newcomer.get(), lane_, &answer) == ReceiveResult::kPacket;
  }));
  fill.clear();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(answer.packet.connect.reason, static_cast<uint16_t>(RejectReason::kTooManyConnections));
  // Its request was not read: clients of the version before read this, too.
  EXPECT_EQ(answer.packet.connect.version, OldestServed(kProtocolVersion));
  ExpectUndisturbed();
}

// --- A hostile server, and our client.

class ShmHostileServerTest : public TransportContract {
 protected:
  // Our client connects to a listener that answers with `packet` and `fds`. Returns how it ends.
  absl::Status Meet(const ShmPacket& packet, absl::Span<const int> fds) {
    const std::string uri = fixture_->ListenUri();
    const UniqueFd listener = NewSocket().value();
    const sockaddr_un address = SocketAddress(PathOf(uri)).value();
    EXPECT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
              0);
    EXPECT_EQ(listen(listener.get(), 1), 0);
    Side client(*fixture_);
    const ConnectionId id = client.transport().Connect(uri).value();
    const UniqueFd socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_EQ(SendPacket(socket.get(), packet, fds), 0);
    EXPECT_TRUE(Until({&client}, [&] { return client.Find(Kind::kDisconnected, id) != nullptr; }));
    EXPECT_EQ(client.Find(Kind::kConnected, id), nullptr);
    return client.Find(Kind::kDisconnected, id)->status;
  }
};

INSTANTIATE_TEST_SUITE_P(Way, ShmHostileServerTest, testing::ValuesIn(ContractWays()),
                         [](const auto& instance) { return instance.param; });

TEST_P(ShmHostileServerTest, IncompleteAcceptanceIsRefused) {
  const UniqueFd rings = NewMemfd(1 << 20, kMemorySeals), small = NewMemfd(4096, kMemorySeals),
                 loose = NewMemfd(1 << 20, 0);
  const UniqueFd page = NewMemfd(kIncarnationPageBytes, kMemorySeals);
  const uint64_t words[] = {kIncarnationMagic, 7, FUTEX_OWNER_DIED};
  ASSERT_EQ(pwrite(page.get(), words, sizeof(words), 0), static_cast<ssize_t>(sizeof(words)));
  ShmPacket ended = ConnectPacket(), other = ConnectPacket();
  ended.incarnation = 7;
  other.incarnation = 5;
  ShmPacket garbage = ConnectPacket();
  garbage.connect.magic = 0;

  EXPECT_FALSE(Meet(ConnectPacket(), {}).ok());
  EXPECT_FALSE(Meet(ConnectPacket(), {rings.get()}).ok());
  EXPECT_FALSE(Meet(ConnectPacket(), {small.get(), page.get()}).ok());
  EXPECT_FALSE(Meet(ConnectPacket(), {loose.get(), page.get()}).ok());
  EXPECT_EQ(ReasonOf(Meet(other, {rings.get(), page.get()})), Reason::kNotOsprey);
  EXPECT_EQ(ReasonOf(Meet(ended, {rings.get(), page.get()})), Reason::kPeerGone);
  EXPECT_EQ(ReasonOf(Meet(garbage, {rings.get(), page.get()})), Reason::kNotOsprey);
  EXPECT_EQ(ReasonOf(Meet(PacketOf(PacketKind::kBye), {})), Reason::kNotOsprey);
}

}  // namespace
}  // namespace osprey::rdma

// Addresses of shm servers, and how clients distinguish its incarnations.

#include "rdma/shm/listener.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "rdma/errors.h"
#include "rdma/shm/domain.h"
#include "rdma/shm/robust_futex.h"
#include "rdma/shm/socket.h"
#include "tests/rdma/transport_contract.h"

namespace osprey::rdma {
namespace {

using Kind = Event::Kind;
using Code = absl::StatusCode;

class ShmListenerTest : public TransportContract {
 protected:
  void SetUp() override {
    TransportContract::SetUp();
    char name[] = "/tmp/osprey-listener-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    directory_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  static absl::Status ListenStatus(Side& side, const std::string& path) {
    return side.transport().Listen("shm://" + path, 1).status();
  }
  // The result of a Connect to `path`.
  absl::Status ConnectStatus(Side& client, const std::string& path) {
    const absl::StatusOr<ConnectionId> id = client.transport().Connect("shm://" + path);
    if (!id.ok()) return id.status();
    EXPECT_TRUE(Until({&client}, [&] { return client.Find(Kind::kDisconnected, *id) != nullptr; }));
    return client.Find(Kind::kDisconnected, *id)->status;
  }
  // Connects to the server at `uri`, a Child, and attaches the memory that it exposes.
  static void AttachToChild(Side& client, const std::string& uri, ConnectionId& id,
                            RemoteMemory& remote) {
    id = client.transport().Connect(uri).value();
    ASSERT_TRUE(Until({&client}, [&] { return client.Find(Kind::kConnected, id) != nullptr; }));
    ASSERT_TRUE(client.Send(id, "expose").ok());
    ASSERT_TRUE(Until({&client}, [&] { return !client.Frames(id).empty(); }));
    std::memcpy(&remote, client.Frames(id)[0].data(), sizeof(remote));
    ASSERT_TRUE(client.transport().Attach(id, remote).ok());
  }
  static ReadRequest ReadOf(const RemoteMemory& remote, const Memory& into) {
    ReadRequest read;
    read.remote_address = remote.address;
    read.remote_key = remote.key;
    read.segments[0] = {into.data(), 64, &into};
    return read;
  }
  // By ReadNow, or by PostReads; and the connection ends.
  static void ExpectReadFails(Side& client, ConnectionId id, const ReadRequest& read,
                              bool at_once) {
    if (at_once) {
      EXPECT_EQ(ReasonOf(client.transport().mapped_reads()->ReadNow(id, {&read, 1})),
                Reason::kPeerGone);
    } else {
      ASSERT_TRUE(client.Post(id, {read}, 99).ok());
    }
    ASSERT_TRUE(Until({&client}, [&] { return client.Find(Kind::kDisconnected, id) != nullptr; }));
    EXPECT_EQ(ReasonOf(client.Find(Kind::kDisconnected, id)->status), Reason::kPeerGone);
    if (!at_once) {
      EXPECT_EQ(ReasonOf(client.Done(99)->status), Reason::kPeerGone);
    }
  }
  static mode_t ModeOf(const std::string& path) {
    struct stat info = {};
    EXPECT_EQ(lstat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777;
  }

  std::string directory_;
};

INSTANTIATE_TEST_SUITE_P(Way, ShmListenerTest, testing::ValuesIn(ContractWays()),
                         [](const auto& instance) { return instance.param; });

// A user other than root, to which file modes apply.
class Nobody {
 public:
  Nobody() : was_root_(geteuid() == 0) {
    if (was_root_) {
      EXPECT_EQ(seteuid(65534), 0);
    }
  }
  ~Nobody() {
    if (was_root_) {
      EXPECT_EQ(seteuid(0), 0);
    }
  }

 private:
  const bool was_root_;
};

TEST_P(ShmListenerTest, BothFilesArePrivateByDefaultWhateverTheUmask) {
  const mode_t umask_before = umask(0);
  Side server(*fixture_);
  ASSERT_TRUE(ListenStatus(server, Path("a")).ok());
  umask(umask_before);
  EXPECT_EQ(ModeOf(Path("a")), 0600u);
  EXPECT_EQ(ModeOf(Path("a.lock")), 0600u);
}

TEST_P(ShmListenerTest, TheSocketHasTheModeAskedForAndTheLockIsPrivate) {
  for (const mode_t mode : {0600, 0660, 0666, 0200}) {
    ShmDomainOptions options;
    options.socket_mode = mode;
    const std::unique_ptr<Domain> domain = OpenShmDomain(options).value();
    const std::unique_ptr<Transport> server = domain->NewTransport({}).value();
    ASSERT_TRUE(server->Listen("shm://" + Path("a"), 1).ok());
    EXPECT_EQ(ModeOf(Path("a")), mode);
    EXPECT_EQ(ModeOf(Path("a.lock")), 0600u);
  }
}

TEST_P(ShmListenerTest, SocketModeAdmitsOtherUsersWithTheirUid) {
  ASSERT_EQ(chmod(directory_.c_str(), 0755), 0);
  ShmDomainOptions options;
  options.socket_mode = 0666;
  const std::unique_ptr<Domain> domain = OpenShmDomain(options).value();
  const std::unique_ptr<Transport> server = domain->NewTransport({}).value();
  ASSERT_TRUE(server->Listen("shm://" + Path("a"), 1).ok());
  Side client(*fixture_);
  const Nobody nobody;
  if (geteuid() != 65534) GTEST_SKIP() << "only root can act as another user";
  ASSERT_TRUE(client.transport().Connect("shm://" + Path("a")).ok());
  std::vector<Event> events(4);
  ASSERT_TRUE(Until({&client}, [&] { return server->Poll(absl::MakeSpan(events)) > 0; }));
  EXPECT_EQ(events[0].kind, Kind::kConnectRequest);
  EXPECT_EQ(events[0].source, "uid=65534");
  // It cannot take the lock.
  EXPECT_EQ(open(Path("a.lock").c_str(), O_RDONLY), -1);
  EXPECT_EQ(errno, EACCES);
}

TEST_P(ShmListenerTest, ALockOpenToOthersIsMadePrivateAndAnothersIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can act as another user";
  Side server(*fixture_);
  std::ofstream(Path("a.lock")).flush();
  ASSERT_EQ(chmod(Path("a.lock").c_str(), 0666), 0);
  ASSERT_TRUE(ListenStatus(server, Path("a")).ok());
  EXPECT_EQ(ModeOf(Path("a.lock")), 0600u);

  std::ofstream(Path("b.lock")).flush();
  ASSERT_EQ(chown(Path("b.lock").c_str(), 65534, 65534), 0);
  const absl::Status status = ListenStatus(server, Path("b"));
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_NE(status.message().find("belongs to user 65534"), absl::string_view::npos) << status;
}

TEST_P(ShmListenerTest, TheSocketGoesWithItsServerAndTheLockStays) {
  {
    Side server(*fixture_);
    ASSERT_TRUE(ListenStatus(server, Path("a")).ok());
  }
  EXPECT_FALSE(std::filesystem::exists(Path("a")));
  EXPECT_EQ(std::filesystem::file_size(Path("a.lock")), 0u);
  Side server(*fixture_);
  EXPECT_TRUE(ListenStatus(server, Path("a")).ok());
}

TEST_P(ShmListenerTest, ALivingServerKeepsItsPathWhicheverFileIsDeleted) {
  Side server(*fixture_), second(*fixture_), client(*fixture_);
  ASSERT_TRUE(ListenStatus(server, Path("a")).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(ListenStatus(second, Path("a"))));
  std::filesystem::remove(Path("a.lock"));  // now only the socket shows a live server
  EXPECT_TRUE(absl::IsAlreadyExists(ListenStatus(second, Path("a"))));
  Join(server, client, "shm://" + Path("a"));

  Side third(*fixture_);
  ASSERT_TRUE(ListenStatus(third, Path("b")).ok());
  std::filesystem::remove(Path("b"));  // now only the lock shows it
  EXPECT_TRUE(absl::IsAlreadyExists(ListenStatus(second, Path("b"))));
}

TEST_P(ShmListenerTest, TheSocketOfAKilledServerIsReplaced) {
  Child child(GetParam(), "server", "shm://" + Path("a"));
  ASSERT_EQ(child.FirstLine(), "shm://" + Path("a"));
  child.Kill();
  ASSERT_TRUE(std::filesystem::exists(Path("a")));
  Side server(*fixture_), client(*fixture_);
  EXPECT_EQ(ReasonOf(ConnectStatus(client, Path("a"))), Reason::kNoListener);
  ASSERT_TRUE(ListenStatus(server, Path("a")).ok());
  Join(server, client, "shm://" + Path("a"));
}

TEST_P(ShmListenerTest, PathsThatCannotBeAreRefusedWithTheReason) {
  Side side(*fixture_);
  const std::string longest = Path(std::string(107 - directory_.size() - 1, 'x'));
  EXPECT_TRUE(ListenStatus(side, longest).ok());
  const absl::Status too_long = ListenStatus(side, longest + "x");
  EXPECT_EQ(too_long.code(), Code::kInvalidArgument);
  EXPECT_NE(too_long.message().find("at most 107"), absl::string_view::npos) << too_long;
  EXPECT_EQ(ConnectStatus(side, longest + "x").code(), Code::kInvalidArgument);

  const absl::Status missing = ListenStatus(side, Path("no/such"));
  EXPECT_EQ(missing.code(), Code::kNotFound);
  EXPECT_NE(missing.message().find("create the directory"), absl::string_view::npos) << missing;

  std::ofstream(Path("file")) << "precious";
  const absl::Status file = ListenStatus(side, Path("file"));
  EXPECT_EQ(file.code(), Code::kFailedPrecondition);
  EXPECT_NE(file.message().find("not a socket"), absl::string_view::npos) << file;
  EXPECT_EQ(std::filesystem::file_size(Path("file")), 8u);
  EXPECT_FALSE(std::filesystem::exists(Path("file.lock")));
  EXPECT_EQ(ListenStatus(side, directory_).code(), Code::kFailedPrecondition);
}

TEST_P(ShmListenerTest, AForeignFileInTheLocksPlaceIsLeftAlone) {
  Side side(*fixture_);
  std::ofstream(Path("a.lock")) << "precious";
  EXPECT_EQ(ListenStatus(side, Path("a")).code(), Code::kFailedPrecondition);
  EXPECT_EQ(std::filesystem::file_size(Path("a.lock")), std::strlen("precious"));
  ASSERT_EQ(mkfifo(Path("b.lock").c_str(), 0600), 0);
  EXPECT_EQ(ListenStatus(side, Path("b")).code(), Code::kFailedPrecondition);
  std::filesystem::create_symlink(Path("elsewhere"), Path("c.lock"));
  EXPECT_FALSE(ListenStatus(side, Path("c")).ok());
  EXPECT_FALSE(std::filesystem::exists(Path("elsewhere")));
}

TEST_P(ShmListenerTest, UserWithoutPermissionGetsPermissionDenied) {
  Side server(*fixture_), client(*fixture_);
  ASSERT_EQ(chmod(directory_.c_str(), 0755), 0);
  ASSERT_TRUE(ListenStatus(server, Path("a")).ok());
  const Nobody nobody;
  if (geteuid() != 65534) GTEST_SKIP() << "only root can act as another user";
  EXPECT_EQ(ConnectStatus(client, Path("a")).code(), Code::kPermissionDenied);
  EXPECT_EQ(ListenStatus(client, Path("b")).code(), Code::kPermissionDenied);
}

TEST_P(ShmListenerTest, ConnectingToWhatIsNoOspreySaysSo) {
  Side client(*fixture_);
  std::ofstream(Path("file")) << "x";
  EXPECT_EQ(ReasonOf(ConnectStatus(client, Path("file"))), Reason::kNotOsprey);
  EXPECT_EQ(ReasonOf(ConnectStatus(client, Path("nothing"))), Reason::kNoListener);
  EXPECT_EQ(ReasonOf(ConnectStatus(client, Path("no/such"))), Reason::kNoListener);

  const UniqueFd stream(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = SocketAddress(Path("stream")).value();
  ASSERT_EQ(bind(stream.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(stream.get(), 1), 0);
  EXPECT_EQ(ReasonOf(ConnectStatus(client, Path("stream"))), Reason::kNotOsprey);
  EXPECT_TRUE(absl::IsAlreadyExists(ListenStatus(client, Path("stream"))));
}

TEST_P(ShmListenerTest, ARelativePathIsMadeAbsoluteInTheReadyUri) {
  Side server(*fixture_), client(*fixture_);
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(directory_);
  const absl::StatusOr<std::string> uri = server.transport().Listen("shm://here.sock", 1);
  std::filesystem::current_path(before);
  ASSERT_TRUE(uri.ok()) << uri.status();
  EXPECT_EQ(*uri, "shm://" + Path("here.sock"));
  Join(server, client, *uri);
}

TEST_P(ShmListenerTest, OneTransportListensAtSeveralPaths) {
  Side server(*fixture_), client(*fixture_);
  ASSERT_TRUE(ListenStatus(server, Path("a")).ok());
  ASSERT_TRUE(ListenStatus(server, Path("b")).ok());
  Join(server, client, "shm://" + Path("a"));
  Join(server, client, "shm://" + Path("b"));
}

// The server ends while a client has its region mapped. The mapping stays readable. The first READ
// after that must fail, although the client has not read its socket since.
TEST_P(ShmListenerTest, AReadOfAKilledServersRegionFails) {
  const std::string uri = "shm://" + Path("a");
  for (const bool at_once : {false, true}) {
    Child child(GetParam(), "server", uri);
    ASSERT_EQ(child.FirstLine(), uri);
    Side client(*fixture_);
    const std::unique_ptr<Memory> buffer = Allocate(client, 4096, Access::kLocal);
    ConnectionId id = ConnectionId::kNone;
    RemoteMemory remote;
    ASSERT_NO_FATAL_FAILURE(AttachToChild(client, uri, id, remote));
    const ReadRequest read = ReadOf(remote, *buffer);
    ASSERT_TRUE(client.transport().mapped_reads()->ReadNow(id, {&read, 1}).ok());
    EXPECT_EQ(std::memcmp(buffer->data(), "AAAA", 4), 0);
    child.Kill();
    ASSERT_FALSE(client.transport().mapped_reads()->View(id, remote).empty())
        << "void: it has seen the hang-up";
    ExpectReadFails(client, id, read, at_once);
    EXPECT_TRUE(client.transport().mapped_reads()->View(id, remote).empty());
  }
}

TEST_P(ShmListenerTest, AReadOfTheRegionOfAServerThatWasStoppedFails) {
  const std::string uri = "shm://" + Path("a");
  Side server(*fixture_), client(*fixture_);
  ASSERT_TRUE(ListenStatus(server, Path("a")).ok());
  const Ids ids = Join(server, client, uri);
  const std::unique_ptr<Memory> memory = Allocate(server, 4096, Access::kRemoteRead);
  const std::unique_ptr<Memory> buffer = Allocate(client, 4096, Access::kLocal);
  const ReadRequest read = ReadOf(Share(server, ids.server, client, ids.client, *memory), *buffer);
  ASSERT_TRUE(client.transport().mapped_reads()->ReadNow(ids.client, {&read, 1}).ok());
  server.DestroyTransport();
  ExpectReadFails(client, ids.client, read, /*at_once=*/true);
}

// Every descriptor that a client gets, at a client that takes all locks it can.
TEST_P(ShmListenerTest, AClientsLocksDoNotKeepASuccessorFromListening) {
  const std::string uri = "shm://" + Path("a");
  ReceivedPacket acceptance;
  {
    Side server(*fixture_);
    ASSERT_TRUE(ListenStatus(server, Path("a")).ok());
    const UniqueFd client = NewSocket().value();
    ASSERT_EQ(ConnectSocket(client.get(), SocketAddress(Path("a")).value()), 0);
    ShmPacket greeting;
    greeting.connect.receive_credits = 4;
    greeting.connect.frame_bytes_max = 256;
    greeting.connect.reads_in_flight_max = 1;
    greeting.kind = static_cast<uint32_t>(PacketKind::kConnect);
    ASSERT_EQ(SendPacket(client.get(), greeting), 0);
    ASSERT_TRUE(Until({&server}, [&] { return server.Find(Kind::kConnectRequest) != nullptr; }));
    ASSERT_TRUE(server.transport().Accept(server.Find(Kind::kConnectRequest)->id).ok());
    ASSERT_EQ(ReceivePacket(client.get(), CloserLane::Create(), &acceptance),
              ReceiveResult::kPacket);
    ASSERT_EQ(acceptance.fd_count, 2u);
  }
  for (const PeerFd& fd : acceptance.fds)
    EXPECT_EQ(flock(fd.get(), LOCK_SH | LOCK_NB), 0) << std::strerror(errno);
  Side successor(*fixture_);
  const absl::Status status = ListenStatus(successor, Path("a"));
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(ShmListenerTest, APeerCanOnlyReadTheIncarnationPage) {
  Side server(*fixture_);
  const std::unique_ptr<ShmListener> listener = ShmListener::Open(Path("a"), 7, 0600).value();
  const int page = listener->life()->page.get();
  EXPECT_FALSE(MapSealed(page, kIncarnationPageBytes, MapAccess::kReadWrite).ok());
  const UniqueFd again(open(absl::StrCat("/proc/self/fd/", page).c_str(), O_RDWR | O_CLOEXEC));
  const uint64_t word = 0;
  EXPECT_EQ(pwrite(page, &word, sizeof(word), 0), -1);
  EXPECT_EQ(pwrite(again.get(), &word, sizeof(word), 0), -1);
  EXPECT_EQ(ftruncate(page, 0), -1);
  EXPECT_EQ(fallocate(page, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
  const Mapping mapped = MapSealed(page, kIncarnationPageBytes, MapAccess::kRead).value();
  EXPECT_TRUE(IsPageOf(mapped, 7));
  EXPECT_FALSE(IsPageOf(mapped, 8));
  EXPECT_TRUE(RobustFutex::IsHeld(LoadAlive(mapped)));
}

// To its own clients, the successor of a killed server is alive.
TEST_P(ShmListenerTest, ASuccessorsRegionIsRead) {
  const std::string uri = "shm://" + Path("a");
  {
    Child child(GetParam(), "server", uri);
    ASSERT_EQ(child.FirstLine(), uri);
    child.Kill();
  }
  Side successor(*fixture_), client(*fixture_);
  ASSERT_TRUE(ListenStatus(successor, Path("a")).ok());
  const Ids ids = Join(successor, client, uri);
  const std::unique_ptr<Memory> memory = Allocate(successor, 4096, Access::kRemoteRead);
  const std::unique_ptr<Memory> buffer = Allocate(client, 4096, Access::kLocal);
  const RemoteMemory remote = Share(successor, ids.server, client, ids.client, *memory);
  const ReadRequest read = ReadOf(remote, *buffer);
  EXPECT_TRUE(client.transport().mapped_reads()->ReadNow(ids.client, {&read, 1}).ok());
}

// The page may have been written back meanwhile, so that the kernel's store is a fault.
TEST(RobustFutexTest, TheWordChangesWithTheEndOfItsProcessAlsoInAFileWrittenBack) {
  char name[] = "/tmp/osprey-futex-XXXXXX";
  const UniqueFd file(mkstemp(name));
  unlink(name);
  ASSERT_EQ(ftruncate(file.get(), 4096), 0);
  void* const data = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  ASSERT_NE(data, MAP_FAILED);
  const Mapping mapping(static_cast<std::byte*>(data), 4096);
  uint32_t& word = *static_cast<uint32_t*>(data);
  const std::atomic_ref<uint32_t> shared(word);
  const pid_t child = fork();
  if (child == 0) {
    const absl::StatusOr<std::unique_ptr<RobustFutex>> held = RobustFutex::Hold(word);
    if (!held.ok() || msync(data, 4096, MS_SYNC) != 0) _exit(1);
    for (;;) pause();
  }
  const absl::Time end = absl::Now() + kContractPatience;
  while (shared.load() == 0 && absl::Now() < end) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_NE(shared.load(), 0u);
  EXPECT_EQ(shared.load() & FUTEX_OWNER_DIED, 0u);
  ASSERT_EQ(fsync(file.get()), 0);
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(shared.load(), FUTEX_OWNER_DIED);
}

TEST(RobustFutexTest, TheWordIsHeldUntilItsHolderIsDestroyedAndMayBeHeldAgain) {
  uint32_t word = 0;
  const std::atomic_ref<uint32_t> shared(word);
  for (int round = 0; round < 3; ++round) {
    absl::StatusOr<std::unique_ptr<RobustFutex>> held = RobustFutex::Hold(word);
    ASSERT_TRUE(held.ok()) << held.status();
    EXPECT_NE(shared.load(), 0u);
    EXPECT_EQ(shared.load() & FUTEX_OWNER_DIED, 0u);
    held->reset();
    EXPECT_EQ(shared.load(), FUTEX_OWNER_DIED);
  }
}

}  // namespace
}  // namespace osprey::rdma

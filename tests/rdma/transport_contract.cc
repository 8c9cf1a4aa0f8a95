#include "tests/rdma/transport_contract.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>

namespace osprey::rdma {
namespace {

constexpr char kChildVariable[] = "OSPREY_CONTRACT_CHILD";
// A child that its parent does not kill ends by itself.
constexpr absl::Duration kChildLife = absl::Seconds(120);

// Exposes `memory` and announces it in a frame.
void Tell(Side& side, ConnectionId id, const Memory& memory) {
  const absl::StatusOr<RemoteMemory> remote = side.transport().Expose(id, memory);
  if (!remote.ok()) return;
  (void)side.Send(id, std::string(reinterpret_cast<const char*>(&*remote), sizeof(*remote)));
}

// The child, until it is killed. It is a server that accepts all connections and exposes a page
// full of 'A' to a client that sends "expose". Or it is a client that sends "hello".
int ChildMain(const std::string& role, const std::string& way, const std::string& uri) {
  std::unique_ptr<ContractFixture> fixture = NewContractFixture(way);
  Side side(*fixture);
  const std::unique_ptr<Memory> page = Allocate(side, 4096, Access::kRemoteRead);
  std::memset(page->data(), 'A', page->size());
  ConnectionId id = ConnectionId::kNone;
  if (role == "server") {
    const absl::StatusOr<std::string> ready = side.transport().Listen(uri, /*incarnation=*/7);
    std::cout << (ready.ok() ? *ready : ready.status().ToString()) << std::endl;
  } else {
    const absl::StatusOr<ConnectionId> connect = side.transport().Connect(uri);
    if (!connect.ok()) return 1;
    id = *connect;
  }
  const absl::Time end = absl::Now() + kChildLife;
  while (absl::Now() < end) {
    side.Pump();
    for (const Recorded& event : side.events()) {
      if (event.kind == Event::Kind::kConnectRequest) (void)side.transport().Accept(event.id);
      if (event.kind == Event::Kind::kConnected && event.id == id) (void)side.Send(id, "hello");
      if (event.frame == "expose") Tell(side, event.id, *page);
    }
    side.Forget();
    absl::SleepFor(absl::Milliseconds(1));
  }
  return 0;
}

}  // namespace

Side::Side(ContractFixture& fixture, const TransportOptions& options, uint16_t version) {
  absl::StatusOr<std::unique_ptr<Domain>> domain = fixture.OpenDomain(version);
  EXPECT_TRUE(domain.ok()) << domain.status();
  domain_ = *std::move(domain);
  absl::StatusOr<std::unique_ptr<Transport>> transport = domain_->NewTransport(options);
  EXPECT_TRUE(transport.ok()) << transport.status();
  transport_ = *std::move(transport);
}

Side::Side(Side& beside) : domain_(beside.domain_) {
  absl::StatusOr<std::unique_ptr<Transport>> transport = domain_->NewTransport({});
  EXPECT_TRUE(transport.ok()) << transport.status();
  transport_ = *std::move(transport);
}

void Side::Check(const Event& event) {
  EXPECT_EQ(ended_.count(event.connection), 0u) << "an event after kDisconnected";
  switch (event.kind) {
    case Event::Kind::kConnected:
      EXPECT_TRUE(connected_.insert(event.connection).second) << "kConnected twice";
      break;
    case Event::Kind::kReceived:
      EXPECT_EQ(connected_.count(event.connection), 1u) << "a frame before kConnected";
      break;
    case Event::Kind::kReadsDone: {
      const auto posted = posted_.find({event.connection, event.cookie});
      EXPECT_NE(posted, posted_.end()) << "a completion of nothing: " << event.cookie;
      if (posted != posted_.end()) posted_.erase(posted);
      break;
    }
    case Event::Kind::kDisconnected:
      ended_.insert(event.connection);
      for (const auto& [id, cookie] : posted_)
        EXPECT_NE(id, event.connection) << "no completion of " << cookie;
      break;
    case Event::Kind::kConnectRequest:
    case Event::Kind::kDeviceLost:
      break;
  }
}

void Side::Pump(size_t events_max) {
  std::vector<Event> events(events_max);
  const size_t count = transport_->Poll(absl::MakeSpan(events));
  ASSERT_LE(count, events_max);
  for (size_t i = 0; i < count; ++i) {
    const Event& event = events[i];
    Check(event);
    events_.push_back(
        {event.kind, event.connection, event.cookie,
         std::string(reinterpret_cast<const char*>(event.frame.data()), event.frame.size()),
         event.status, event.text, event.source, event.affinity});
  }
}

absl::Status Side::Post(ConnectionId id, absl::Span<const ReadRequest> reads, uint64_t cookie) {
  const absl::Status status = transport_->PostReads(id, reads, cookie);
  if (status.ok()) posted_.insert({id, cookie});
  return status;
}

absl::Status Side::Send(ConnectionId id, const std::string& frame) {
  const Bytes piece(reinterpret_cast<const std::byte*>(frame.data()), frame.size());
  return transport_->Send(id, {piece});
}

const Recorded* Side::Find(Event::Kind kind, ConnectionId id) const {
  for (const Recorded& event : events_) {
    if (event.kind == kind && (id == ConnectionId::kNone || event.id == id)) return &event;
  }
  return nullptr;
}

std::vector<std::string> Side::Frames(ConnectionId id) const {
  std::vector<std::string> frames;
  for (const Recorded& event : events_) {
    if (event.kind == Event::Kind::kReceived && event.id == id) frames.push_back(event.frame);
  }
  return frames;
}

const Recorded* Side::Done(uint64_t cookie) const {
  for (const Recorded& event : events_) {
    if (event.kind == Event::Kind::kReadsDone && event.cookie == cookie) return &event;
  }
  return nullptr;
}

bool Until(const std::vector<Side*>& sides, const std::function<bool()>& done,
           absl::Duration patience) {
  const absl::Time end = absl::Now() + patience;
  while (!done()) {
    if (absl::Now() > end) return false;
    for (Side* side : sides) side->Pump();
  }
  return true;
}

std::string TransportContract::Listen(Side& server) {
  const absl::StatusOr<std::string> uri =
      server.transport().Listen(fixture_->ListenUri(), /*incarnation=*/42);
  EXPECT_TRUE(uri.ok()) << uri.status();
  return uri.ok() ? *uri : "";
}

TransportContract::Ids TransportContract::Request(Side& server, Side& client,
                                                  const std::string& uri) {
  Ids ids;
  const size_t seen = server.events().size();
  const absl::StatusOr<ConnectionId> id = client.transport().Connect(uri);
  EXPECT_TRUE(id.ok()) << id.status();
  if (!id.ok()) return ids;
  ids.client = *id;
  EXPECT_TRUE(Until({&server, &client}, [&] {
    for (size_t i = seen; i < server.events().size(); ++i) {
      if (server.events()[i].kind == Event::Kind::kConnectRequest)
        ids.server = server.events()[i].id;
    }
    return ids.server != ConnectionId::kNone ||
           client.Find(Event::Kind::kDisconnected, ids.client) != nullptr;
  }));
  EXPECT_NE(ids.server, ConnectionId::kNone);
  return ids;
}

TransportContract::Ids TransportContract::Join(Side& server, Side& client, const std::string& uri) {
  const Ids ids = Request(server, client, uri);
  const absl::Status accepted = server.transport().Accept(ids.server);
  EXPECT_TRUE(accepted.ok()) << accepted;
  EXPECT_TRUE(Until({&server, &client}, [&] {
    return server.Find(Event::Kind::kConnected, ids.server) != nullptr &&
           client.Find(Event::Kind::kConnected, ids.client) != nullptr;
  }));
  return ids;
}

RemoteMemory TransportContract::Share(Side& from, ConnectionId from_id, Side& to,
                                      ConnectionId to_id, const Memory& memory) {
  const absl::StatusOr<RemoteMemory> remote = from.transport().Expose(from_id, memory);
  EXPECT_TRUE(remote.ok()) << remote.status();
  if (!remote.ok()) return {};
  // Through a frame, as in production: the transport may rely on the order.
  const size_t seen = to.Frames(to_id).size();
  const absl::Status told_peer =
      from.Send(from_id, std::string(reinterpret_cast<const char*>(&*remote), sizeof(*remote)));
  EXPECT_TRUE(told_peer.ok()) << told_peer;
  EXPECT_TRUE(Until({&from, &to}, [&] { return to.Frames(to_id).size() > seen; }));
  RemoteMemory told;
  std::memcpy(&told, to.Frames(to_id)[seen].data(), sizeof(told));
  const absl::Status attached = to.transport().Attach(to_id, told);
  EXPECT_TRUE(attached.ok()) << attached;
  return told;
}

absl::Status TransportContract::ReadNow(Side& reader, ConnectionId id, const RemoteMemory& remote,
                                        uint64_t offset, uint32_t length, const Memory& into,
                                        const std::vector<Side*>& sides) {
  ReadRequest read;
  read.remote_address = remote.address + offset;
  read.remote_key = remote.key;
  read.segments[0] = {into.data(), length, &into};
  const uint64_t cookie = next_cookie_++;
  if (absl::Status status = reader.Post(id, {read}, cookie); !status.ok()) return status;
  if (!Until(sides, [&] { return reader.Done(cookie) != nullptr; }))
    return absl::DeadlineExceededError("no completion");
  return reader.Done(cookie)->status;
}

std::unique_ptr<Memory> Allocate(Side& side, size_t bytes, Access access) {
  absl::StatusOr<std::unique_ptr<Memory>> memory = side.domain().Allocate(bytes, access);
  EXPECT_TRUE(memory.ok()) << memory.status();
  return memory.ok() ? *std::move(memory) : nullptr;
}

void Fill(const Memory& memory, uint64_t seed) {
  uint64_t state = seed * 2 + 1;
  for (size_t i = 0; i < memory.size(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    memory.data()[i] = static_cast<std::byte>(state >> 56);
  }
}

size_t OpenDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

Child::Child(const std::string& way, const std::string& role, const std::string& uri) {
  int pipe_ends[2];
  EXPECT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
  std::string program = "/proc/self/exe";
  std::string variable = std::string(kChildVariable) + "=" + role + "|" + way + "|" + uri;
  char* arguments[] = {program.data(), nullptr};
  std::vector<char*> environment = {variable.data()};
  for (char** entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
  environment.push_back(nullptr);
  // A new program and not a fork: neither verbs nor sanitizers support a fork with other threads.
  EXPECT_EQ(posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments, environment.data()),
            0);
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_ends[1]);
  output_ = pipe_ends[0];
}

Child::~Child() {
  Kill();
  close(output_);
}

std::string Child::FirstLine() {
  std::string line;
  for (char c = 0; read(output_, &c, 1) == 1 && c != '\n';) line.push_back(c);
  return line;
}

void Child::Kill() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

}  // namespace osprey::rdma

int main(int argc, char** argv) {
  if (const char* child = std::getenv(osprey::rdma::kChildVariable); child != nullptr) {
    const std::string text = child;
    const size_t first = text.find('|');
    const size_t second = text.find('|', first + 1);
    return osprey::rdma::ChildMain(
        text.substr(0, first), text.substr(first + 1, second - first - 1), text.substr(second + 1));
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

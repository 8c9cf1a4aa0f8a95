// Two servers over a real transport, each with a thread that sleeps when it has nothing to do: over
// verbs at the address in LAB_IP, if that is set; else over shared memory.

#include <poll.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "rdma/authentication.h"
#include "rdma/open_domain.h"
#include "rdma/raw_clock.h"
#include "server/cluster/links/peer_links.h"
#include "tests/support/split_mix64.h"

namespace osprey {
namespace {

// The lab's machine is emulated.
constexpr absl::Duration kPatience = absl::Seconds(120);

absl::Time Now() { return absl::UnixEpoch() + RawClock(); }

// What the descriptors of this process are open at.
std::multiset<std::string> OpenDescriptors() {
  std::multiset<std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the iterator's own
    all.insert(std::filesystem::read_symlink(entry.path(), gone).string());
  }
  return all;
}

bool HasSocket(const std::multiset<std::string>& descriptors) {
  const auto first = descriptors.lower_bound("socket:");
  return first != descriptors.end() && first->starts_with("socket:");
}

// Where one of the servers listens.
class Place {
 public:
  Place() {
    if (const char* const ip = std::getenv("LAB_IP"); ip != nullptr) {
      uri_ = absl::StrCat("rdma://", ip, ":0");
      return;
    }
    std::string path = (std::filesystem::temp_directory_path() / "osprey-links-XXXXXX").string();
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    directory_ = path;
    uri_ = absl::StrCat("shm://", path, "/links.sock");
  }
  ~Place() {
    if (!directory_.empty()) std::filesystem::remove_all(directory_);
  }
  const std::string& uri() const { return uri_; }
  rdma::Address::Scheme scheme() const { return rdma::ParseAddress(uri_)->scheme; }
  static bool over_verbs() { return std::getenv("LAB_IP") != nullptr; }

 private:
  std::string uri_;
  std::string directory_;
};

std::string BodyOf(uint64_t number, size_t bytes) {
  std::string body(bytes, static_cast<char>(number));
  // Sparse, since a sanitizer takes long for each store.
  for (size_t i = 0; i < bytes; i += 1021) body[i] = static_cast<char>(number + i / 1021);
  return body;
}

class Node {
 public:
  Node(const std::string& server, uint64_t incarnation, bool with_key) : random_(incarnation) {
    domain_ = rdma::OpenDomain(place_.uri()).value();
    LinkOptions options;
    options.server = server;
    options.incarnation = incarnation;
    options.cluster_id = 1;
    if (with_key) options.key = rdma::AuthKey::FromBytes(std::string(32, 'k')).value();
    options.random = [this] { return random_.Next(); };
    options.log = [server](absl::string_view line) { std::cerr << server << ": " << line << "\n"; };
    options.silence_max = absl::Seconds(10);  // the machine may be busy, or emulated
    std::vector<LinkPort> ports;
    ports.push_back({place_.scheme(), domain_->NewTransport(kLinkTransportOptions).value()});
    links_ = PeerLinks::Create(options, std::move(ports), Now()).value();
    address_ = links_->Listen(place_.uri()).value();
  }

  const std::string& address() const { return address_; }
  PeerLinks& links() { return *links_; }

  // One turn, with a sleep if there is nothing to do.
  void Turn(std::vector<LinkEvent>& events) {
    if (links_->Poll(Now(), events) || !links_->Arm()) return;
    std::vector<pollfd> fds;
    for (const int fd : links_->fds()) fds.push_back({fd, POLLIN, 0});
    const absl::Duration pause = std::min(links_->next_timer() - Now(), absl::Milliseconds(100));
    const timespec timeout = absl::ToTimespec(std::max(pause, absl::ZeroDuration()));
    ppoll(fds.data(), fds.size(), &timeout, nullptr);
  }

  // Sends messages of these lengths to `to`, and receives as many of it. It counts itself in `done`
  // then, and goes on until both have, since the queue may not be empty yet.
  void Exchange(uint64_t to, const std::vector<size_t>& lengths, std::atomic<int>& done) {
    const absl::Time end = Now() + kPatience;
    std::vector<LinkEvent> events;
    for (bool counted = false; done < 2 && Now() < end;) {
      Turn(events);
      for (const LinkEvent& event : events) {
        if (event.kind == LinkEvent::Kind::kDisconnected) ++disconnected_;
        if (event.kind != LinkEvent::Kind::kMessage) continue;
        ASSERT_LT(received_, lengths.size());
        EXPECT_EQ(event.incarnation, to);
        ASSERT_TRUE(event.body == BodyOf(received_, lengths[received_])) << received_;
        ++received_;
      }
      events.clear();
      for (; sent_ < lengths.size() && links_->RoomFor(to) > lengths[sent_]; ++sent_)
        ASSERT_TRUE(links_->Send(to, 1, BodyOf(sent_, lengths[sent_])).ok());
      if (!counted && received_ == lengths.size()) {
        counted = true;
        ++done;
      }
    }
  }

  size_t received_ = 0;
  int disconnected_ = 0;

 private:
  SplitMix64 random_;
  Place place_;
  std::unique_ptr<rdma::Domain> domain_;
  std::unique_ptr<PeerLinks> links_;
  std::string address_;
  size_t sent_ = 0;
};

class LinksTransportTest : public testing::TestWithParam<bool> {
 protected:
  void Connect(Node& a, Node& b) {
    const LinkPeers peers = {{"a", {1, {a.address()}}}, {"b", {2, {b.address()}}}};
    a.links().SetPeers(peers);
    b.links().SetPeers(peers);
  }
};

TEST_P(LinksTransportTest, TwoServersExchangeMessagesOfAllLengths) {
  if (Place::over_verbs() && !GetParam()) GTEST_SKIP() << "links over verbs have a key";
  SplitMix64 random(7);
  std::vector<size_t> lengths = {1, 8 << 20, 0};
  for (int i = 0; i < 600; ++i) lengths.push_back(random.Below(random.Chance(4) ? 100000 : 300));
  // The first domain leaves what a process has once.
  ASSERT_NE(Node("c", 3, GetParam()).address(), "");
  // Its sockets are closed by another thread, which comes late on a busy machine.
  for (const absl::Time end = Now() + kPatience;
       !Place::over_verbs() && HasSocket(OpenDescriptors()) && Now() < end;)
    absl::SleepFor(absl::Milliseconds(10));
  const std::multiset<std::string> before = OpenDescriptors();
  {
    Node a("a", 1, GetParam()), b("b", 2, GetParam());
    Connect(a, b);
    std::atomic<int> done = 0;
    std::thread other([&] { b.Exchange(1, lengths, done); });
    a.Exchange(2, lengths, done);
    other.join();
    EXPECT_EQ(a.received_, lengths.size());
    EXPECT_EQ(b.received_, lengths.size());
    EXPECT_EQ(a.disconnected_ + b.disconnected_, 0);
  }
  // Those of peers are closed by another thread. Over verbs the kernel takes up to a minute.
  if (Place::over_verbs()) return;
  for (const absl::Time end = Now() + kPatience; OpenDescriptors() != before && Now() < end;)
    absl::SleepFor(absl::Milliseconds(10));
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_P(LinksTransportTest, TheEndOfAServerIsNoticedAndItsReturn) {
  if (Place::over_verbs() && !GetParam()) GTEST_SKIP() << "links over verbs have a key";
  Node a("a", 1, GetParam());
  auto b = std::make_unique<Node>("b", 2, GetParam());
  Connect(a, *b);
  const auto run_until = [&](LinkEvent::Kind kind) {
    std::vector<LinkEvent> events, others;
    for (const absl::Time end = Now() + kPatience; Now() < end;) {
      a.Turn(events);
      if (b != nullptr) b->links().Poll(Now(), others);
      for (const LinkEvent& event : events)
        if (event.kind == kind) return true;
      events.clear();
    }
    return false;
  };
  ASSERT_TRUE(run_until(LinkEvent::Kind::kConnected));
  b.reset();
  ASSERT_TRUE(run_until(LinkEvent::Kind::kDisconnected));
  EXPECT_EQ(a.links().Send(2, 1, "x").code(), absl::StatusCode::kUnavailable);
  b = std::make_unique<Node>("b", 2, GetParam());
  Connect(a, *b);
  EXPECT_TRUE(run_until(LinkEvent::Kind::kConnected));
}

TEST(LinksKeyTest, AServerWithoutTheKeyDoesNotConnect) {
  if (Place::over_verbs()) GTEST_SKIP() << "links over verbs have a key";
  Node a("a", 1, /*with_key=*/false), b("b", 2, /*with_key=*/true);
  const LinkPeers peers = {{"a", {1, {a.address()}}}, {"b", {2, {b.address()}}}};
  a.links().SetPeers(peers);
  b.links().SetPeers(peers);
  std::vector<LinkEvent> events;
  const auto attempts = [](Node& node) { return node.links().counters().failed_attempts; };
  for (const absl::Time end = Now() + kPatience;
       (attempts(a) < 3 || attempts(b) < 3) && Now() < end;) {
    a.Turn(events);
    b.Turn(events);
  }
  EXPECT_TRUE(events.empty());
  EXPECT_GE(attempts(a), 3u);
  EXPECT_GE(attempts(b), 3u);
}

// Without a key, the configuration alone decides which servers may send.
TEST(LinksKeyTest, AnUnknownIncarnationIsRefusedWithoutAKeyToo) {
  if (Place::over_verbs()) GTEST_SKIP() << "links over verbs have a key";
  Node a("a", 1, /*with_key=*/false), b("b", 2, /*with_key=*/false);
  a.links().SetPeers({{"b", {22, {b.address()}}}});
  b.links().SetPeers({{"a", {1, {a.address()}}}});
  std::vector<LinkEvent> events;
  for (const absl::Time end = Now() + kPatience;
       b.links().counters().failed_attempts < 3 && Now() < end;) {
    a.Turn(events);
    b.Turn(events);
  }
  EXPECT_TRUE(events.empty());
  EXPECT_GE(a.links().counters().refused, 3u);
  EXPECT_EQ(a.links().counters().accepted, 0u);
}

INSTANTIATE_TEST_SUITE_P(WithKey, LinksTransportTest, testing::Bool());

}  // namespace
}  // namespace osprey

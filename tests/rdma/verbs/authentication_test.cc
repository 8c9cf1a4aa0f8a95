// Access of a peer with its own verbs code to a kvserver's memory: none before it has
// authenticated, and never anything but READ. Needs the lab.
//
// The peer here has all data of an authenticated client: address, length and rkey.

#include "rdma/authentication.h"

#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "rdma/verbs/device/objects.h"
#include "rdma/verbs/domain.h"
#include "rdma/verbs/verbs_transport.h"
#include "rdma/wire/protocol.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

using rdma::Access;
using rdma::Event;
using rdma::Opcode;

constexpr absl::Duration kPatience = absl::Seconds(30);

// Communicates with a server frame by frame.
class Peer {
 public:
  explicit Peer(const std::string& uri)
      : domain_(rdma::OpenVerbsDomain().value()),
        memory_(domain_->Allocate(4096, Access::kRemoteRead).value()),
        into_(domain_->Allocate(4096, Access::kLocal).value()),
        transport_(domain_->NewTransport({}).value()),
        id_(transport_->Connect(uri).value()) {}

  bool Until(const std::function<bool()>& condition) {
    const absl::Time end = absl::Now() + kPatience;
    while (!condition() && absl::Now() < end) Poll();
    return condition();
  }
  // Runs until the server's answer to our Hello; returns its opcode.
  Opcode Hello() {
    EXPECT_TRUE(Until([&] { return connected_; })) << end_;
    const rdma::RemoteMemory liveness = transport_->Expose(id_, *memory_).value();
    hello_.liveness = {liveness.address, 8, liveness.key, 0};
    Send(rdma::Message<rdma::HelloBody>(Opcode::kHello, 0, 0, hello_, 0).bytes());
    return NextOpcode();
  }
  Opcode Respond(const rdma::AuthKey& key) {
    rdma::Nonces nonces;
    std::memcpy(nonces.server.data(), BodyOf<rdma::ChallengeBody>().server_nonce, 32);
    const rdma::Proof proof = rdma::ClientProof(key, nonces, rdma::BodyBytes(hello_));
    rdma::ResponseBody body;
    std::memcpy(body.mac, proof.data(), proof.size());
    Send(rdma::Message<rdma::ResponseBody>(Opcode::kResponse, 0, 0, body, 0).bytes());
    return NextOpcode();
  }
  rdma::WireMemory region() const { return BodyOf<rdma::WelcomeBody>().region; }

  // The result of a READ of the server's memory.
  absl::Status Read(const rdma::WireMemory& region) {
    std::memset(into_->data(), 0xee, 64);
    rdma::ReadRequest read;
    read.remote_address = region.address;
    read.remote_key = region.key;
    read.segments[0] = {into_->data(), 64, into_.get()};
    read_.reset();
    const absl::Status posted = transport_->PostReads(id_, {&read, 1}, 1);
    if (!posted.ok()) return posted;
    EXPECT_TRUE(Until([&] { return read_.has_value(); }));
    return *read_;
  }
  bool ReadNothing() const {
    for (int i = 0; i < 64; ++i) {
      if (into_->data()[i] != std::byte{0xee}) return false;
    }
    return true;
  }
  // Posts a request that Osprey never posts.
  void Strike(ibv_wr_opcode opcode, const rdma::WireMemory& region) {
    ibv_qp* const queue_pair = static_cast<rdma::VerbsTransport&>(*transport_).queue_pair(id_);
    const rdma::MemoryRegion local(
        ibv_reg_mr(queue_pair->pd, into_->data(), 4096, int{IBV_ACCESS_LOCAL_WRITE}));
    ASSERT_NE(local, nullptr);
    ibv_sge segment = {reinterpret_cast<uintptr_t>(into_->data()), 8, local->lkey};
    ibv_send_wr request = {};
    request.sg_list = &segment;
    request.num_sge = 1;
    request.opcode = opcode;
    request.send_flags = IBV_SEND_SIGNALED;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
      request.wr.atomic = {region.address, 1, 0, region.key};
    } else {
      request.wr.rdma.remote_addr = region.address;
      request.wr.rdma.rkey = region.key;
    }
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(queue_pair, &request, &bad), 0);
    EXPECT_TRUE(Until([&] { return disconnected_; })) << "it was not refused";
  }
  bool connected() const { return connected_; }
  bool disconnected() const { return disconnected_; }

 private:
  void Poll() {
    Event events[16];
    const size_t count = transport_->Poll(absl::MakeSpan(events));
    for (size_t i = 0; i < count; ++i) {
      const Event& event = events[i];
      if (event.kind == Event::Kind::kConnected) connected_ = true;
      if (event.kind == Event::Kind::kReadsDone) read_ = event.status;
      if (event.kind == Event::Kind::kReceived)
        frame_.assign(event.frame.begin(), event.frame.end());
      if (event.kind == Event::Kind::kDisconnected) {
        disconnected_ = true;
        end_ = event.status;
      }
    }
  }
  void Send(rdma::FrameBytes frame) {
    frame_.clear();
    EXPECT_TRUE(transport_->Send(id_, {frame}).ok());
  }
  Opcode NextOpcode() {
    EXPECT_TRUE(Until([&] { return !frame_.empty(); })) << end_;
    return static_cast<Opcode>(rdma::ParseHeader(frame_).value().opcode);
  }
  template <typename Body>
  Body BodyOf() const {
    Body body;
    EXPECT_EQ(frame_.size(), sizeof(rdma::FrameHeader) + sizeof(body));
    std::memcpy(&body, frame_.data() + sizeof(rdma::FrameHeader), sizeof(body));
    return body;
  }

  const std::unique_ptr<rdma::Domain> domain_;
  const std::unique_ptr<rdma::Memory> memory_, into_;
  const std::unique_ptr<rdma::Transport> transport_;
  const rdma::ConnectionId id_;
  rdma::HelloBody hello_;
  bool connected_ = false;
  bool disconnected_ = false;
  absl::Status end_;
  std::optional<absl::Status> read_;
  std::vector<std::byte> frame_;  // the last that came
};

class VerbsAuthenticationTest : public testing::Test {
 protected:
  void SetUp() override {
    key_ = rdma::AuthKey::FromBytes(std::string(40, 'k')).value();
    key_file_ = NewTemporaryDirectory() + "/key";
    std::ofstream(key_file_) << std::string(40, 'k');
    ASSERT_EQ(chmod(key_file_.c_str(), 0600), 0);
    absl::StatusOr<std::unique_ptr<ServerProcess>> server =
        ServerProcess::Start(NewListenAddress(), {"--auth-key-file=" + key_file_});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    Options options;
    options.auth_key_file = key_file_;
    options.deadline = absl::Seconds(20);
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(server_->uri(), options);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    ASSERT_TRUE(client_->Put("planet", "saturn").ok());
  }
  // Compliant clients see no change.
  void TearDown() override {
    EXPECT_EQ(client_->Get("planet")->bytes, "saturn");
    EXPECT_TRUE(client_->Put("moon", "titan").ok());
    EXPECT_EQ(client_->counters().connects, 1u);
    client_ = nullptr;
    EXPECT_EQ(server_->Stop(), 0);
  }
  rdma::WireMemory Region() {
    Peer trusted(server_->uri());
    EXPECT_EQ(trusted.Hello(), Opcode::kChallenge);
    EXPECT_EQ(trusted.Respond(*key_), Opcode::kWelcome);
    const rdma::WireMemory region = trusted.region();
    EXPECT_TRUE(trusted.Read(region).ok());
    EXPECT_FALSE(trusted.ReadNothing());
    return region;
  }

  rdma::AuthKey::Pointer key_;
  std::string key_file_;
  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<Client> client_;
};

TEST_F(VerbsAuthenticationTest, AReadBeforeTheHelloIsRefused) {
  const rdma::WireMemory region = Region();
  Peer stranger(server_->uri());
  ASSERT_TRUE(stranger.Until([&] { return stranger.connected(); }));
  EXPECT_FALSE(stranger.Read(region).ok());
  EXPECT_TRUE(stranger.ReadNothing());
}

TEST_F(VerbsAuthenticationTest, AReadBetweenChallengeAndResponseIsRefused) {
  const rdma::WireMemory region = Region();
  Peer stranger(server_->uri());
  ASSERT_EQ(stranger.Hello(), Opcode::kChallenge);
  EXPECT_FALSE(stranger.Read(region).ok());
  EXPECT_TRUE(stranger.ReadNothing());
}

TEST_F(VerbsAuthenticationTest, AReadAfterAWrongResponseIsRefused) {
  const rdma::WireMemory region = Region();
  Peer stranger(server_->uri());
  ASSERT_EQ(stranger.Hello(), Opcode::kChallenge);
  EXPECT_EQ(stranger.Respond(*rdma::AuthKey::FromBytes(std::string(40, 'x')).value()),
            Opcode::kRefused);
  EXPECT_FALSE(stranger.Read(region).ok());
  EXPECT_TRUE(stranger.ReadNothing());
  EXPECT_TRUE(stranger.Until([&] { return stranger.disconnected(); }));
}

TEST_F(VerbsAuthenticationTest, FloodFromOneAddressLeavesCapacityForOthers) {
  const char* const flooder = std::getenv("LAB_IP");
  const char* const other = std::getenv("LAB_IP6");
  if (other == nullptr) GTEST_SKIP() << "the device has one address only";
  const std::string flooded = absl::StrCat("rdma://", flooder, ":17411");
  absl::StatusOr<std::unique_ptr<ServerProcess>> server =
      ServerProcess::Start(absl::StrCat("rdma://[", other, "]:0,", flooded),
                           {"--auth-key-file=" + key_file_, "--connections-max=64"});
  ASSERT_TRUE(server.ok()) << server.status();
  std::vector<std::unique_ptr<Peer>> strangers;
  int held = 0;
  for (int i = 0; i < 12; ++i) {
    strangers.push_back(std::make_unique<Peer>(flooded));
    Peer& stranger = *strangers.back();
    ASSERT_TRUE(stranger.Until([&] { return stranger.connected() || stranger.disconnected(); }));
    held += stranger.connected() ? 1 : 0;
  }
  EXPECT_GE(held, 8);
  EXPECT_LT(held, 12);  // the first may be disconnected by then, and make space
  Options options;
  options.auth_key_file = key_file_;
  options.connect_timeout = absl::Seconds(20);
  options.deadline = absl::Seconds(20);
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect((*server)->uri(), options);
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_TRUE((*client)->Put("planet", "saturn").ok());
  const std::string stats = (*client)->ServerStats().value();
  EXPECT_EQ(StatIn(stats, "connections_rejected_unauthenticated"), absl::StrCat(12 - held));
}

TEST_F(VerbsAuthenticationTest, AuthenticatedClientCanNeitherWriteNorDoAtomics) {
  for (const ibv_wr_opcode opcode :
       {IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP}) {
    Peer peer(server_->uri());
    ASSERT_EQ(peer.Hello(), Opcode::kChallenge);
    ASSERT_EQ(peer.Respond(*key_), Opcode::kWelcome);
    const rdma::WireMemory region = peer.region();
    ASSERT_TRUE(peer.Read(region).ok());
    peer.Strike(opcode, region);
    // TearDown checks that nothing was changed: the region's header is at that address.
    Peer after(server_->uri());
    ASSERT_EQ(after.Hello(), Opcode::kChallenge);
    ASSERT_EQ(after.Respond(*key_), Opcode::kWelcome);
    EXPECT_TRUE(after.Read(region).ok());
  }
}

}  // namespace
}  // namespace osprey

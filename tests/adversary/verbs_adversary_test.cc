// A client that attacks a kvserver over RDMA by rdma_cm and libibverbs alone, without the
// transport. While each attack lasts, and when it has ended, an honest client's PUT is quick; when
// it has ended, the server's descriptors, addresses and memory are back. Needs the lab.

#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "rdma/handshake.h"
#include "rdma/verbs/frame.h"
#include "rdma/wire/protocol.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

using rdma::Opcode;

// A machine that is emulated, and does much else, may be late once, but not each time.
constexpr absl::Duration kPutMax = absl::Milliseconds(100);
constexpr int kPutTries = 20;
constexpr absl::Duration kBackMax = absl::Seconds(30);
constexpr int64_t kSlackKiB = 64 << 10;
constexpr int kTimeoutMs = 5000;

std::string BytesOf(const rdma::ConnectData& data) {
  return {reinterpret_cast<const char*>(&data), sizeof(data)};
}

rdma::ConnectData Offer() {
  rdma::ConnectData data;
  data.receive_credits = 32;
  data.frame_bytes_max = 8192;
  data.reads_in_flight_max = 16;
  return data;
}

struct RawOptions {
  std::string private_data = BytesOf(Offer());
  int receives = 40;
};

// One connection. Whatever was made is destroyed, without a disconnect notice.
class RawPeer {
 public:
  static constexpr size_t kBufferBytes = 16384;
  static constexpr int kWorkMax = 256;
  static constexpr uint64_t kStrikeId = ~uint64_t{0};

  RawPeer(const std::string& host, const std::string& port, const RawOptions& options)
      : buffers_((static_cast<size_t>(options.receives) + 1) * kBufferBytes, 0) {
    is_up_ = Connect(host, port, options);
  }
  ~RawPeer() {
    if (id_ == nullptr) return;
    if (id_->qp != nullptr) rdma_destroy_qp(id_);
    if (memory_ != nullptr) ibv_dereg_mr(memory_);
    if (completions_ != nullptr) ibv_destroy_cq(completions_);
    if (domain_ != nullptr) ibv_dealloc_pd(domain_);
    rdma_destroy_id(id_);
  }
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  bool is_up() const { return is_up_; }
  // The disconnect notice of the connection manager.
  void Leave() { rdma_disconnect(id_); }

  // SENDs `bytes` as they are. False: the queue pair is broken.
  bool SendBytes(const std::string& bytes) {
    EXPECT_LE(bytes.size(), kBufferBytes);
    std::memcpy(buffers_.data(), bytes.data(), bytes.size());
    ibv_sge segment = {reinterpret_cast<uintptr_t>(buffers_.data()),
                       static_cast<uint32_t>(bytes.size()), memory_->lkey};
    ibv_send_wr request = {};
    request.sg_list = &segment;
    request.num_sge = bytes.empty() ? 0 : 1;
    request.opcode = IBV_WR_SEND;
    return Post(request);
  }
  // … in an envelope.
  bool Send(absl::Span<const std::byte> frame) {
    rdma::FrameEnvelope envelope;
    envelope.length = static_cast<uint32_t>(frame.size());
    std::string bytes(reinterpret_cast<const char*>(&envelope), sizeof(envelope));
    bytes.append(reinterpret_cast<const char*>(frame.data()), frame.size());
    return SendBytes(bytes);
  }
  // One-sided, of 8 bytes. How it ended; nothing if it did not.
  std::optional<ibv_wc_status> Strike(ibv_wr_opcode opcode, uint64_t address, uint32_t key) {
    ibv_sge segment = {reinterpret_cast<uintptr_t>(buffers_.data()), 8, memory_->lkey};
    ibv_send_wr request = {};
    request.sg_list = &segment;
    request.num_sge = 1;
    request.opcode = opcode;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      request.wr.atomic = {address, 1, 0, key};
    } else {
      request.wr.rdma.remote_addr = address;
      request.wr.rdma.rkey = key;
    }
    // The end of an earlier SEND may come only now.
    request.wr_id = kStrikeId;
    if (!Post(request)) return std::nullopt;
    for (const absl::Time end = absl::Now() + absl::Seconds(5); absl::Now() < end;) {
      ibv_wc work = {};
      if (ibv_poll_cq(completions_, 1, &work) == 1 && work.wr_id == kStrikeId) return work.status;
    }
    return std::nullopt;
  }
  // A SEND's or a receive's next end.
  std::optional<ibv_wc_status> Completed(bool receive, absl::Duration patience = absl::Seconds(5)) {
    for (const absl::Time end = absl::Now() + patience; absl::Now() < end;) {
      ibv_wc work = {};
      if (ibv_poll_cq(completions_, 1, &work) != 1) continue;
      const bool is_receive = work.wr_id != 0;
      if (is_receive && work.status == IBV_WC_SUCCESS)
        received_.assign(buffers_.data() + work.wr_id * kBufferBytes, work.byte_len);
      if (is_receive == receive) return work.status;
    }
    return std::nullopt;
  }
  // The opcode of the next frame that comes; nothing if none does.
  std::optional<Opcode> Receive() {
    constexpr size_t kFrameAt = sizeof(rdma::FrameEnvelope);
    for (int i = 0; i < 4; ++i) {
      if (Completed(/*receive=*/true) != IBV_WC_SUCCESS) return std::nullopt;
      if (received_.size() > kFrameAt + 2) return static_cast<Opcode>(received_[kFrameAt + 2]);
    }
    return std::nullopt;
  }
  template <typename Body>
  Body BodyOf() const {
    Body body;
    const size_t at = sizeof(rdma::FrameEnvelope) + sizeof(rdma::FrameHeader);
    EXPECT_GE(received_.size(), at + sizeof(body));
    std::memcpy(&body, received_.data() + at, sizeof(body));
    return body;
  }
  bool Hello() {
    rdma::HelloBody body;
    body.liveness = {reinterpret_cast<uintptr_t>(buffers_.data()), 8, memory_->rkey, 0};
    return Send(rdma::Message<rdma::HelloBody>(Opcode::kHello, 0, 0, body, 0).bytes());
  }

 private:
  bool Connect(const std::string& host, const std::string& port, const RawOptions& options) {
    rdma_addrinfo hints = {};
    hints.ai_port_space = RDMA_PS_TCP;
    rdma_addrinfo* address = nullptr;
    if (rdma_getaddrinfo(host.c_str(), port.c_str(), &hints, &address) != 0) return false;
    const std::unique_ptr<rdma_addrinfo, void (*)(rdma_addrinfo*)> owner(address,
                                                                         rdma_freeaddrinfo);
    // Without a channel each call waits for its end.
    if (rdma_create_id(nullptr, &id_, nullptr, RDMA_PS_TCP) != 0 ||
        rdma_resolve_addr(id_, nullptr, address->ai_dst_addr, kTimeoutMs) != 0 ||
        rdma_resolve_route(id_, kTimeoutMs) != 0)
      return false;
    domain_ = ibv_alloc_pd(id_->verbs);
    completions_ = ibv_create_cq(id_->verbs, 2 * kWorkMax, nullptr, nullptr, 0);
    memory_ = ibv_reg_mr(domain_, buffers_.data(), buffers_.size(),
                         int{IBV_ACCESS_LOCAL_WRITE} | int{IBV_ACCESS_REMOTE_READ});
    ibv_qp_init_attr shape = {};
    shape.qp_type = IBV_QPT_RC;
    shape.send_cq = shape.recv_cq = completions_;
    shape.cap = {kWorkMax, kWorkMax, 1, 1, 0};
    shape.sq_sig_all = 1;
    if (memory_ == nullptr || rdma_create_qp(id_, domain_, &shape) != 0) return false;
    for (int i = 1; i <= options.receives; ++i) {
      ibv_sge segment = {
          reinterpret_cast<uintptr_t>(buffers_.data() + static_cast<size_t>(i) * kBufferBytes),
          kBufferBytes, memory_->lkey};
      ibv_recv_wr request = {};
      request.wr_id = static_cast<uint64_t>(i);
      request.sg_list = &segment;
      request.num_sge = 1;
      ibv_recv_wr* bad = nullptr;
      if (ibv_post_recv(id_->qp, &request, &bad) != 0) return false;
    }
    rdma_conn_param parameters = {};
    parameters.private_data = options.private_data.data();
    parameters.private_data_len = static_cast<uint8_t>(options.private_data.size());
    parameters.responder_resources = parameters.initiator_depth = 4;
    parameters.retry_count = parameters.rnr_retry_count = 2;
    return rdma_connect(id_, &parameters) == 0;
  }
  bool Post(ibv_send_wr& request) {
    request.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(id_->qp, &request, &bad) == 0;
  }

  std::string buffers_;  // the one to send from, then receives
  rdma_cm_id* id_ = nullptr;
  ibv_pd* domain_ = nullptr;
  ibv_cq* completions_ = nullptr;
  ibv_mr* memory_ = nullptr;
  std::string received_;
  bool is_up_ = false;
};

// What the server's process holds.
struct Held {
  int64_t descriptors = 0;
  int64_t addresses_kib = 0;
  int64_t resident_kib = 0;
};

class VerbsAdversaryTest : public testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<ServerProcess>> server =
        ServerProcess::Start(NewListenAddress(), {"--connections-max=64"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    const std::pair<std::string, std::string> address =
        absl::StrSplit(server_->uri().substr(std::strlen("rdma://")), absl::MaxSplits(':', 1));
    host_ = address.first;
    port_ = address.second;
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(server_->uri());
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    { std::unique_ptr<RawPeer> first = Join(); }  // what is made once is there
    ExpectServes();
    before_ = Holds();
  }
  void TearDown() override {
    if (client_ == nullptr) return;
    ExpectServes();
    Held now;
    const absl::Time end = absl::Now() + kBackMax;
    do {
      now = Holds();
      absl::SleepFor(absl::Milliseconds(50));
    } while (!IsBack(now) && absl::Now() < end);
    EXPECT_LE(now.descriptors, before_.descriptors);
    EXPECT_LE(now.addresses_kib, before_.addresses_kib + kSlackKiB);
    EXPECT_LE(now.resident_kib, before_.resident_kib + kSlackKiB);
    client_.reset();
    EXPECT_EQ(server_->Stop(), 0) << server_->Log();
  }

  std::unique_ptr<RawPeer> Join(const RawOptions& options = {}) {
    return std::make_unique<RawPeer>(host_, port_, options);
  }
  // A peer that has a session, and what the Welcome said of the region.
  std::unique_ptr<RawPeer> Enter(rdma::WireMemory* region) {
    std::unique_ptr<RawPeer> peer = Join();
    EXPECT_TRUE(peer->is_up() && peer->Hello());
    EXPECT_EQ(peer->Receive(), Opcode::kWelcome);
    *region = peer->BodyOf<rdma::WelcomeBody>().region;
    return peer;
  }
  void ExpectServes() {
    absl::Duration quickest = absl::InfiniteDuration();
    for (int i = 0; i < kPutTries && quickest >= kPutMax; ++i) {
      const absl::Time began = absl::Now();
      const absl::StatusOr<uint64_t> put = client_->Put("planet", "saturn");
      ASSERT_TRUE(put.ok()) << put.status();
      quickest = std::min(quickest, absl::Now() - began);
    }
    EXPECT_LT(quickest, kPutMax);
  }
  Held Holds() const {
    const std::string folder = absl::StrCat("/proc/", server_->pid());
    const std::filesystem::directory_iterator files(folder + "/fd");
    Held held;
    held.descriptors = std::distance(begin(files), end(files));
    std::ifstream status(folder + "/status");
    for (std::string line; std::getline(status, line);) {
      const std::vector<std::string> words =
          absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
      int64_t* const field = words[0] == "VmSize:"  ? &held.addresses_kib
                             : words[0] == "VmRSS:" ? &held.resident_kib
                                                    : nullptr;
      EXPECT_TRUE(field == nullptr || absl::SimpleAtoi(words[1], field)) << line;
    }
    return held;
  }
  bool IsBack(const Held& now) const {
    return now.descriptors <= before_.descriptors &&
           now.addresses_kib <= before_.addresses_kib + kSlackKiB &&
           now.resident_kib <= before_.resident_kib + kSlackKiB;
  }

  std::mt19937 random_{29};
  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<Client> client_;
  std::string host_, port_;
  Held before_;
};

TEST_F(VerbsAdversaryTest, GarbageAsConnectDataIsRejected) {
  std::vector<std::string> garbage = {"", "GET / HTTP/1.1", std::string(56, '\xff')};
  for (const size_t length : {1, 7, 8}) garbage.push_back(BytesOf(Offer()).substr(0, length));
  rdma::ConnectData data = Offer();
  data.receive_credits = 0;
  garbage.push_back(BytesOf(data));
  data = Offer();
  data.frame_bytes_max = 0;
  garbage.push_back(BytesOf(data));
  data = Offer();
  data.version += 1;
  garbage.push_back(BytesOf(data));
  for (int i = 0; i < 10; ++i) {
    std::string bytes(random_() % 56, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_());
    garbage.push_back(bytes);
  }
  for (const std::string& bytes : garbage) EXPECT_FALSE(Join({.private_data = bytes})->is_up());
  ExpectServes();
}

TEST_F(VerbsAdversaryTest, ExtremesAsConnectDataAreCut) {
  std::vector<std::unique_ptr<RawPeer>> peers;
  for (const uint16_t credits : {2, 0xffff}) {
    for (const uint32_t frame : {1u, 100u, 0xffffffffu}) {
      rdma::ConnectData data = Offer();
      data.receive_credits = credits;
      data.frame_bytes_max = frame;
      data.reads_in_flight_max = 0xffffffff;
      peers.push_back(Join({.private_data = BytesOf(data)}));
      if (peers.back()->is_up()) peers.back()->Hello();
    }
  }
  ExpectServes();
}

TEST_F(VerbsAdversaryTest, HandshakesThatEndHalfWay) {
  std::vector<std::unique_ptr<RawPeer>> peers;
  for (int i = 0; i < 24; ++i) {
    peers.push_back(Join());
    if (peers.back()->is_up() && i % 2 == 1) peers.back()->Hello();
  }
  ExpectServes();
  for (int i = 0; i < 24; i += 3) peers[static_cast<size_t>(i)]->Leave();
}

TEST_F(VerbsAdversaryTest, ComingsAndGoings) {
  for (int i = 0; i < 40; ++i) {
    const std::unique_ptr<RawPeer> peer = Join();
    if (i % 2 == 0 && peer->is_up()) peer->Leave();
    if (i % 10 == 0) ExpectServes();
  }
}

TEST_F(VerbsAdversaryTest, BrokenEnvelopes) {
  const auto envelope = [](uint16_t credits, uint8_t flags, uint8_t reserved, uint32_t length) {
    rdma::FrameEnvelope bytes;
    bytes.credits = credits, bytes.flags = flags, bytes.reserved = reserved, bytes.length = length;
    return std::string(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
  };
  const std::vector<std::string> broken = {"",
                                           "short",
                                           envelope(0, 0, 0, 0),
                                           envelope(0, 0, 0, 1),
                                           envelope(0, 0, 1, 0),
                                           envelope(0, 4, 0, 0),
                                           envelope(0, 1, 0, 0),
                                           envelope(0xffff, 1, 0, 0),
                                           envelope(0xffff, 0, 0, 4) + "abcd",
                                           envelope(0, 0, 0, 0xffffffff),
                                           envelope(0, 0, 0, 12000) + std::string(12000, 'x')};
  for (const std::string& bytes : broken) {
    const std::unique_ptr<RawPeer> peer = Join();
    ASSERT_TRUE(peer->is_up());
    peer->SendBytes(bytes);
    peer->Completed(/*receive=*/false, absl::Milliseconds(200));
  }
  ExpectServes();
}

TEST_F(VerbsAdversaryTest, FramesOfGarbage) {
  for (int i = 0; i < 20; ++i) {
    rdma::WireMemory region;
    const std::unique_ptr<RawPeer> peer = i % 2 == 0 ? Join() : Enter(&region);
    ASSERT_TRUE(peer->is_up());
    std::vector<std::byte> frame(sizeof(rdma::FrameHeader) + random_() % 500);
    for (std::byte& byte : frame) byte = static_cast<std::byte>(random_());
    rdma::FrameHeader header;
    header.opcode = static_cast<uint8_t>(random_());
    header.length = static_cast<uint32_t>(frame.size());
    if (i % 4 < 2) std::memcpy(frame.data(), &header, sizeof(header));
    peer->Send(frame);
    peer->Completed(/*receive=*/false, absl::Milliseconds(200));
  }
  ExpectServes();
}

TEST_F(VerbsAdversaryTest, FarWritesAtomicsAndForgedKeys) {
  rdma::WireMemory region;
  Enter(&region);
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    rdma::WireMemory own;
    EXPECT_NE(Enter(&own)->Strike(opcode, own.address, own.key), IBV_WC_SUCCESS) << opcode;
  }
  const std::pair<uint64_t, uint32_t> forged[] = {{region.address - 8, region.key},
                                                  {region.address + region.length, region.key},
                                                  {0, region.key},
                                                  {~uint64_t{0} - 7, region.key},
                                                  {region.address, region.key + 1},
                                                  {region.address, region.key - 1},
                                                  {region.address, region.key ^ 256},
                                                  {region.address, 0}};
  for (const auto& [address, key] : forged) {
    rdma::WireMemory own;
    EXPECT_NE(Enter(&own)->Strike(IBV_WR_RDMA_READ, address, key), IBV_WC_SUCCESS) << key;
  }
  // Before the Welcome.
  const std::unique_ptr<RawPeer> early = Join();
  EXPECT_NE(early->Strike(IBV_WR_RDMA_READ, region.address, region.key), IBV_WC_SUCCESS);
  ExpectServes();
}

TEST_F(VerbsAdversaryTest, MoreRequestsThanCredits) {
  rdma::WireMemory region;
  const std::unique_ptr<RawPeer> peer = Enter(&region);
  for (int i = 0; i < RawPeer::kWorkMax; ++i) {
    const rdma::EmptyMessage ping(Opcode::kPing, 1, static_cast<uint64_t>(i) + 1);
    if (!peer->Send(ping.bytes())) break;
  }
  ExpectServes();
}

TEST_F(VerbsAdversaryTest, NoReceivesForTheAnswers) {
  std::vector<std::unique_ptr<RawPeer>> peers;
  for (int i = 0; i < 8; ++i) {
    peers.push_back(Join({.receives = 0}));
    if (peers.back()->is_up()) peers.back()->Hello();
  }
  ExpectServes();
}

}  // namespace
}  // namespace osprey

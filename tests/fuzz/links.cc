// The links of a server facing peers that are hostile through and through. The bytes are a script
// over the fake transport: which peers connect, and are connected to, which frames they send in
// what order (mostly nearly right), what breaks, how time passes. What must hold:
//
//   a server that keeps the rules stays connected, and its messages arrive, all the while
//
//   what is sent to a peer is well-formed, and before its proof only Challenge and Refused
//
//   no message of a peer is taken before its proof, and no link to one is open before its proof
//
//   when the peers are gone, so are all of their connections

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "rdma/authentication.h"
#include "server/cluster/links/link_frames.h"
#include "server/cluster/links/message_assembly.h"
#include "server/cluster/links/message_queue.h"
#include "server/cluster/links/peer_links.h"
#include "tests/fuzz/support/input.h"
#include "tests/support/transports/fake_transport.h"

namespace osprey {
namespace {

using fuzz::Input;

constexpr uint64_t kCluster = 0xC105;
// Server a is under test, b is played by the script, c keeps the rules.
constexpr uint64_t kA = 1, kB = 2, kC = 3;
constexpr int kPeers = 3;

std::string TextOf(rdma::Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
rdma::Bytes BytesOf(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

struct Setting {
  fake::Network& network;
  Input& input;
  rdma::AuthKey::Pointer key;  // of the cluster; may be null
  std::string scheme;
  uint64_t proofs_as_client = 0;  // right ones that were sent, or Hellos without a key
  uint64_t proofs_as_server = 0;  // … and Welcomes

  std::string AddressOf(absl::string_view server) const {
    return scheme + std::string(server) + (scheme == "rdma://" ? ":1" : "");
  }
};

// One end that the script plays: it connects to a, or is connected to by a.
class Peer {
 public:
  Peer(Setting& setting, bool listens) : setting_(setting), listens_(listens) {
    domain_ = setting.network.NewDomain("hostile");
    rdma::TransportOptions options = kLinkTransportOptions;
    if (setting.input.OneIn(4)) options.receive_credits = 2;
    transport_ = domain_->NewTransport(options).value();
    if (listens) OSPREY_MUST(transport_->Listen(setting.AddressOf("b"), kB).ok(), "listening");
  }

  void Step() {
    if (id_ == rdma::ConnectionId::kNone) {
      if (listens_) return;
      id_ = transport_->Connect(setting_.AddressOf("a")).value();
      Begin();
      return;
    }
    if (setting_.input.OneIn(16)) return transport_->Disconnect(id_);
    if (!connected_ || transport_->SendRoom(id_) == 0) return;
    const std::string frame = Frame();
    if (!frame.empty()) (void)transport_->Send(id_, {BytesOf(frame)});
  }

  void Poll() {
    std::vector<rdma::Event> events(8);
    const size_t count = transport_->Poll(absl::MakeSpan(events));
    for (size_t i = 0; i < count; ++i) {
      const rdma::Event& event = events[i];
      switch (event.kind) {
        case rdma::Event::Kind::kConnectRequest:
          if (id_ != rdma::ConnectionId::kNone) {
            transport_->Reject(event.connection, rdma::RejectReason::kShuttingDown);
            break;
          }
          id_ = event.connection;
          Begin();
          (void)transport_->Accept(id_);
          break;
        case rdma::Event::Kind::kConnected:
          connected_ = true;
          break;
        case rdma::Event::Kind::kReceived:
          if (event.connection == id_) Take(event.frame);
          break;
        case rdma::Event::Kind::kDisconnected:
          if (event.connection == id_) id_ = rdma::ConnectionId::kNone;
          break;
        default:
          break;
      }
    }
  }

  rdma::ConnectionId id() const { return id_; }

 private:
  void Begin() {
    connected_ = challenged_ = proved_ = false;
    hello_ = LinkHelloBody();
  }

  // What a sends.
  void Take(rdma::Bytes frame) {
    const absl::StatusOr<LinkFrame> type = ParseLinkHeader(frame);
    OSPREY_MUST(type.ok(), "a frame of no form");
    switch (*type) {
      case LinkFrame::kHello:
        OSPREY_MUST(listens_ && ParseLinkHello(frame).ok(), "a wrong Hello");
        hello_ = *ParseLinkHello(frame);
        return;
      case LinkFrame::kChallenge:
        OSPREY_MUST(!listens_ && ParseLinkChallenge(frame).ok(), "a wrong Challenge");
        std::memcpy(nonces_.server.data(), ParseLinkChallenge(frame)->nonce, 32);
        challenged_ = true;
        return;
      case LinkFrame::kResponse:
        OSPREY_MUST(listens_ && setting_.key != nullptr && ParseLinkResponse(frame).ok(),
                    "a wrong Response");
        std::memcpy(nonces_.client.data(), ParseLinkResponse(frame)->nonce, 32);
        challenged_ = true;
        return;
      case LinkFrame::kWelcome:
        OSPREY_MUST(!listens_ && ParseLinkWelcome(frame).ok(), "a wrong Welcome");
        OSPREY_MUST(proved_, "a Welcome before the proof");
        return;
      case LinkFrame::kRefused:
        OSPREY_MUST(!listens_ && ParseLinkRefused(frame).ok(), "a wrong Refused");
        return;
      case LinkFrame::kPong:
        OSPREY_MUST(!listens_ && proved_ && CheckEmptyLinkFrame(frame).ok(), "a wrong Pong");
        return;
      case LinkFrame::kData:
      case LinkFrame::kPing:
        OSPREY_MUST(listens_ && proved_, "messages before the proof");
        return;
    }
  }

  std::string Frame() {
    Input& input = setting_.input;
    std::string frame = NearlyRight();
    if (input.OneIn(8)) frame = frame.substr(0, input.UpTo(frame.size()));
    if (!frame.empty() && input.OneIn(8)) frame[input.UpTo(frame.size() - 1)] ^= input.Byte();
    return frame.size() > 16000 ? "" : frame;
  }

  std::string NearlyRight() {
    Input& input = setting_.input;
    switch (input.Choice(10)) {
      case 0:
      case 1:
        return HelloFrame();
      case 2:
      case 3:
        return listens_ ? WelcomeFrame() : ResponseFrame();
      case 4: {
        LinkChallengeBody challenge;
        if (listens_) std::memcpy(nonces_.server.data(), challenge.nonce, 32);
        return LinkFrameOf(LinkFrame::kChallenge, challenge);
      }
      case 5: {
        LinkRefusedBody refused;
        refused.reason = static_cast<uint32_t>(input.Number());
        return LinkFrameOf(LinkFrame::kRefused, refused);
      }
      case 6:
        return LinkFrameOf(input.Flag() ? LinkFrame::kPing : LinkFrame::kPong);
      case 7:
        return input.Text(200);
      default:
        return DataFrame();
    }
  }

  std::string HelloFrame() {
    Input& input = setting_.input;
    LinkHelloBody hello;
    hello.cluster_id = input.OneIn(8) ? input.Number() : kCluster;
    hello.server = LinkServerNameOf(input.OneIn(8) ? "a" : "b");
    hello.incarnation = input.OneIn(8) ? kA : kB;
    hello.expected_incarnation = input.OneIn(8) ? input.Number() : kA;
    if (input.OneIn(8)) hello.version_max = static_cast<uint16_t>(input.Number());
    if (!listens_) hello_ = hello;
    if (setting_.key == nullptr) ++setting_.proofs_as_client, proved_ = true;
    return LinkFrameOf(LinkFrame::kHello, hello);
  }

  std::string ResponseFrame() {
    LinkResponseBody response;
    if (setting_.key != nullptr && challenged_ && !setting_.input.OneIn(3)) {
      const rdma::Proof proof = rdma::ClientProof(*setting_.key, nonces_, LinkBodyBytes(hello_));
      std::memcpy(response.nonce, nonces_.client.data(), 32);
      std::memcpy(response.mac, proof.data(), 32);
      ++setting_.proofs_as_client;
      proved_ = true;
    }
    return LinkFrameOf(LinkFrame::kResponse, response);
  }

  std::string WelcomeFrame() {
    Input& input = setting_.input;
    LinkWelcomeBody welcome;
    welcome.version = input.OneIn(8) ? static_cast<uint16_t>(input.Number()) : 1;
    welcome.incarnation = input.OneIn(8) ? kC : kB;
    if (setting_.key == nullptr || (challenged_ && !input.OneIn(3))) {
      if (setting_.key != nullptr) {
        const rdma::Proof proof =
            rdma::ServerProof(*setting_.key, nonces_, kCluster, LinkBodyBytes(welcome));
        std::memcpy(welcome.proof, proof.data(), 32);
      }
      ++setting_.proofs_as_server;
      proved_ = true;
    }
    return LinkFrameOf(LinkFrame::kWelcome, welcome);
  }

  std::string DataFrame() {
    Input& input = setting_.input;
    std::string frame = LinkFrameOf(LinkFrame::kData);
    for (uint32_t left = input.Choice(4); left > 0; --left) {
      PieceHeader piece;
      const std::string bytes = input.Text(100);
      piece.kind = input.Byte();
      piece.message_bytes = input.OneIn(4) ? input.Number() : bytes.size();
      piece.piece_bytes = static_cast<uint32_t>(input.OneIn(8) ? input.Number() : bytes.size());
      frame += TextOf(LinkBodyBytes(piece)) + bytes;
    }
    return frame;
  }

  Setting& setting_;
  const bool listens_;
  std::unique_ptr<rdma::Domain> domain_;
  std::unique_ptr<rdma::Transport> transport_;
  rdma::ConnectionId id_ = rdma::ConnectionId::kNone;
  LinkHelloBody hello_;
  rdma::Nonces nonces_;
  bool connected_ = false, challenged_ = false, proved_ = false;
};

class Script {
 public:
  explicit Script(Input& input) : input_(input), setting_{network_, input, nullptr, "shm:///"} {
    if (input.Flag()) {
      setting_.key = rdma::AuthKey::FromBytes(std::string(32, 'k')).value();
      setting_.scheme = "rdma://";
    }
    a_domain_ = network_.NewDomain("a");
    c_domain_ = network_.NewDomain("c");
    a_ = Start("a", kA, *a_domain_);
    c_ = Start("c", kC, *c_domain_);
    a_->SetPeers({{"b", {kB, {setting_.AddressOf("b")}}}, {"c", {kC, {setting_.AddressOf("c")}}}});
    c_->SetPeers({{"a", {kA, {setting_.AddressOf("a")}}}});
    for (int i = 0; i < 20; ++i) Turn();
    OSPREY_MUST(c_->RoomFor(kA) > 0 && a_->RoomFor(kC) > 0, "no links");
    for (int i = 0; i < kPeers; ++i) peers_.push_back(std::make_unique<Peer>(setting_, i == 0));
  }

  void Run() {
    while (!input_.empty()) {
      if (input_.OneIn(16)) {
        network_.Break(peers_[input_.Choice(kPeers)]->id());
      } else if (input_.OneIn(16)) {
        (void)a_->Send(kB, 1, input_.Text(100));
      } else {
        peers_[input_.Choice(kPeers)]->Step();
      }
      OSPREY_MUST(c_->Send(kA, 7, std::to_string(++sent_)).ok(), "no link of the server c");
      now_ += absl::Milliseconds(input_.OneIn(8) ? 190 : 1);
      Turn();
    }
    End();
  }

 private:
  std::unique_ptr<PeerLinks> Start(const std::string& server, uint64_t incarnation,
                                   rdma::Domain& domain) {
    LinkOptions options;
    options.server = server;
    options.incarnation = incarnation;
    options.cluster_id = kCluster;
    options.key = setting_.key;
    options.random = [this] { return last_random_ += 0x5E55; };
    std::vector<LinkPort> ports;
    ports.push_back(
        {setting_.key == nullptr ? rdma::Address::Scheme::kShm : rdma::Address::Scheme::kRdma,
         domain.NewTransport(kLinkTransportOptions).value()});
    auto links = PeerLinks::Create(options, std::move(ports), now_).value();
    OSPREY_MUST(links->Listen(setting_.AddressOf(server)).ok(), "listening");
    return links;
  }

  void Turn() {
    for (int i = 0; i < 2; ++i) {
      for (const auto& peer : peers_) peer->Poll();
      std::vector<LinkEvent> events;
      c_->Poll(now_, events);
      for (const LinkEvent& event : events)
        OSPREY_MUST(event.kind != LinkEvent::Kind::kDisconnected, "the server c lost its link");
      events.clear();
      a_->Poll(now_, events);
      for (const LinkEvent& event : events) Take(event);
    }
  }

  void Take(const LinkEvent& event) {
    OSPREY_MUST(event.incarnation == kB || event.incarnation == kC, "an event of no peer");
    if (event.incarnation == kC) {
      OSPREY_MUST(event.kind != LinkEvent::Kind::kDisconnected, "the link to c has ended");
      if (event.kind != LinkEvent::Kind::kMessage) return;
      OSPREY_MUST(event.body == std::to_string(++received_), "messages out of order");
      return;
    }
    if (event.kind == LinkEvent::Kind::kMessage) {
      OSPREY_MUST(setting_.proofs_as_client > 0, "a message without a proof");
      OSPREY_MUST(event.body.size() <= kLinkMessageBytesMax, "a message that is too long");
      return;
    }
    const bool connects = event.kind == LinkEvent::Kind::kConnected;
    OSPREY_MUST(connects != b_connected_, "the same again");
    b_connected_ = connects;
    OSPREY_MUST(!connects || setting_.proofs_as_server > 0, "a link without a proof");
  }

  void End() {
    Turn();
    OSPREY_MUST(received_ == sent_, "messages that did not arrive");
    peers_.clear();
    for (int i = 0; i < 20; ++i) {
      now_ += absl::Milliseconds(190);
      Turn();
    }
    OSPREY_MUST(a_->incoming() == 1 && network_.connections() == 4, "connections without a peer");
    c_.reset();
    a_.reset();
    OSPREY_MUST(network_.connections() == 0, "connections without an end");
  }

  Input& input_;
  fake::Network network_;
  Setting setting_;
  absl::Time now_ = absl::UnixEpoch();
  uint64_t last_random_ = 1;
  std::unique_ptr<rdma::Domain> a_domain_, c_domain_;
  std::unique_ptr<PeerLinks> a_, c_;
  std::vector<std::unique_ptr<Peer>> peers_;
  uint64_t sent_ = 0, received_ = 0;  // of c's messages to a
  bool b_connected_ = false;
};

// Any bytes as pieces, and any messages as frames that give them back.
void TakePieces(Input& input) {
  MessageQueue queue(1 << 20);
  std::vector<std::pair<uint8_t, std::string>> sent, received;
  const size_t frame_bytes_max = kLinkFrameBytesMin + input.UpTo(2000);
  const auto take = [&](uint8_t kind, std::string body) {
    received.emplace_back(kind, std::move(body));
  };
  MessageAssembly assembly;
  while (!input.empty()) {
    const uint8_t kind = input.Byte();
    std::string body(input.UpTo(4000), static_cast<char>(kind));
    if (queue.Push(kind, body).ok()) sent.emplace_back(kind, std::move(body));
    for (uint32_t left = input.Choice(4); left > 0 && !queue.empty(); --left) {
      std::string frame;
      for (const rdma::Bytes piece : queue.NextFrame(frame_bytes_max)) frame += TextOf(piece);
      OSPREY_MUST(frame.size() <= frame_bytes_max, "a frame that is too long");
      queue.Sent();
      OSPREY_MUST(assembly.Take(BytesOf(frame), take).ok(), "a frame that is not taken");
    }
  }
  OSPREY_MUST(received.size() <= sent.size(), "more messages than were sent");
  sent.resize(received.size());
  OSPREY_MUST(received == sent, "other messages than were sent");
}

}  // namespace
}  // namespace osprey

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  osprey::fuzz::Input input(data, size);
  if (input.OneIn(4)) {
    osprey::TakePieces(input);
  } else {
    osprey::Script(input).Run();
  }
  return 0;
}

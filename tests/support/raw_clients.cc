#include "tests/support/raw_clients.h"

#include <poll.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "rdma/open_domain.h"
#include "tests/support/protocol_frames.h"

namespace osprey {

using rdma::Event;
using rdma::Opcode;

namespace {

constexpr size_t kReadBytes = 256;  // a window
constexpr absl::Duration kRetryAfter = absl::Milliseconds(500);
constexpr int kNapMs = 10;  // until the next check for due work without an event

}  // namespace

RawClients::RawClients(std::string uri, const rdma::TransportOptions& options)
    : uri_(std::move(uri)),
      domain_(rdma::OpenDomain(uri_).value()),
      liveness_(domain_->Allocate(8, rdma::Access::kRemoteRead).value()),
      sink_(domain_->Allocate(kReadBytes, rdma::Access::kLocal).value()),
      transport_(domain_->NewTransport(options).value()) {}

RawClients::~RawClients() = default;

void RawClients::Connect(int count, int at_once, bool say_nothing) {
  at_once_ = at_once;
  for (int i = 0; i < count; ++i) {
    to_start_.push_back({absl::InfinitePast(), all_.size()});
    all_.emplace_back();
    all_.back().says_nothing = say_nothing;
  }
  StartSome();
}

void RawClients::Reconnect() {
  at_once_ = static_cast<int>(all_.size());
  for (size_t i = 0; i < all_.size(); ++i) {
    if (all_[i].stage == Stage::kEnded) to_start_.push_back({absl::InfinitePast(), i});
  }
  StartSome();
}

void RawClients::StartSome() {
  if (to_start_.empty()) return;
  const absl::Time now = absl::Now();
  for (; starting_ < at_once_ && !to_start_.empty() && to_start_.front().at <= now;
       to_start_.pop_front())
    Start(to_start_.front().index);
}

void RawClients::Start(size_t index) {
  One& one = all_[index];
  const absl::StatusOr<rdma::ConnectionId> id =
      transport_->Connect(uri_, static_cast<uint32_t>(one.session));
  ASSERT_TRUE(id.ok()) << id.status();
  one.id = *id;
  one.stage = Stage::kConnecting;
  by_id_[one.id] = index;
  ++connections_;
  ++starting_;
}

void RawClients::OnConnected(One& one) {
  one.stage = Stage::kConnected;
  ++connected_;
  if (one.says_nothing) {
    --starting_;
    return;
  }
  const absl::StatusOr<rdma::RemoteMemory> liveness = transport_->Expose(one.id, *liveness_);
  ASSERT_TRUE(liveness.ok()) << liveness.status();
  rdma::HelloBody hello;
  hello.resume_session = one.session;
  hello.resume_incarnation = one.session == 0 ? 0 : one.incarnation;
  hello.liveness = {liveness->address, 8, liveness->key, 0};
  const rdma::Message<rdma::HelloBody> message(Opcode::kHello, 0, 0, hello, 0);
  const absl::Status sent = transport_->Send(one.id, {message.bytes()});
  EXPECT_TRUE(sent.ok()) << sent;
}

void RawClients::OnFrame(One& one, rdma::Bytes frame) {
  const absl::StatusOr<rdma::FrameHeader> header = rdma::ParseHeader(frame);
  ASSERT_TRUE(header.ok()) << header.status();
  if (header->opcode == static_cast<uint8_t>(Opcode::kWelcome)) {
    const absl::StatusOr<rdma::WelcomeBody> welcome = rdma::ParseWelcome(frame);
    ASSERT_TRUE(welcome.ok()) << welcome.status();
    one.region = welcome->region;
    const absl::Status attached = transport_->Attach(
        one.id, {welcome->region.address, welcome->region.length, welcome->region.key});
    EXPECT_TRUE(attached.ok()) << attached;
    if (one.session == header->session) ++resumed_;
    if (one.session != header->session) one.sequence = 0;
    one.session = header->session;
    one.incarnation = welcome->incarnation;
    one.stage = Stage::kWelcomed;
    ++welcomed_;
    --starting_;
  } else if (header->opcode == static_cast<uint8_t>(Opcode::kReply) && one.using_it) {
    const absl::StatusOr<rdma::Reply> reply = rdma::ParseReply(frame);
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->body.status, 0) << "a PUT failed";
    ReadTable(one);
  }
}

void RawClients::ReadTable(One& one) {
  rdma::ReadRequest read;
  read.remote_address = one.region.address;
  read.remote_key = one.region.key;
  read.segments[0] = {sink_->data(), kReadBytes, sink_.get()};
  const absl::Status posted = transport_->PostReads(one.id, {&read, 1}, 1);
  EXPECT_TRUE(posted.ok()) << posted;
}

void RawClients::OnEnd(size_t index, const absl::Status& status) {
  One& one = all_[index];
  if (!status.ok()) last_end_ = status;
  const bool was_starting =
      one.stage == Stage::kConnecting || (one.stage == Stage::kConnected && !one.says_nothing);
  if (was_starting) {
    --starting_;
    ++retries_;
    to_start_.push_back({absl::Now() + kRetryAfter, index});
  }
  if (one.stage == Stage::kConnected || one.stage == Stage::kWelcomed) --connected_;
  if (one.stage == Stage::kWelcomed) --welcomed_;
  --connections_;
  by_id_.erase(one.id);
  one.stage = Stage::kEnded;
  one.using_it = false;
}

absl::Status RawClients::SendPut(size_t index, absl::string_view value) {
  One& one = all_[index];
  const std::string key = absl::StrCat("light", index);
  rdma::PutBody body;
  body.key_length = static_cast<uint16_t>(key.size());
  body.value_length = value.size();
  const rdma::Message<rdma::PutBody> message(Opcode::kPut, one.session, one.sequence + 1, body,
                                             key.size() + value.size());
  absl::Status sent =
      transport_->Send(one.id, {message.bytes(), rdma::AsBytes(key), rdma::AsBytes(value)});
  if (sent.ok()) ++one.sequence;
  return sent;
}

void RawClients::Use() {
  used_ = 0;
  for (size_t i = 0; i < all_.size(); ++i) {
    if (all_[i].stage != Stage::kWelcomed) continue;
    all_[i].using_it = true;
    const absl::Status sent = SendPut(i, "value");
    EXPECT_TRUE(sent.ok()) << sent;
  }
}

void RawClients::SendPuts(int count, absl::string_view value) {
  for (size_t i = 0; i < all_.size(); ++i) {
    for (int n = 0; n < count && all_[i].stage == Stage::kWelcomed; ++n) {
      if (!SendPut(i, value).ok()) break;  // no credit
    }
  }
}

void RawClients::Disconnect(bool farewell) {
  for (One& one : all_) {
    if (one.stage == Stage::kEnded) continue;
    if (farewell && one.stage == Stage::kWelcomed) {
      const rdma::EmptyMessage disconnect_notice(Opcode::kDisconnectNotice, one.session, 0);
      (void)transport_->Send(one.id, {disconnect_notice.bytes()});
      one.session = 0;
    }
    transport_->Disconnect(one.id);
  }
}

size_t RawClients::Poll() {
  Event events[64];
  const size_t count = transport_->Poll(absl::MakeSpan(events));
  for (size_t i = 0; i < count; ++i) {
    const Event& event = events[i];
    const auto found = by_id_.find(event.connection);
    if (found == by_id_.end()) continue;
    One& one = all_[found->second];
    switch (event.kind) {
      case Event::Kind::kConnected:
        OnConnected(one);
        break;
      case Event::Kind::kReceived:
        OnFrame(one, event.frame);
        break;
      case Event::Kind::kReadsDone:
        if (event.status.ok() && std::exchange(one.using_it, false)) ++used_;
        break;
      case Event::Kind::kDisconnected:
        OnEnd(found->second, event.status);
        break;
      case Event::Kind::kConnectRequest:
      case Event::Kind::kDeviceLost:
        ADD_FAILURE() << "an event that no client gets";
        break;
    }
  }
  StartSome();
  return count;
}

bool RawClients::Until(const std::function<bool()>& condition, absl::Duration patience) {
  const absl::Time end = absl::Now() + patience;
  while (!condition() && absl::Now() < end) {
    if (Poll() > 0 || !transport_->Arm()) continue;
    // The server uses the CPU meanwhile.
    pollfd readable = {transport_->fd(), POLLIN, 0};
    poll(&readable, 1, kNapMs);
  }
  return condition();
}

}  // namespace osprey

// The verbs transport and peers that break its rules, or speak another protocol. Needs the lab.

#include <gtest/gtest.h>
#include <rdma/rdma_cma.h>

#include <cstring>
#include <string>

#include "absl/strings/escaping.h"
#include "rdma/address.h"
#include "rdma/errors.h"
#include "rdma/verbs/device/address.h"
#include "rdma/verbs/frame.h"
#include "rdma/verbs/verbs_transport.h"
#include "tests/rdma/transport_contract.h"
#include "tests/rdma/verbs/transport_fixture.h"

namespace osprey::rdma {
namespace {

TEST_P(VerbsTransportTest, AHostileEnvelopeBreaksItsOwnConnectionAndNoOther) {
  const std::string cases[] = {
      "",                                        // shorter than an envelope
      Envelope(0, 0, 0),                         // an empty frame
      Envelope(0, 0, 100, "short"),              // a length beyond the received bytes
      Envelope(0, 0, 1, "longer than it says"),  // a length below the received bytes
      Envelope(0, 0x80, 1, "x"),                 // unknown flags
      Envelope(1, kEnvelopeCreditsOnly, 0),      // a credit that was never used
      Envelope(0xffff, 0, 1, "x"),               // many unused credits
      Envelope(0, kEnvelopeCreditsOnly, 0),      // credits-only without credits
  };
  Side server(*fixture_), bystander(*fixture_);
  const std::string uri = Listen(server);
  const Ids others = Join(server, bystander, uri);
  for (const std::string& bytes : cases) {
    Side client(*fixture_);
    const Ids ids = Join(server, client, uri);
    SendRaw(client, ids.client, bytes);
    ASSERT_TRUE(Until({&server, &client}, [&] {
      return server.Find(Kind::kDisconnected, ids.server) != nullptr &&
             client.Find(Kind::kDisconnected, ids.client) != nullptr;
    })) << absl::CEscape(bytes);
    const absl::Status status = server.Find(Kind::kDisconnected, ids.server)->status;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find("malformed message"), absl::string_view::npos) << status;
    EXPECT_TRUE(server.Frames(ids.server).empty());
    EXPECT_FALSE(client.Find(Kind::kDisconnected, ids.client)->status.ok());
  }
  ASSERT_TRUE(bystander.Send(others.client, "still here").ok());
  EXPECT_TRUE(
      Until({&server, &bystander}, [&] { return server.Frames(others.server).size() == 1; }));
}

TEST_P(VerbsTransportTest, AFrameLongerThanTheReceiveBreaksItsOwnConnection) {
  TransportOptions small;
  small.frame_bytes_max = 64;
  Side server(*fixture_, small), client(*fixture_);
  const Ids ids = Join(server, client, Listen(server));
  SendRaw(client, ids.client, Envelope(0, 0, 2000, std::string(2000, 'x')));
  EXPECT_TRUE(Until({&server, &client}, [&] {
    return server.Find(Kind::kDisconnected, ids.server) != nullptr &&
           client.Find(Kind::kDisconnected, ids.client) != nullptr;
  }));
  EXPECT_TRUE(server.Frames(ids.server).empty());
}

// One end of rdma_cm without Osprey's protocol. Synchronous: it has its own thread, or needs none.
class Stranger {
 public:
  explicit Stranger(const std::string& private_data) : private_data_(private_data) {
    channel_ = *CreateEventChannel();
    id_ = *CreateCmId(channel_.get());
  }
  rdma_cm_id* id() { return id_.get(); }
  rdma_conn_param Parameters() {
    rdma_conn_param parameters = {};
    parameters.private_data = private_data_.data();
    parameters.private_data_len = static_cast<uint8_t>(private_data_.size());
    parameters.qp_num = 4711;
    return parameters;
  }
  // The next event, if there is one now. Acknowledges it; `id` is valid after it only in connect
  // requests.
  bool Next(rdma_cm_event_type* type, int* status, rdma_cm_id** id) {
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(channel_.get(), &event) != 0) return false;
    *type = event->event;
    *status = event->status;
    *id = event->id;
    rdma_ack_cm_event(event);
    return true;
  }

 private:
  std::string private_data_;
  EventChannel channel_;
  CmId id_;
};

TEST_P(VerbsTransportTest, AClientOfAnotherKindIsRejectedUnheard) {
  ConnectData bad_magic;
  bad_magic.magic = 0x12345678;
  bad_magic.receive_credits = 32;
  bad_magic.frame_bytes_max = 8192;
  ConnectData no_credits;
  no_credits.frame_bytes_max = 8192;
  for (const std::string& data :
       {std::string(), std::string("GET / HTTP/1.1"),
        std::string(reinterpret_cast<const char*>(&bad_magic), sizeof(bad_magic)),
        std::string(reinterpret_cast<const char*>(&no_credits), sizeof(no_credits))}) {
    Side server(*fixture_), client(*fixture_);
    const std::string uri = Listen(server);
    Stranger stranger(data);
    SocketAddress address = *ResolveAddress(*ParseAddress(uri), false);
    ASSERT_EQ(rdma_resolve_addr(stranger.id(), nullptr, address.get(), 2000), 0);
    bool rejected = false;
    ASSERT_TRUE(Until({&server}, [&] {
      rdma_cm_event_type type;
      rdma_cm_id* id;
      int status;
      if (!stranger.Next(&type, &status, &id)) return false;
      rdma_conn_param parameters = stranger.Parameters();
      if (type == RDMA_CM_EVENT_ADDR_RESOLVED) {
        EXPECT_EQ(rdma_resolve_route(id, 2000), 0);
      } else if (type == RDMA_CM_EVENT_ROUTE_RESOLVED) {
        EXPECT_EQ(rdma_connect(id, &parameters), 0);
      }
      rejected = type == RDMA_CM_EVENT_REJECTED;
      return rejected;
    })) << absl::CEscape(data);
    EXPECT_TRUE(server.events().empty());
    EXPECT_EQ(server.transport().resources().queue_pairs, 0u);
    Join(server, client, uri);
  }
}

TEST_P(VerbsTransportTest, AServerOfAnotherKindIsNamedSo) {
  Side client(*fixture_);
  Stranger stranger("not an osprey");
  SocketAddress address = *ResolveAddress(*ParseAddress(fixture_->ListenUri()), true);
  ASSERT_EQ(rdma_bind_addr(stranger.id(), address.get()), 0);
  ASSERT_EQ(rdma_listen(stranger.id(), 8), 0);
  const std::string uri = UriOf(rdma_get_local_addr(stranger.id()));
  const absl::StatusOr<ConnectionId> id = client.transport().Connect(uri);
  ASSERT_TRUE(id.ok()) << id.status();
  CmId accepted;
  ASSERT_TRUE(Until({&client}, [&] {
    rdma_cm_event_type type;
    rdma_cm_id* event_id;
    int status;
    if (stranger.Next(&type, &status, &event_id) && type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      accepted.reset(event_id);
      rdma_conn_param parameters = stranger.Parameters();
      EXPECT_EQ(rdma_accept(event_id, &parameters), 0);
    }
    return client.Find(Kind::kDisconnected, *id) != nullptr;
  }));
  EXPECT_EQ(ReasonOf(client.Find(Kind::kDisconnected)->status), Reason::kNotOsprey)
      << client.Find(Kind::kDisconnected)->status;
  EXPECT_EQ(client.transport().resources().queue_pairs, 0u);
}

}  // namespace
}  // namespace osprey::rdma

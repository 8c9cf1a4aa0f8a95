#include "rdma/wire/protocol.h"

#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "rdma/reasons.h"
#include "tests/support/parse_request.h"
#include "tests/support/protocol_frames.h"

namespace osprey::rdma {
namespace {

TEST(ProtocolTest, EveryMessageHasItsGoldenBytesAndIsAccepted) {
  for (const Named& message : EveryMessage()) {
    EXPECT_EQ(absl::BytesToHexString(message.frame),
              absl::BytesToHexString(FromHex(message.golden)))
        << message.name;
    EXPECT_TRUE(ParseAny(message.frame).ok()) << message.name << ": " << ParseAny(message.frame);
  }
}

TEST(ProtocolTest, ParsingReturnsWhatWasSent) {
  const std::string hello = HelloFrame();
  EXPECT_EQ(ParseHello(AsBytes(hello))->liveness.address, 0x7F0000001000);
  EXPECT_EQ(ParseHello(AsBytes(hello))->resume_session, 0xA1);

  const std::string welcome = WelcomeFrame();
  EXPECT_EQ(ParseWelcome(AsBytes(welcome))->region.length, 0x20000000);
  EXPECT_EQ(ParseWelcome(AsBytes(welcome))->eager_bytes_max, 8112);

  EXPECT_EQ(ParseElsewhere(AsBytes(ElsewhereFrame("rdma://a\n")))->servers, "rdma://a\n");
  EXPECT_EQ(ParseElsewhere(AsBytes(EmptyFrame(Opcode::kDisconnectNotice, 0)))->servers, "");

  const std::string put = PutFrame(EagerPut("key", "value"), "keyvalue");
  EXPECT_EQ(ParseRequest<PutBody>(AsBytes(put))->key, "key");
  EXPECT_EQ(Join({ParseRequest<PutBody>(AsBytes(put))->value}), "value");
  EXPECT_EQ(ParseRequest<PutBody>(AsBytes(put))->body.condition_version, 0xC1);

  const std::string rendezvous = PutFrame(RendezvousPut("key"), "key");
  EXPECT_EQ(ParseRequest<PutBody>(AsBytes(rendezvous))->key, "key");
  EXPECT_TRUE(ParseRequest<PutBody>(AsBytes(rendezvous))->value.empty());
  EXPECT_EQ(ParseRequest<PutBody>(AsBytes(rendezvous))->body.value_hash, 0xC3);

  EXPECT_EQ(
      ParseRequest<DeleteBody>(AsBytes(DeleteFrame(AnyDelete(), "key")))->body.condition_version,
      0xD1);
  const std::string get = GetFrame(AnyGet(), "key");
  EXPECT_EQ(ParseRequest<GetBody>(AsBytes(get))->key, "key");
  EXPECT_EQ(ParseRequest<GetBody>(AsBytes(get))->body.want_value, 1);
  const std::string increment = IncrementFrame(AnyIncrement(), "key");
  EXPECT_EQ(ParseRequest<IncrementBody>(AsBytes(increment))->key, "key");
  EXPECT_EQ(ParseRequest<IncrementBody>(AsBytes(increment))->body.by, -2);
  EXPECT_EQ(ParseRequest<IncrementBody>(AsBytes(increment))->body.condition_version, 0xD2);
  const std::string append = AppendFrame(AnyAppend(), "keyvalue");
  EXPECT_EQ(ParseRequest<AppendBody>(AsBytes(append))->key, "key");
  EXPECT_EQ(Join({ParseRequest<AppendBody>(AsBytes(append))->value}), "value");
  const std::string flush = FlushFrame(AnyFlush());
  EXPECT_EQ(ParseFlush(AsBytes(flush))->cursor, 0xD4);
  EXPECT_EQ(ParseFlush(AsBytes(flush))->version_bound, 0xD5);
  const std::string reply = ReplyFrame(AnyReply(), "value");
  EXPECT_EQ(Join({ParseReply(AsBytes(reply))->data}), "value");
  EXPECT_EQ(ParseHeader(AsBytes(reply))->session, kSession);
  EXPECT_EQ(ParseHeader(AsBytes(reply))->sequence, kSequence);
}

TEST(ProtocolTest, TheLongestKeyAndTheEmptyValueAreAccepted) {
  const std::string key(kKeyBytesMax, 'k');
  EXPECT_TRUE(ParseAny(PutFrame(EagerPut(key, ""), key)).ok());
  GetBody get;
  get.key_length = kKeyBytesMax;
  EXPECT_TRUE(ParseAny(GetFrame(get, key)).ok());
  EXPECT_TRUE(ParseAny(ReplyFrame(ReplyBody(), "")).ok());
}

TEST(ProtocolTest, AReplyMayPointToAValueThatIsTooLongToSend) {
  ReplyBody body;
  body.value_length = 1 << 20;
  body.slot = 0xE2;
  body.lease_ms = 2000;
  EXPECT_TRUE(ParseAny(ReplyFrame(body, "")).ok());
}

// The frame is refused, and the error names the field.
void ExpectRefused(const std::string& frame, absl::string_view field) {
  const absl::Status status = ParseAny(frame);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
  EXPECT_NE(std::string(status.message()).find(absl::StrCat("malformed frame: ", field, " is ")),
            std::string::npos)
      << "expected " << field << " in: " << status;
}

TEST(ProtocolTest, EachBadFieldOfTheHeaderIsNamed) {
  const std::string ping = EmptyFrame(Opcode::kPing, kSequence);
  ExpectRefused("", "length");
  ExpectRefused(ping.substr(0, sizeof(FrameHeader) - 1), "length");
  ExpectRefused(WithByte(ping, 0, 0), "magic");
  for (uint8_t opcode : {0, 7, 15, 27, 31, 35, 63, 65, 255}) {
    ExpectRefused(WithByte(ping, 2, opcode), "opcode");
  }
  ExpectRefused(WithByte(ping, 3, 1), "flags");
  ExpectRefused(WithByte(ping, 4, 23), "length");
  ExpectRefused(WithByte(ping, 4, 25), "length");
  ExpectRefused(WithByte(ping, 7, 255), "length");
  ExpectRefused(Join({EmptyMessage(Opcode::kPing, 0, 1).bytes()}), "session");
  ExpectRefused(Join({EmptyMessage(Opcode::kPing, 1, 0).bytes()}), "sequence");
  ExpectRefused(Join({EmptyMessage(Opcode::kDisconnectNotice, 1, 1).bytes()}), "sequence");
  ExpectRefused(Join({EmptyMessage(Opcode::kDisconnectNotice, 0, 0).bytes()}), "session");
  ExpectRefused(Join({Message<HelloBody>(Opcode::kHello, 1, 0, AnyHello(), 0).bytes()}), "session");
  ExpectRefused(Join({Message<HelloBody>(Opcode::kHello, 0, 1, AnyHello(), 0).bytes()}),
                "sequence");
}

template <typename Body, typename Change>
Body Changed(Body body, Change change) {
  change(body);
  return body;
}

TEST(ProtocolTest, EachBadFieldOfHelloIsNamed) {
  const auto refused = [](absl::string_view field, auto change) {
    ExpectRefused(HelloFrame(Changed(AnyHello(), change)), field);
  };
  refused("resume_incarnation", [](HelloBody& b) { b.resume_incarnation = 0; });
  refused("resume_incarnation", [](HelloBody& b) { b.resume_session = 0; });
  refused("liveness.length", [](HelloBody& b) { b.liveness.length = 7; });
  refused("liveness.address", [](HelloBody& b) { b.liveness.address = UINT64_MAX - 6; });
  refused("liveness.reserved", [](HelloBody& b) { b.liveness.reserved = 1; });
  refused("resume_data_id", [](HelloBody& b) { b.resume_session = b.resume_incarnation = 0; });
  refused("shards", [](HelloBody& b) { b.shards = 3; });
  refused("shards", [](HelloBody& b) { b.shards = 2 * kShardsMax; });
  refused("shard", [](HelloBody& b) { b.shard = b.shards; });
  refused("shard", [](HelloBody& b) { b.shards = 0, b.shard = kShardsMax; });
}

TEST(ProtocolTest, EachBadFieldOfWelcomeIsNamed) {
  const auto refused = [](absl::string_view field, auto change) {
    ExpectRefused(WelcomeFrame(Changed(AnyWelcome(), change)), field);
  };
  refused("incarnation", [](WelcomeBody& b) { b.incarnation = 0; });
  refused("region.length", [](WelcomeBody& b) { b.region.length = 0; });
  refused("region.address", [](WelcomeBody& b) { b.region.address = UINT64_MAX; });
  refused("region.reserved", [](WelcomeBody& b) { b.region.reserved = 1; });
  refused("requests_max", [](WelcomeBody& b) { b.requests_max = 0; });
  refused("resumed", [](WelcomeBody& b) { b.resumed = 2; });
  refused("eager_bytes_max", [](WelcomeBody& b) { b.eager_bytes_max = 0; });
  refused("partitions", [](WelcomeBody& b) { b.partitions = 0; });
  refused("partitions", [](WelcomeBody& b) { b.partitions = 3; });
  refused("partitions", [](WelcomeBody& b) { b.partitions = 2 * kPartitionsMax; });
  refused("wants_hints", [](WelcomeBody& b) { b.wants_hints = 2; });
  refused("wants_reports", [](WelcomeBody& b) { b.wants_reports = 2; });
  refused("in_cluster", [](WelcomeBody& b) { b.in_cluster = 2; });
  refused("shards", [](WelcomeBody& b) { b.shards = b.shard = 0; });
  refused("shards", [](WelcomeBody& b) { b.shards = 12; });
  refused("shard", [](WelcomeBody& b) { b.shard = b.shards; });
}

TEST(ProtocolTest, EachBadFieldOfAnEagerPutIsNamed) {
  const auto refused = [](absl::string_view field, auto change) {
    ExpectRefused(PutFrame(Changed(EagerPut("key", "value"), change), "keyvalue"), field);
  };
  refused("condition", [](PutBody& b) { b.condition = 3; });
  refused("condition_version", [](PutBody& b) { b.condition = 0; });
  refused("rendezvous", [](PutBody& b) { b.rendezvous = 2; });
  refused("reserved", [](PutBody& b) { b.reserved = 1; });
  refused("key_length", [](PutBody& b) { b.key_length = 0; });
  refused("key_length", [](PutBody& b) { b.key_length = 9; });
  refused("key_length", [](PutBody& b) { b.key_length = 65535; });
  refused("value_length", [](PutBody& b) { b.value_length = 4; });
  refused("value_length", [](PutBody& b) { b.value_length = 6; });
  refused("value_length", [](PutBody& b) { b.value_length = UINT64_MAX; });
  refused("source.address", [](PutBody& b) { b.source.address = 1; });
  refused("source.length", [](PutBody& b) { b.source.length = 1; });
  refused("source.key", [](PutBody& b) { b.source.key = 1; });
  refused("source.reserved", [](PutBody& b) { b.source.reserved = 1; });
  refused("value_hash", [](PutBody& b) { b.value_hash = 1; });
  const std::string key(kKeyBytesMax + 1, 'k');
  ExpectRefused(PutFrame(EagerPut(key, ""), key), "key_length");
}

TEST(ProtocolTest, EachBadFieldOfARendezvousIsNamed) {
  const auto refused = [](absl::string_view field, auto change) {
    ExpectRefused(PutFrame(Changed(RendezvousPut("key"), change), "key"), field);
  };
  refused("value_length", [](PutBody& b) { b.value_length = b.source.length = 0; });
  refused("source.length", [](PutBody& b) { b.source.length += 1; });
  refused("source.address", [](PutBody& b) { b.source.address = UINT64_MAX - 0xFFFE; });
  refused("source.reserved", [](PutBody& b) { b.source.reserved = 1; });
  ExpectRefused(PutFrame(RendezvousPut("key"), "key+value"), "length");
}

TEST(ProtocolTest, EachBadFieldOfDeleteAndGetIsNamed) {
  const auto refused = [](absl::string_view field, auto change) {
    ExpectRefused(DeleteFrame(Changed(AnyDelete(), change), "key"), field);
  };
  refused("condition", [](DeleteBody& b) { b.condition = 1; });
  refused("condition", [](DeleteBody& b) { b.condition = 255; });
  refused("condition_version", [](DeleteBody& b) { b.condition = 0; });
  refused("reserved0", [](DeleteBody& b) { b.reserved0 = 1; });
  refused("reserved1", [](DeleteBody& b) { b.reserved1 = 1; });
  refused("key_length", [](DeleteBody& b) { b.key_length = 0; });
  refused("key_length", [](DeleteBody& b) { b.key_length = 4; });
  refused("length", [](DeleteBody& b) { b.key_length = 2; });

  const auto get_refused = [](absl::string_view field, auto change) {
    ExpectRefused(GetFrame(Changed(AnyGet(), change), "key"), field);
  };
  get_refused("want_value", [](GetBody& b) { b.want_value = 2; });
  get_refused("reserved0", [](GetBody& b) { b.reserved0 = 1; });
  get_refused("reserved1", [](GetBody& b) { b.reserved1 = 1; });
  get_refused("key_length", [](GetBody& b) { b.key_length = 0; });
  get_refused("key_length", [](GetBody& b) { b.key_length = 4; });
  get_refused("length", [](GetBody& b) { b.key_length = 2; });
}

TEST(ProtocolTest, EachBadFieldOfIncrementAppendAndFlushIsNamed) {
  const auto increment_refused = [](absl::string_view field, auto change) {
    ExpectRefused(IncrementFrame(Changed(AnyIncrement(), change), "key"), field);
  };
  increment_refused("condition", [](IncrementBody& b) { b.condition = 1; });
  increment_refused("condition", [](IncrementBody& b) { b.condition = 3; });
  increment_refused("condition_version", [](IncrementBody& b) { b.condition = 0; });
  increment_refused("reserved0", [](IncrementBody& b) { b.reserved0 = 1; });
  increment_refused("reserved1", [](IncrementBody& b) { b.reserved1 = 1; });
  increment_refused("key_length", [](IncrementBody& b) { b.key_length = 0; });
  increment_refused("key_length", [](IncrementBody& b) { b.key_length = 4; });
  increment_refused("length", [](IncrementBody& b) { b.key_length = 2; });

  const auto append_refused = [](absl::string_view field, auto change) {
    ExpectRefused(AppendFrame(Changed(AnyAppend(), change), "keyvalue"), field);
  };
  append_refused("condition", [](AppendBody& b) { b.condition = 1; });
  append_refused("condition_version", [](AppendBody& b) { b.condition = 0; });
  append_refused("reserved0", [](AppendBody& b) { b.reserved0 = 1; });
  append_refused("reserved1", [](AppendBody& b) { b.reserved1 = 1; });
  append_refused("key_length", [](AppendBody& b) { b.key_length = 0; });
  append_refused("key_length", [](AppendBody& b) { b.key_length = 9; });
  append_refused("value_length", [](AppendBody& b) { b.value_length = 4; });
  append_refused("value_length", [](AppendBody& b) { b.value_length = 6; });
  append_refused("value_length", [](AppendBody& b) { b.value_length = UINT64_MAX; });

  ExpectRefused(FlushFrame(Changed(AnyFlush(), [](FlushBody& b) { b.version_bound = 0; })),
                "version_bound");
  EXPECT_TRUE(ParseAny(FlushFrame(FlushBody())).ok());
}

TEST(ProtocolTest, EachBadFieldOfExpireAndTouchIsNamed) {
  const auto refused = [](absl::string_view field, auto change) {
    ExpectRefused(ExpireFrame(Changed(AnyExpire(), change), "key"), field);
  };
  refused("condition", [](ExpireBody& b) { b.condition = 1; });
  refused("condition_version", [](ExpireBody& b) { b.condition = 0; });
  refused("reserved0", [](ExpireBody& b) { b.reserved0 = 1; });
  refused("reserved1", [](ExpireBody& b) { b.reserved1 = 1; });
  refused("key_length", [](ExpireBody& b) { b.key_length = 0; });
  refused("key_length", [](ExpireBody& b) { b.key_length = 4; });
  refused("length", [](ExpireBody& b) { b.key_length = 2; });

  const auto touch_refused = [](absl::string_view field, auto change) {
    ExpectRefused(TouchFrame(Changed(AnyTouch(), change), "key"), field);
  };
  touch_refused("reserved0", [](TouchBody& b) { b.reserved0 = 1; });
  touch_refused("reserved1", [](TouchBody& b) { b.reserved1 = 1; });
  touch_refused("key_length", [](TouchBody& b) { b.key_length = 0; });
  touch_refused("length", [](TouchBody& b) { b.key_length = 2; });
}

TEST(ProtocolTest, EachBadFieldOfHintsAndRefusalsIsNamed) {
  const auto refused = [](absl::string_view field, auto change) {
    ExpectRefused(HintsFrame(Changed(AnyHints(), change), {1, 2}), field);
  };
  refused("count", [](HintsBody& b) { b.count = 0; });
  refused("count", [](HintsBody& b) { b.count = 1; });
  refused("count", [](HintsBody& b) { b.count = 3; });
  refused("count", [](HintsBody& b) { b.count = UINT32_MAX; });
  refused("reserved", [](HintsBody& b) { b.reserved = 1; });
  HintsBody most;
  most.count = kHintsMax;
  EXPECT_TRUE(ParseAny(HintsFrame(most, std::vector<uint64_t>(kHintsMax))).ok());
  most.count = kHintsMax + 1;
  ExpectRefused(HintsFrame(most, std::vector<uint64_t>(kHintsMax + 1)), "count");

  const auto refusal_refused = [](absl::string_view field, auto change) {
    ExpectRefused(RefusedFrame(Changed(AnyRefused(), change)), field);
  };
  refusal_refused("reason", [](RefusedBody& b) { b.reason = 0; });
  refusal_refused("reason", [](RefusedBody& b) { b.reason = kWireReasonMax + 1; });
  refusal_refused("shards", [](RefusedBody& b) { b.shards = 3; });
  refusal_refused("shard", [](RefusedBody& b) { b.shard = b.shards; });
  const auto of_key = [](RefusedBody& b) {
    b.reason = WireNumberOf(Reason::kAuthenticationFailed);
    b.shard = b.shards = 0;
  };
  EXPECT_TRUE(ParseAny(RefusedFrame(Changed(AnyRefused(), of_key))).ok());
  refusal_refused("shards", [&](RefusedBody& b) { of_key(b), b.shards = 4; });
  refusal_refused("shard", [&](RefusedBody& b) { of_key(b), b.shard = 3; });
}

TEST(ProtocolTest, AReportIsOfItsLengthAndHasNoSequence) {
  const std::string report = ReportFrame(AnyReport());
  ExpectRefused(WithByte(report, 16, 1), "sequence");
  std::string longer = report + std::string(4, '\0');
  ExpectRefused(WithByte(longer, 4, static_cast<uint8_t>(longer.size())), "length");
  const std::string shorter = report.substr(0, report.size() - 4);
  ExpectRefused(WithByte(shorter, 4, static_cast<uint8_t>(shorter.size())), "length");
}

TEST(ProtocolTest, EveryLatencyHasItsBucket) {
  EXPECT_EQ(LatencyBucketOf(0), 0u);
  for (size_t bucket = 0; bucket + 1 < kLatencyBuckets; ++bucket) {
    EXPECT_EQ(LatencyBucketOf(LatencyBucketMaxNs(bucket)), bucket);
    EXPECT_EQ(LatencyBucketOf(LatencyBucketMaxNs(bucket) + 1), bucket + 1);
  }
  EXPECT_EQ(LatencyBucketOf(UINT64_MAX), kLatencyBuckets - 1);
}

TEST(ProtocolTest, EachBadFieldOfAReplyIsNamed) {
  const auto refused = [](absl::string_view field, auto change) {
    ExpectRefused(ReplyFrame(Changed(AnyReply(), change), "value"), field);
  };
  refused("status", [](ReplyBody& b) { b.status = 17; });
  refused("data_length", [](ReplyBody& b) { b.data_length = 4; });
  refused("data_length", [](ReplyBody& b) { b.data_length = UINT32_MAX; });
  refused("value_length", [](ReplyBody& b) { b.value_length = 6; });
  refused("lease_ms", [](ReplyBody& b) { b.lease_ms = 1; });
  refused("reason", [](ReplyBody& b) { b.reason = 1; });  // of a success
  refused("reason", [](ReplyBody& b) { b.status = 9, b.reason = kWireReasonMax + 1; });
}

TEST(ProtocolTest, EveryReasonIsAccepted) {
  for (uint32_t reason = 0; reason <= kWireReasonMax; ++reason) {
    ReplyBody body;
    body.status = static_cast<uint32_t>(absl::StatusCode::kUnknown);
    body.reason = reason;
    EXPECT_TRUE(ParseAny(ReplyFrame(body, "")).ok()) << reason;
  }
}

TEST(ProtocolTest, ReasonsKeepTheirNumbers) {
  const Reason by_number[] = {Reason::kNone,
                              Reason::kValueTooLong,
                              Reason::kWrongVersion,
                              Reason::kNotANumber,
                              Reason::kOverflow,
                              Reason::kServerFull,
                              Reason::kForgotten,
                              Reason::kShuttingDown,
                              Reason::kValueChanged,
                              Reason::kVersionsUsedUp,
                              Reason::kAuthenticationFailed,
                              Reason::kAuthenticationRequired,
                              Reason::kChainFull,
                              Reason::kDiskFull,
                              Reason::kTooFewReplicas,
                              Reason::kWrongShard};
  ASSERT_EQ(std::size(by_number), kWireReasonMax + 1);
  for (uint32_t number = 0; number <= kWireReasonMax; ++number) {
    EXPECT_EQ(WireNumberOf(by_number[number]), number);
    EXPECT_EQ(ReasonOfWire(number), by_number[number]) << number;
  }
  EXPECT_EQ(kWireReasonMax, 15u);
}

}  // namespace
}  // namespace osprey::rdma

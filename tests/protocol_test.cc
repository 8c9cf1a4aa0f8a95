#include "rdma/protocol.h"

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"

namespace osprey::rdma {
namespace {

constexpr uint64_t kSession = 0x1122334455667788;
constexpr uint64_t kSequence = 0x0102030405060708;

std::string Join(std::vector<FrameBytes> pieces) {
  std::string frame;
  for (FrameBytes piece : pieces) {
    frame.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  return frame;
}

FrameBytes AsBytes(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// "00 01 ff" and the like, with spaces anywhere.
std::string FromHex(absl::string_view hex) {
  return absl::HexStringToBytes(absl::StrReplaceAll(hex, {{" ", ""}, {"\n", ""}}));
}

// Each message once, with no field zero that need not be.

HelloBody AnyHello() {
  HelloBody body;
  body.resume_session = 0xA1;
  body.resume_incarnation = 0xA2;
  body.liveness = {0x7F0000001000, 8, 0xA3, 0};
  return body;
}

WelcomeBody AnyWelcome() {
  WelcomeBody body;
  body.incarnation = 0xB1;
  body.region = {0x7F0000002000, 0x20000000, 0xB2, 0};
  body.requests_max = 30;
  body.resumed = 1;
  body.value_bytes_max = 1 << 20;
  body.eager_bytes_max = 8112;
  return body;
}

std::string HelloFrame(const HelloBody& body = AnyHello()) {
  return Join({Message<HelloBody>(Opcode::kHello, 0, 0, body, 0).bytes()});
}

std::string WelcomeFrame(const WelcomeBody& body = AnyWelcome()) {
  return Join({Message<WelcomeBody>(Opcode::kWelcome, kSession, 0, body, 0).bytes()});
}

PutBody EagerPut(absl::string_view key, absl::string_view value) {
  PutBody body;
  body.condition = static_cast<uint8_t>(WireCondition::kVersionIs);
  body.condition_version = 0xC1;
  body.key_length = static_cast<uint16_t>(key.size());
  body.value_length = value.size();
  return body;
}

PutBody RendezvousPut(absl::string_view key) {
  PutBody body;
  body.condition = static_cast<uint8_t>(WireCondition::kAbsent);
  body.rendezvous = 1;
  body.key_length = static_cast<uint16_t>(key.size());
  body.value_length = 0x10000;
  body.source = {0x7F0000003000, 0x10000, 0xC2, 0};
  body.value_hash = 0xC3;
  return body;
}

std::string PutFrame(const PutBody& body, absl::string_view payload) {
  const Message<PutBody> message(Opcode::kPut, kSession, kSequence, body, payload.size());
  return Join({message.bytes(), AsBytes(payload)});
}

std::string DeleteFrame(const DeleteBody& body, absl::string_view payload) {
  const Message<DeleteBody> message(Opcode::kDelete, kSession, kSequence, body, payload.size());
  return Join({message.bytes(), AsBytes(payload)});
}

DeleteBody AnyDelete() {
  DeleteBody body;
  body.condition = static_cast<uint8_t>(WireCondition::kVersionIs);
  body.key_length = 3;
  body.condition_version = 0xD1;
  return body;
}

std::string GetFrame(const GetBody& body, absl::string_view payload) {
  const Message<GetBody> message(Opcode::kGet, kSession, kSequence, body, payload.size());
  return Join({message.bytes(), AsBytes(payload)});
}

GetBody AnyGet() {
  GetBody body;
  body.key_length = 3;
  return body;
}

std::string ReplyFrame(const ReplyBody& body, absl::string_view payload) {
  const Message<ReplyBody> message(Opcode::kReply, kSession, kSequence, body, payload.size());
  return Join({message.bytes(), AsBytes(payload)});
}

ReplyBody AnyReply() {
  ReplyBody body;
  body.version = 0xE1;
  body.slot = 0xE2;
  body.data_length = 5;
  body.value_length = 5;
  return body;
}

std::string EmptyFrame(Opcode opcode, uint64_t sequence) {
  return Join({EmptyMessage(opcode, kSession, sequence).bytes()});
}

// What a receiver does with a frame of any opcode.
absl::Status ParseAny(absl::string_view text) {
  // A copy of the exact length on the heap, so that AddressSanitizer sees any step beyond it.
  const std::vector<std::byte> copy(AsBytes(text).begin(), AsBytes(text).end());
  const FrameBytes frame(copy);
  const absl::StatusOr<FrameHeader> header = ParseHeader(frame);
  if (!header.ok()) return header.status();
  switch (static_cast<Opcode>(header->opcode)) {
    case Opcode::kHello:
      return ParseHello(frame).status();
    case Opcode::kWelcome:
      return ParseWelcome(frame).status();
    case Opcode::kPut: {
      const absl::StatusOr<PutRequest> request = ParsePut(frame);
      if (!request.ok()) return request.status();
      // Touch what was promised to lie within the frame.
      const std::string key(request->key);
      const std::vector<std::byte> value(request->value.begin(), request->value.end());
      return absl::OkStatus();
    }
    case Opcode::kDelete: {
      const absl::StatusOr<DeleteRequest> request = ParseDelete(frame);
      if (request.ok()) const std::string key(request->key);
      return request.status();
    }
    case Opcode::kGet: {
      const absl::StatusOr<GetRequest> request = ParseGet(frame);
      if (request.ok()) const std::string key(request->key);
      return request.status();
    }
    case Opcode::kReply: {
      const absl::StatusOr<Reply> reply = ParseReply(frame);
      if (reply.ok()) const std::vector<std::byte> data(reply->data.begin(), reply->data.end());
      return reply.status();
    }
    case Opcode::kGoodbye:
    case Opcode::kPing:
    case Opcode::kStats:
      return ParseEmpty(frame);
  }
  ADD_FAILURE() << "ParseHeader let opcode " << int{header->opcode} << " through";
  return absl::InternalError("opcode");
}

struct Named {
  std::string name;
  std::string frame;
  std::string golden;
};

// Golden bytes: the header {magic, opcode, flags, length, session, sequence}, then the body field
// by field.
std::vector<Named> EveryMessage() {
  return {
      {"Hello", HelloFrame(),
       "4f56 01 00 48000000 0000000000000000 0000000000000000"
       "a100000000000000 a200000000000000"
       "00100000007f0000 0800000000000000 a3000000 00000000 0000000000000000"},
      {"Welcome", WelcomeFrame(),
       "4f56 02 00 50000000 8877665544332211 0000000000000000"
       "b100000000000000 00200000007f0000 0000002000000000 b2000000 00000000"
       "1e000000 01000000 0000100000000000 b01f0000 00000000"},
      {"Put", PutFrame(EagerPut("key", "value"), "keyvalue"),
       "4f56 10 00 58000000 8877665544332211 0807060504030201"
       "02 00 0300 00000000 0500000000000000 c100000000000000"
       "0000000000000000 0000000000000000 00000000 00000000 0000000000000000"
       "6b6579 76616c7565"},
      {"Put by rendezvous", PutFrame(RendezvousPut("key"), "key"),
       "4f56 10 00 53000000 8877665544332211 0807060504030201"
       "01 01 0300 00000000 0000010000000000 0000000000000000"
       "00300000007f0000 0000010000000000 c2000000 00000000 c300000000000000"
       "6b6579"},
      {"Delete", DeleteFrame(AnyDelete(), "key"),
       "4f56 11 00 2b000000 8877665544332211 0807060504030201"
       "02 00 0300 00000000 d100000000000000 6b6579"},
      {"Get", GetFrame(AnyGet(), "key"),
       "4f56 12 00 23000000 8877665544332211 0807060504030201"
       "0300 0000 00000000 6b6579"},
      {"Ping", EmptyFrame(Opcode::kPing, kSequence),
       "4f56 13 00 18000000 8877665544332211 0807060504030201"},
      {"Stats", EmptyFrame(Opcode::kStats, kSequence),
       "4f56 14 00 18000000 8877665544332211 0807060504030201"},
      {"Goodbye", EmptyFrame(Opcode::kGoodbye, 0),
       "4f56 05 00 18000000 8877665544332211 0000000000000000"},
      {"Reply", ReplyFrame(AnyReply(), "value"),
       "4f56 40 00 45000000 8877665544332211 0807060504030201"
       "00000000 05000000 e100000000000000 e200000000000000 0500000000000000 00000000 00000000"
       "76616c7565"},
  };
}

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

  const std::string put = PutFrame(EagerPut("key", "value"), "keyvalue");
  EXPECT_EQ(ParsePut(AsBytes(put))->key, "key");
  EXPECT_EQ(Join({ParsePut(AsBytes(put))->value}), "value");
  EXPECT_EQ(ParsePut(AsBytes(put))->body.condition_version, 0xC1);

  const std::string rendezvous = PutFrame(RendezvousPut("key"), "key");
  EXPECT_EQ(ParsePut(AsBytes(rendezvous))->key, "key");
  EXPECT_TRUE(ParsePut(AsBytes(rendezvous))->value.empty());
  EXPECT_EQ(ParsePut(AsBytes(rendezvous))->body.value_hash, 0xC3);

  EXPECT_EQ(ParseDelete(AsBytes(DeleteFrame(AnyDelete(), "key")))->body.condition_version, 0xD1);
  const std::string get = GetFrame(AnyGet(), "key");
  EXPECT_EQ(ParseGet(AsBytes(get))->key, "key");
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

// The frame is refused, and the refusal names the field.
void ExpectRefused(const std::string& frame, absl::string_view field) {
  const absl::Status status = ParseAny(frame);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
  EXPECT_NE(std::string(status.message()).find(absl::StrCat("malformed frame: ", field, " is ")),
            std::string::npos)
      << "expected " << field << " in: " << status;
}

std::string WithByte(std::string frame, size_t at, uint8_t value) {
  frame[at] = static_cast<char>(value);
  return frame;
}

TEST(ProtocolTest, EachBadFieldOfTheHeaderIsNamed) {
  const std::string ping = EmptyFrame(Opcode::kPing, kSequence);
  ExpectRefused("", "length");
  ExpectRefused(ping.substr(0, sizeof(FrameHeader) - 1), "length");
  ExpectRefused(WithByte(ping, 0, 0), "magic");
  for (uint8_t opcode : {0, 3, 4, 6, 15, 21, 63, 65, 255}) {
    ExpectRefused(WithByte(ping, 2, opcode), "opcode");
  }
  ExpectRefused(WithByte(ping, 3, 1), "flags");
  ExpectRefused(WithByte(ping, 4, 23), "length");
  ExpectRefused(WithByte(ping, 4, 25), "length");
  ExpectRefused(WithByte(ping, 7, 255), "length");
  ExpectRefused(Join({EmptyMessage(Opcode::kPing, 0, 1).bytes()}), "session");
  ExpectRefused(Join({EmptyMessage(Opcode::kPing, 1, 0).bytes()}), "sequence");
  ExpectRefused(Join({EmptyMessage(Opcode::kGoodbye, 1, 1).bytes()}), "sequence");
  ExpectRefused(Join({EmptyMessage(Opcode::kGoodbye, 0, 0).bytes()}), "session");
  ExpectRefused(Join({Message<HelloBody>(Opcode::kHello, 1, 0, AnyHello(), 0).bytes()}), "session");
  ExpectRefused(Join({Message<HelloBody>(Opcode::kHello, 0, 1, AnyHello(), 0).bytes()}),
                "sequence");
}

// A frame of any opcode that ends early or late, with a header that agrees about its length.
TEST(ProtocolTest, AFrameOfAnotherLengthThanItsContentsIsRefused) {
  for (const Named& message : EveryMessage()) {
    for (int delta = -static_cast<int>(message.frame.size() - sizeof(FrameHeader)); delta <= 9;
         ++delta) {
      if (delta == 0) continue;
      std::string frame = message.frame;
      frame.resize(message.frame.size() + delta);
      const uint32_t length = static_cast<uint32_t>(frame.size());
      std::memcpy(frame.data() + offsetof(FrameHeader, length), &length, sizeof(length));
      EXPECT_FALSE(ParseAny(frame).ok()) << message.name << " with " << delta << " bytes";
    }
  }
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
  refused("reserved", [](HelloBody& b) { b.reserved = 1; });
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
  refused("reserved", [](WelcomeBody& b) { b.reserved = 1; });
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
  get_refused("reserved0", [](GetBody& b) { b.reserved0 = 1; });
  get_refused("reserved1", [](GetBody& b) { b.reserved1 = 1; });
  get_refused("key_length", [](GetBody& b) { b.key_length = 0; });
  get_refused("key_length", [](GetBody& b) { b.key_length = 4; });
  get_refused("length", [](GetBody& b) { b.key_length = 2; });
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
  refused("reserved", [](ReplyBody& b) { b.reserved = 1; });
}

TEST(ProtocolTest, EveryBitOfReservedBytesIsChecked) {
  // Byte ranges of the golden frames that are reserved: {message, first, last}.
  struct Range {
    size_t message, first, last;
  };
  const std::vector<Named> messages = EveryMessage();
  for (const Range& range : {Range{0, 60, 71},
                             {1, 52, 55},
                             {1, 76, 79},
                             {2, 28, 31},
                             {2, 68, 71},
                             {4, 25, 25},
                             {4, 28, 31},
                             {5, 26, 31},
                             {9, 60, 63}}) {
    for (size_t at = range.first; at <= range.last; ++at) {
      for (int bit = 0; bit < 8; ++bit) {
        const std::string frame =
            WithByte(messages[range.message].frame, at, static_cast<uint8_t>(1 << bit));
        EXPECT_FALSE(ParseAny(frame).ok()) << messages[range.message].name << " byte " << at;
      }
    }
  }
}

uint64_t Seed() {
  const char* given = std::getenv("OSPREY_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 0) : std::random_device()();
  std::cerr << "seed (OSPREY_SEED): " << seed << "\n";
  return seed;
}

TEST(ProtocolTest, EveryTruncationIsRefused) {
  for (const Named& message : EveryMessage()) {
    for (size_t length = 0; length < message.frame.size(); ++length) {
      EXPECT_FALSE(ParseAny(message.frame.substr(0, length)).ok()) << message.name << " " << length;
    }
  }
}

// Under asan and ubsan: nothing is read beyond the frame, and what is accepted lies within it.
TEST(ProtocolTest, RandomChangesNeverLeadOutOfTheFrame) {
  std::mt19937_64 random(Seed());
  const std::vector<Named> messages = EveryMessage();
  int accepted = 0;
  for (int round = 0; round < 200000; ++round) {
    std::string frame = messages[random() % messages.size()].frame;
    for (uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
      // Small numbers and all ones are where lengths go wrong.
      const uint8_t bytes[] = {0, 1, 255, static_cast<uint8_t>(random()), 127, 128};
      frame[random() % frame.size()] = static_cast<char>(bytes[random() % 6]);
    }
    if (random() % 4 == 0) frame.resize(random() % (2 * frame.size()));
    if (random() % 2 == 0 && frame.size() >= sizeof(FrameHeader)) {
      const uint32_t length = static_cast<uint32_t>(frame.size());
      std::memcpy(frame.data() + offsetof(FrameHeader, length), &length, sizeof(length));
    }
    accepted += ParseAny(frame).ok() ? 1 : 0;
  }
  // Some changes (of a session, a key's byte) leave a frame valid: else this would test the header
  // alone.
  EXPECT_GT(accepted, 1000);
  EXPECT_LT(accepted, 199000);
}

TEST(ProtocolTest, RandomBytesAreRefused) {
  std::mt19937_64 random(Seed());
  for (int round = 0; round < 100000; ++round) {
    std::string frame(random() % 200, '\0');
    for (char& byte : frame) byte = static_cast<char>(random());
    EXPECT_FALSE(ParseAny(frame).ok());
  }
}

}  // namespace
}  // namespace osprey::rdma

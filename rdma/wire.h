// Every message between client and server, declared once. Little-endian, fixed structs, reserved
// bytes zero.
//
// A message is one frame: a FrameHeader, the fixed body of its opcode, then the bytes that the body
// announces (key, then value; or text). It is parsed by the functions of rdma/protocol.h, which
// check every length before it is used.
//
//   client                                       server
//   Hello {resume session?, liveness word}  -->
//                                           <--  Challenge {nonce}          (a server with a key)
//   Response {nonce, mac}                   -->                             (or it is Refused)
//                                           <--  Welcome {region, incarnation, session, limits}
//   Put / Delete / Increment / Append /
//   Expire / Touch / Get / Flush / Ping /
//   Stats, Hints and Reports (not answered) -->
//                                           <--  Reply {status, version, slot} (+ value or text)
//                                           <--  Goodbye (the server is about to end)
//
// Requests that are ready together may go as one Batch, a frame whose payload is whole frames one
// after the other; replies likewise. A Batch means what its frames would mean one by one, in that
// order: it saves SENDs and credits, it is no transaction, and its replies may come in any grouping
// and order: what has to do with a long value takes effect, and is answered, after what came later.
//
// Nothing is told of the region before Welcome, and a server with a key sends that only to a client
// that has the key, too. Requests carry (session, sequence): a request sent again after a broken
// connection, in the same session, is answered from the server's memory of results and not applied
// twice.
//
// Server time is in nanoseconds since 1970 by a clock of the server that never goes back; only its
// differences mean something to others. Expiries are such times.
//
// Heartbeats are no messages: each side READs a word of the other (the client the region header,
// the server the client's liveness word) when it has heard nothing for a while, which wakes neither
// process.

#ifndef OSPREY_RDMA_WIRE_H_
#define OSPREY_RDMA_WIRE_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace osprey::rdma {

// What any implementation of this protocol version must accept.
inline constexpr uint32_t kKeyBytesMax = 4096;
inline constexpr uint16_t kFrameMagic = 0x564F;  // "OV"
// Frames in one Batch: as many as a session may have unanswered.
inline constexpr uint32_t kBatchFramesMax = 128;
// Parts of the region, each a table of its own (index/partitions.h).
inline constexpr uint32_t kPartitionsMax = 64;
// Hints in one frame.
inline constexpr uint32_t kHintsMax = 512;
inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kMacBytes = 32;  // HMAC-SHA256

enum class Opcode : uint8_t {
  kHello = 1,
  kWelcome = 2,
  kChallenge = 3,
  kResponse = 4,
  kGoodbye = 5,
  kRefused = 6,
  kPut = 16,
  kDelete = 17,
  kGet = 18,
  kPing = 19,
  kStats = 20,
  kIncrement = 21,
  kAppend = 22,
  kFlush = 23,
  kExpire = 24,
  kTouch = 25,
  kBatch = 32,
  kHints = 33,
  kReport = 34,
  kReply = 64,
};

struct FrameHeader {
  uint16_t magic = kFrameMagic;
  uint8_t opcode = 0;
  uint8_t flags = 0;     // none is defined: zero
  uint32_t length = 0;   // bytes of the whole frame, this header included
  uint64_t session = 0;  // 0 in what comes before Welcome
  // Requests and replies: 1, 2, 3 … within a session. Else (Batch among them) 0.
  uint64_t sequence = 0;
};
static_assert(std::is_trivially_copyable_v<FrameHeader>);
static_assert(sizeof(FrameHeader) == 24);
static_assert(offsetof(FrameHeader, opcode) == 2);
static_assert(offsetof(FrameHeader, length) == 4);
static_assert(offsetof(FrameHeader, session) == 8);
static_assert(offsetof(FrameHeader, sequence) == 16);

// RemoteMemory (rdma/transport.h) as it travels.
struct WireMemory {
  uint64_t address = 0;
  uint64_t length = 0;
  uint32_t key = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(WireMemory) == 24);

struct HelloBody {
  uint64_t resume_session = 0;      // 0: a new session
  uint64_t resume_incarnation = 0;  // of the server that gave it
  WireMemory liveness;  // 8 bytes that the server may READ at any time to see that we live
  uint64_t reserved = 0;
};
static_assert(sizeof(HelloBody) == 48);

// From a server that has a key, to each Hello. How the key is used: rdma/authentication.h.
struct ChallengeBody {
  uint8_t server_nonce[kNonceBytes] = {};  // random, of this connection alone
};
static_assert(sizeof(ChallengeBody) == 32);

struct ResponseBody {
  uint8_t client_nonce[kNonceBytes] = {};  // random, of this connection alone
  uint8_t mac[kMacBytes] = {};             // that the client has the key
};
static_assert(sizeof(ResponseBody) == 64);

// Instead of Welcome; then the server disconnects.
struct RefusedBody {
  uint32_t reason = 0;  // WireReason
  uint32_t reserved = 0;
};
static_assert(sizeof(RefusedBody) == 8);

struct WelcomeBody {
  uint64_t incarnation = 0;   // this life of the server, random
  WireMemory region;          // the table; the region header stands at its first byte
  uint32_t requests_max = 0;  // requests that a session may have unanswered
  uint32_t resumed = 0;  // 1: FrameHeader.session is the one that Hello asked for. 0: it is new
  uint64_t value_bytes_max = 0;  // the longest value that this server takes
  // The longest key + value that may travel in the frame; longer values go by rendezvous.
  uint32_t eager_bytes_max = 0;
  uint32_t partitions = 1;  // equal parts of the region: a power of two, at most kPartitionsMax
  uint64_t server_time = 0;
  uint32_t wants_hints = 0;       // 1: the server evicts, and wants to know what is read
  uint32_t wants_reports = 0;     // 1: it is watched, and wants to know how GETs go
  uint8_t proof[kMacBytes] = {};  // that the server has the key; zero from one that has none
};
static_assert(sizeof(WelcomeBody) == 104);
static_assert(offsetof(WelcomeBody, region) == 8);
static_assert(offsetof(WelcomeBody, requests_max) == 32);
static_assert(offsetof(WelcomeBody, value_bytes_max) == 40);
static_assert(offsetof(WelcomeBody, partitions) == 52);
static_assert(offsetof(WelcomeBody, server_time) == 56);
static_assert(offsetof(WelcomeBody, wants_reports) == 68);
static_assert(offsetof(WelcomeBody, proof) == 72);

// The cause of a refusal, where its status alone could have several. The message says it to people;
// this says it to programs.
enum class WireReason : uint32_t {
  kNone = 0,            // the status says it all: OK, NOT_FOUND, ALREADY_EXISTS …
  kValueTooLong = 1,    // INVALID_ARGUMENT: longer than the server takes (kvserver --value-max)
  kWrongVersion = 2,    // FAILED_PRECONDITION: `version` is the present one
  kNotANumber = 3,      // FAILED_PRECONDITION: increment of what is no decimal number
  kOverflow = 4,        // OUT_OF_RANGE: the sum does not fit into 64 bits
  kServerFull = 5,      // RESOURCE_EXHAUSTED: there is no room; nothing was changed
  kForgotten = 6,       // UNKNOWN: a repeated write whose answer is no longer remembered
  kShuttingDown = 7,    // UNAVAILABLE: not applied, the server is about to end
  kValueChanged = 8,    // DATA_LOSS: the READ bytes are not those of value_hash; not applied
  kVersionsUsedUp = 9,  // RESOURCE_EXHAUSTED: no cas version is left; only a restart helps
  kAuthenticationFailed = 10,    // UNAUTHENTICATED: the client's key is another one
  kAuthenticationRequired = 11,  // UNAUTHENTICATED: the client has no key
  kChainFull = 12,  // RESOURCE_EXHAUSTED: too many keys share the key's line of the index
};
inline constexpr uint32_t kWireReasonMax = 12;

// A write happens only if this holds at its instant; else it is answered FAILED_PRECONDITION
// (kVersionIs) or ALREADY_EXISTS (kAbsent), with the present version.
enum class WireCondition : uint8_t { kNone = 0, kAbsent = 1, kVersionIs = 2 };

struct PutBody {
  uint8_t condition = 0;  // WireCondition
  // 0: the value follows the key. 1: it is READ from `source`, and checked against `value_hash`.
  uint8_t rendezvous = 0;
  uint16_t key_length = 0;
  uint32_t reserved = 0;
  uint64_t value_length = 0;
  uint64_t condition_version = 0;
  WireMemory source;        // rendezvous only, else zero; source.length == value_length
  uint64_t value_hash = 0;  // rendezvous only: XXH3-64 of the value (clients die and reuse buffers)
  uint64_t ttl_ns = 0;      // how long it lives from its instant on; 0: until it is deleted
};
static_assert(sizeof(PutBody) == 64);
static_assert(offsetof(PutBody, value_length) == 8);
static_assert(offsetof(PutBody, source) == 24);
static_assert(offsetof(PutBody, ttl_ns) == 56);

struct DeleteBody {
  uint8_t condition = 0;  // WireCondition: kNone or kVersionIs
  uint8_t reserved0 = 0;
  uint16_t key_length = 0;
  uint32_t reserved1 = 0;
  uint64_t condition_version = 0;
};
static_assert(sizeof(DeleteBody) == 16);

struct GetBody {  // GET by message, the last resort of a reader
  uint16_t key_length = 0;
  // 0: the value is not wanted (exists): the reply has its length, no data and no lease.
  uint8_t want_value = 1;
  uint8_t reserved0 = 0;
  uint32_t reserved1 = 0;
};
static_assert(sizeof(GetBody) == 8);
static_assert(offsetof(GetBody, want_value) == 2);

// Adds to a value that is a decimal number as people write it: an optional '-', then digits without
// leading zeros, within the range of int64. An absent key counts as 0. The reply has the new number
// as such a text, and its length in value_length.
struct IncrementBody {
  uint8_t condition = 0;  // WireCondition: kNone or kVersionIs
  uint8_t reserved0 = 0;
  uint16_t key_length = 0;
  uint32_t reserved1 = 0;
  int64_t by = 0;
  uint64_t condition_version = 0;
};
static_assert(sizeof(IncrementBody) == 24);
static_assert(offsetof(IncrementBody, by) == 8);

// Writes behind what the value is; an absent key counts as empty. What is added travels in the
// frame. The reply has the length of the whole new value in value_length.
struct AppendBody {
  uint8_t condition = 0;  // WireCondition: kNone or kVersionIs
  uint8_t reserved0 = 0;
  uint16_t key_length = 0;
  uint32_t reserved1 = 0;
  uint64_t value_length = 0;  // of what is added
  uint64_t condition_version = 0;
};
static_assert(sizeof(AppendBody) == 24);
static_assert(offsetof(AppendBody, value_length) == 8);

// Deletes a part of all keys: a bounded number of those whose cas version is at most
// `version_bound`. The client begins with {0, 0} and asks again with what each reply says, until
// the cursor is 0: {slot: the next cursor, version: the bound, value_length: keys deleted}. So
// whatever was written before the first request is gone after the last, and no write has to wait
// for all of it.
struct FlushBody {
  uint64_t cursor = 0;         // 0: from the beginning
  uint64_t version_bound = 0;  // 0: the newest version that there is
};
static_assert(sizeof(FlushBody) == 16);

// Gives a key another time to live, or none. Its version stays. The reply has the version and the
// expiry.
struct ExpireBody {
  uint8_t condition = 0;  // WireCondition: kNone or kVersionIs
  uint8_t reserved0 = 0;
  uint16_t key_length = 0;
  uint32_t reserved1 = 0;
  uint64_t ttl_ns = 0;  // from the request's instant on; 0: until it is deleted
  uint64_t condition_version = 0;
};
static_assert(sizeof(ExpireBody) == 24);
static_assert(offsetof(ExpireBody, ttl_ns) == 8);

// Counts as a use of the key for a server that evicts. The reply has the version and the expiry.
struct TouchBody {
  uint16_t key_length = 0;
  uint16_t reserved0 = 0;
  uint32_t reserved1 = 0;
};
static_assert(sizeof(TouchBody) == 8);

// What a client READ of late, or a sample of it: `count` words follow, which mean something to the
// index only. Not answered.
struct HintsBody {
  uint32_t count = 0;  // 1 … kHintsMax
  uint32_t reserved = 0;
};
static_assert(sizeof(HintsBody) == 8);

// How long GETs lasted, by powers of two from a quarter of a microsecond to a second.
inline constexpr size_t kLatencyBuckets = 24;
// The longest of a bucket. The last one has no bound.
inline constexpr uint64_t LatencyBucketMaxNs(size_t bucket) { return uint64_t{256} << bucket; }
inline constexpr size_t LatencyBucketOf(uint64_t ns) {
  const auto bucket = static_cast<size_t>(ns == 0 ? 0 : std::bit_width((ns - 1) >> 8));
  return bucket < kLatencyBuckets ? bucket : kLatencyBuckets - 1;
}

// What became of a client's GETs since it last told, if the server wants to know: it does not see
// them. At most once a second, along with requests if there are any; and when the client leaves.
// Not answered, and of no consequence. What counts too much for its field is told later.
struct ReportBody {
  uint64_t read_bytes = 0;  // that the READs asked for
  uint64_t latency_ns = 0;  // of the GETs in `latencies`, together
  uint32_t hits = 0;
  uint32_t misses = 0;
  uint32_t failures = 0;                     // GETs that ended neither so nor so
  uint32_t reads = 0;                        // posted for GETs
  uint32_t torn = 0;                         // of what was READ, what was being written
  uint32_t rpc_gets = 0;                     // GETs asked of the server, as the last resort
  uint32_t latencies[kLatencyBuckets] = {};  // a sample of the GETs, by how long they lasted
};
static_assert(sizeof(ReportBody) == 136);
static_assert(offsetof(ReportBody, hits) == 16);
static_assert(offsetof(ReportBody, latencies) == 40);

struct ReplyBody {
  uint32_t status = 0;  // absl::StatusCode
  // Bytes that follow: the value (GET), the new number (INCREMENT), the statistics (STATS), or,
  // when status is not OK, text.
  uint32_t data_length = 0;
  // Cas version: of what was written, or present when a condition failed; 0: none. FLUSH: the
  // bound.
  uint64_t version = 0;
  // Where the item is, as a hint that means something to the index only; 0: none. FLUSH: the next
  // cursor; 0: done.
  uint64_t slot = 0;
  // GET, INCREMENT, APPEND: of the whole value. Above data_length in a GET: too long to send (READ
  // it by `slot`), or not wanted. FLUSH: keys deleted.
  uint64_t value_length = 0;
  // GET of a value too long to send: the item's space is not reused for so long.
  uint32_t lease_ms = 0;
  uint32_t reason = 0;  // WireReason; kNone when status is OK
  // Read after the request had come.
  uint64_t server_time = 0;
  uint64_t expiry = 0;  // GET, EXPIRE, TOUCH: server time; 0: none
};
static_assert(sizeof(ReplyBody) == 56);
static_assert(offsetof(ReplyBody, value_length) == 24);
static_assert(offsetof(ReplyBody, reason) == 36);
static_assert(offsetof(ReplyBody, server_time) == 40);
static_assert(offsetof(ReplyBody, expiry) == 48);

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_WIRE_H_

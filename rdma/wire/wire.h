// Every message between client and server. Little-endian, fixed structs, reserved bytes zero.
//
// A message is one frame: a FrameHeader, the fixed body of its opcode, then the payload that the
// body announces (key, then value; or text). The functions of rdma/wire/protocol.h parse it. They
// check every length before it is used.
//
//   client                                       server
//   Hello {shard, resume session?, liveness word}  -->
//                                           <--  Challenge {nonce}          (a server with a key)
//   Response {nonce, mac}                   -->                             (or it is Refused)
//                                           <--  Welcome {region, incarnation, session, limits}
//                                                (or DisconnectNotice {the cluster's servers}, of one
//                                                that does not serve shard 0 now)
//   Put / Delete / Increment / Append /
//   Expire / Touch / Get / Flush / Ping /
//   Stats, Servers, Hints, Reports          -->                             (the last two are not answered)
//                                           <--  Reply {status, version, slot} (+ value or text)
//                                           <--  DisconnectNotice (the server is about to end)
//
// Requests that are ready together may go as one Batch, a frame whose payload is a sequence of
// whole frames; replies likewise. A Batch means the same as its frames one by one, in that order.
// It saves SENDs and credits, and is no transaction. Its replies may come in any grouping and
// order. A request with a long value may take effect, and be answered, after later requests.
//
// The server sends nothing about the region before Welcome. A server with a key sends Welcome only
// to a client that has proved the key. Requests carry (session, sequence). A request repeated in
// the same session, after a broken connection, is not applied twice: the server answers it from its
// stored results. A session continues in the same incarnation, or in a later one with the same
// data_id.
//
// Server time is in nanoseconds since 1970, by a clock of the server that never goes back. Only
// differences are meaningful to others. Expiries are such times.
//
// Heartbeats are no messages. After a silence, each side READs a word of the other, which wakes
// neither process. The client READs the region header, the server the client's liveness word.

#ifndef OSPREY_RDMA_WIRE_WIRE_H_
#define OSPREY_RDMA_WIRE_WIRE_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace osprey::rdma {

// Every implementation of this protocol version must accept keys of this length.
inline constexpr uint32_t kKeyBytesMax = 4096;
inline constexpr uint16_t kFrameMagic = 0x564F;  // "OV"
// Frames in one Batch: as many as a session may have unanswered.
inline constexpr uint32_t kBatchFramesMax = 128;
// Parts of the region, each a table of its own (index/layout/partitions.h).
inline constexpr uint32_t kPartitionsMax = 64;
// Shards of a cluster, a power of two (rdma/wire/shard.h).
inline constexpr uint32_t kShardsMax = 64;
// Hints in one frame.
inline constexpr uint32_t kHintsMax = 512;
inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kMacBytes = 32;  // HMAC-SHA256

enum class Opcode : uint8_t {
  kHello = 1,
  kWelcome = 2,
  kChallenge = 3,
  kResponse = 4,
  kDisconnectNotice = 5,
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
  kServers = 26,
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
  // Requests and replies: 1, 2, 3 … within a session. Other frames, Batch among them: 0.
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
  WireMemory liveness;  // 8 bytes that the server may READ at any time, to detect that the client
                        // lives
  uint64_t resume_data_id = 0;  // of the Welcome of that session; 0: data in memory, or no session
  // The shard that the client requests, and the number of the cluster's shards, or 0: unknown. A server
  // of another shard, or of another number, answers with Refused.
  uint32_t shard = 0;
  uint32_t shards = 0;
};
static_assert(sizeof(HelloBody) == 56);
static_assert(offsetof(HelloBody, resume_data_id) == 40);
static_assert(offsetof(HelloBody, shard) == 48);

// From a server that has a key, in reply to each Hello. rdma/authentication.h describes the use of
// the key.
struct ChallengeBody {
  uint8_t server_nonce[kNonceBytes] = {};  // random, of this connection alone
};
static_assert(sizeof(ChallengeBody) == 32);

struct ResponseBody {
  uint8_t client_nonce[kNonceBytes] = {};  // random, of this connection alone
  uint8_t mac[kMacBytes] = {};             // proof that the client has the key
};
static_assert(sizeof(ResponseBody) == 64);

// Instead of Welcome. The server then disconnects.
struct RefusedBody {
  uint32_t reason = 0;  // ReasonRow::wire (rdma/reasons.h)
  // kWrongShard: the server's shard, and the number of its cluster's. Else 0.
  uint16_t shard = 0;
  uint16_t shards = 0;
};
static_assert(sizeof(RefusedBody) == 8);
static_assert(offsetof(RefusedBody, shard) == 4);

// In a DisconnectNotice instead of Welcome: a server of a cluster that does not serve shard 0 now tells where its
// servers are. The addresses follow, as the reply to Servers has them. The header's session is the cluster's data_id.
// Clients that do not read it take the server as one that is about to end, and go on to the next address.
struct ElsewhereBody {
  uint32_t servers_length = 0;
  uint32_t reserved = 0;
  uint8_t proof[kMacBytes] = {};  // proof that the server has the key; zero without a key
};
static_assert(sizeof(ElsewhereBody) == 40);
static_assert(offsetof(ElsewhereBody, proof) == 8);

struct WelcomeBody {
  uint64_t incarnation = 0;      // identifies this run of the server; random
  WireMemory region;             // the table; the region header stands at its first byte
  uint32_t requests_max = 0;     // requests that a session may have unanswered
  uint32_t resumed = 0;          // 1: FrameHeader.session is the one of Hello. 0: it is new
  uint64_t value_bytes_max = 0;  // the longest value that this server takes
  // The longest key + value that may travel in the frame; longer values go by rendezvous.
  uint32_t eager_bytes_max = 0;
  uint32_t partitions = 1;  // equal parts of the region: a power of two, at most kPartitionsMax
  uint64_t server_time = 0;
  uint32_t wants_hints = 0;    // 1: the server evicts, and requests Hints
  uint16_t wants_reports = 0;  // 1: the server has a metrics reader, and requests Reports
  // 1: the server is in a cluster. What a client READs counts only under a lease
  // (index/layout/serving_record.h), since another server may have taken over.
  uint16_t in_cluster = 0;
  // Identifies the data directory, or the cluster, whose keys and sessions outlive an incarnation.
  // 0: data in memory of one server.
  uint64_t data_id = 0;
  // The cluster's shards, a power of two, at most kShardsMax, and the one that this server has. 1 and
  // 0 outside of such clusters.
  uint32_t shards = 1;
  uint32_t shard = 0;
  uint8_t proof[kMacBytes] = {};  // proof that the server has the key; zero without a key
};
static_assert(sizeof(WelcomeBody) == 120);
static_assert(offsetof(WelcomeBody, region) == 8);
static_assert(offsetof(WelcomeBody, requests_max) == 32);
static_assert(offsetof(WelcomeBody, value_bytes_max) == 40);
static_assert(offsetof(WelcomeBody, partitions) == 52);
static_assert(offsetof(WelcomeBody, server_time) == 56);
static_assert(offsetof(WelcomeBody, wants_reports) == 68);
static_assert(offsetof(WelcomeBody, in_cluster) == 70);
static_assert(offsetof(WelcomeBody, data_id) == 72);
static_assert(offsetof(WelcomeBody, shards) == 80);
static_assert(offsetof(WelcomeBody, proof) == 88);

// Condition of a write. If it does not hold when the write is applied, the reply is
// FAILED_PRECONDITION (kVersionIs) or ALREADY_EXISTS (kAbsent), with the present version.
enum class WireCondition : uint8_t { kNone = 0, kAbsent = 1, kVersionIs = 2 };

struct PutBody {
  uint8_t condition = 0;  // WireCondition
  // 0: the value follows the key. 1: the server READs it from `source` and checks it against
  // `value_hash`.
  uint8_t rendezvous = 0;
  uint16_t key_length = 0;
  uint32_t reserved = 0;
  uint64_t value_length = 0;
  uint64_t condition_version = 0;
  WireMemory source;        // rendezvous only, else zero; source.length == value_length
  uint64_t value_hash = 0;  // rendezvous only: XXH3-64 of the value (clients die and reuse buffers)
  uint64_t ttl_ns = 0;      // time to live from the write on; 0: until it is deleted
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
  // 0: exists. The reply then has the value's length, no data and no lease.
  uint8_t want_value = 1;
  uint8_t reserved0 = 0;
  uint32_t reserved1 = 0;
};
static_assert(sizeof(GetBody) == 8);
static_assert(offsetof(GetBody, want_value) == 2);

// Adds to a decimal number: an optional '-', then digits without leading zeros, within the range of
// int64. An absent key counts as 0. The reply has the new number in the same form, and its length
// in value_length.
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

// Appends to the value; an absent key counts as empty. The appended bytes travel in the frame. The
// reply has the length of the whole new value in value_length.
struct AppendBody {
  uint8_t condition = 0;  // WireCondition: kNone or kVersionIs
  uint8_t reserved0 = 0;
  uint16_t key_length = 0;
  uint32_t reserved1 = 0;
  uint64_t value_length = 0;  // of the appended bytes
  uint64_t condition_version = 0;
};
static_assert(sizeof(AppendBody) == 24);
static_assert(offsetof(AppendBody, value_length) == 8);

// Deletes a part of all keys: a bounded number of those whose cas version is at most
// `version_bound`. The client begins with {0, 0} and repeats the request with the fields of each
// reply, until the cursor is 0. Those fields are {slot: the next cursor, version: the bound,
// value_length: keys deleted}. Everything written before the first request is gone after the last,
// and no write waits for the whole.
struct FlushBody {
  uint64_t cursor = 0;         // 0: from the beginning
  uint64_t version_bound = 0;  // 0: the newest version
};
static_assert(sizeof(FlushBody) == 16);

// Sets or removes a key's time to live. Its version stays. The reply has the version and the
// expiry.
struct ExpireBody {
  uint8_t condition = 0;  // WireCondition: kNone or kVersionIs
  uint8_t reserved0 = 0;
  uint16_t key_length = 0;
  uint32_t reserved1 = 0;
  uint64_t ttl_ns = 0;  // from the request on; 0: until it is deleted
  uint64_t condition_version = 0;
};
static_assert(sizeof(ExpireBody) == 24);
static_assert(offsetof(ExpireBody, ttl_ns) == 8);

// Counts as a use of the key in a server that evicts. The reply has the version and the expiry.
struct TouchBody {
  uint16_t key_length = 0;
  uint16_t reserved0 = 0;
  uint32_t reserved1 = 0;
};
static_assert(sizeof(TouchBody) == 8);

// Recent READs of a client, or a sample of them. `count` words follow, which only the index
// interprets. Not answered.
struct HintsBody {
  uint32_t count = 0;  // 1 … kHintsMax
  uint32_t reserved = 0;
};
static_assert(sizeof(HintsBody) == 8);

// Durations of GETs, by powers of two from a quarter of a microsecond to a second.
inline constexpr size_t kLatencyBuckets = 24;
// The longest duration of a bucket. The last one has no bound.
inline constexpr uint64_t LatencyBucketMaxNs(size_t bucket) { return uint64_t{256} << bucket; }
inline constexpr size_t LatencyBucketOf(uint64_t ns) {
  const auto bucket = static_cast<size_t>(ns == 0 ? 0 : std::bit_width((ns - 1) >> 8));
  return bucket < kLatencyBuckets ? bucket : kLatencyBuckets - 1;
}

// Results of a client's GETs since its last report, if the server requests them, since it cannot
// see them. Sent at most once a second, with requests if there are any, and when the client
// disconnects. Not answered, and without effect on data. Counts beyond a field's range go into the
// next report.
struct ReportBody {
  uint64_t read_bytes = 0;  // requested by READs
  uint64_t latency_ns = 0;  // sum over the GETs in `latencies`
  uint32_t hits = 0;
  uint32_t misses = 0;
  uint32_t failures = 0;                     // GETs that were neither hit nor miss
  uint32_t reads = 0;                        // posted for GETs
  uint32_t torn = 0;                         // torn READs
  uint32_t rpc_gets = 0;                     // GETs by message, the last resort
  uint32_t latencies[kLatencyBuckets] = {};  // a sample of the GETs, by duration
};
static_assert(sizeof(ReportBody) == 136);
static_assert(offsetof(ReportBody, hits) == 16);
static_assert(offsetof(ReportBody, latencies) == 40);

struct ReplyBody {
  uint32_t status = 0;  // absl::StatusCode
  // Bytes that follow: the value (GET), the new number (INCREMENT), the statistics (STATS). With a
  // status that is not OK: text.
  uint32_t data_length = 0;
  // Cas version: the written one, or the present one after a failed condition; 0: none. FLUSH: the
  // bound.
  uint64_t version = 0;
  // The item's location, as a hint for the index; 0: none. FLUSH: the next cursor; 0: done.
  uint64_t slot = 0;
  // GET, INCREMENT, APPEND: length of the whole value. If it exceeds data_length in a GET, the
  // value is too long to send (READ it by `slot`) or was not requested. FLUSH: keys deleted.
  uint64_t value_length = 0;
  // GET of a value too long to send: the item's space is not reused for this time.
  uint32_t lease_ms = 0;
  uint32_t reason = 0;  // ReasonRow::wire (rdma/reasons.h); 0 if status is OK
  // Taken after the request had arrived.
  uint64_t server_time = 0;
  uint64_t expiry = 0;  // GET, EXPIRE, TOUCH: server time; 0: none
};
static_assert(sizeof(ReplyBody) == 56);
static_assert(offsetof(ReplyBody, value_length) == 24);
static_assert(offsetof(ReplyBody, reason) == 36);
static_assert(offsetof(ReplyBody, server_time) == 40);
static_assert(offsetof(ReplyBody, expiry) == 48);

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_WIRE_WIRE_H_

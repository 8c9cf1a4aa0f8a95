// The Osprey client: GETs by one-sided READs of the server's memory, writes by message.
//
//   auto client = osprey::Client::Connect("rdma://10.0.0.7:7411");
//   if (!client.ok()) { … client.status() says what is wrong and what helps … }
//   absl::StatusOr<uint64_t> version = (*client)->Put("planet", "saturn");
//   absl::StatusOr<osprey::Value> value = (*client)->Get("planet");
//
// Every operation takes effect at one instant between its call and its return (linearizable). This
// holds for a GET that finds nothing as well. An operation ends by its deadline at the latest
// (except scans: see ScanOptions).
//
// There are two ways to use it, and a program may mix them:
//   blocking      Get, Put, Delete … return the result.
//   asynchronous  Start… begins an operation and returns; its callback runs inside a later Poll,
//                 Wait or blocking operation. Many may be in flight; the READs of all that are
//                 ready go out as one chain.
//
// Thread rule: a Client belongs to one thread at a time. Callbacks run on that thread and may start
// operations; they may not call Poll, Wait or a blocking operation, nor destroy the Client.
//
// Connections: the client reconnects to a broken or restarted server with backoff, at the next
// address if there are several. Operations wait
// meanwhile, until their deadlines. The client repeats a GET freely. It repeats a write only if the
// server can recognise the repetition; otherwise the write fails with UNKNOWN (below).
//
// Shards: the keys of a cluster may be divided among shards, each with servers of its own. The client
// then has a connection to each, and sends an operation to the shard of its key. Operations on all
// keys go to all shards. A shard without a server delays only operations on its own keys, and those
// on all keys.
//
// Errors, all operations:
//   INVALID_ARGUMENT    An invalid key, value, condition or deadline; the message names the bound.
//                       Not applied.
//   DEADLINE_EXCEEDED   Not done in time. A write: not applied if the message says so, else it may
//                       still be applied, once.
//   UNAVAILABLE         No connection by the deadline. A write was not applied.
//   UNKNOWN             (writes) The connection broke, and the server that had the request is gone
//                       or has forgotten the session. The write may or may not have been applied. A
//                       restarted server without a data directory is empty.
//   RESOURCE_EXHAUSTED  The server is full (not applied), or too many operations or bytes are in
//                       flight here (not started).
//   CANCELLED           The Client was closed first. A write: the message says whether it may have
//                       been applied.
//   INTERNAL            The server's answer is invalid.
// and where noted: NOT_FOUND, ALREADY_EXISTS, FAILED_PRECONDITION, OUT_OF_RANGE. ReasonOf
// identifies the failure (client/reasons.h); MayBeApplied tells whether a failed write may have
// been applied.

#ifndef OSPREY_CLIENT_CLIENT_H_
#define OSPREY_CLIENT_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/buffer.h"
#include "client/reasons.h"

namespace osprey {

namespace client {
struct UserMemory;
}

// How a blocking call, or Client::Wait, waits.
enum class WaitMode {
  kSpin,      // polls without pause: the lowest latency, one core
  kAdaptive,  // polls for Options::spin, then sleeps until something happens
  kEvent,     // sleeps at once
};

struct Options {
  absl::Duration connect_timeout = absl::Seconds(5);
  // Connect waits up to connect_timeout if no server listens yet. False: it fails at once instead.
  // A connection that broke later is made again in either case.
  bool await_listener = true;
  // The default of every operation. At most kDeadlineMax.
  absl::Duration deadline = absl::Seconds(1);
  WaitMode wait = WaitMode::kAdaptive;
  absl::Duration spin = absl::Microseconds(50);
  // Operations in flight: the depth of the pipeline. Above it Start… fails with RESOURCE_EXHAUSTED.
  // At most 65536. Client::set_operations_max changes it. Of each shard.
  int operations_max = 256;
  // Reconnect: the first and the last pause. Each pause doubles the one before, with jitter.
  absl::Duration backoff_first = absl::Milliseconds(10);
  absl::Duration backoff_last = absl::Seconds(1);
  // Registered (over RDMA: pinned) memory for READs, and as much again for values on their way to
  // the server. It is allocated on demand. At least 4 MiB. While a put lasts, its value needs its
  // length, rounded up to a power of two (PutFrom: nothing). A get needs 1 MiB at most. Of each shard.
  uint64_t buffer_bytes_max = uint64_t{64} << 20;
  // The location cache: memory for the locations of items, 8 bytes a key. A GET of a cached key
  // takes one READ instead of two. It is committed on use; rounded down to a power of two. 0: none.
  // At most 1 TiB. It is divided among the shards.
  uint64_t slot_cache_bytes = uint64_t{16} << 20;
  // The key that the server must have, too, or the path of its file. The file holds 32 B to 4 KiB,
  // only its owner may read it, and Connect reads it once. At most one of the two may be set. With
  // neither, the client connects to no server that requires a key. With one, it connects only to a
  // server that proves to have the same.
  std::string auth_key_file;
  std::string auth_key;
};

constexpr absl::Duration kDeadlineMax() { return absl::Seconds(60); }
// 100 years.
constexpr absl::Duration kTtlMax() { return absl::Hours(24 * 36525); }

struct Value {
  std::string bytes;
  // The version of the write that made the value. It never repeats, not even after a restart of the
  // server (except by a chance of 2^-47). Below 2^48.
  uint64_t version = 0;
  // A lower bound of its time to live when it was read. InfiniteDuration: it lives until it is
  // deleted.
  absl::Duration ttl = absl::InfiniteDuration();
};

// A step of a traced GET, for people.
struct TraceStep {
  absl::Duration at;   // since the GET began
  std::string what;    // shard, key, lease, cache, READ, landed, checked, pause, message,
                       // connection; hit, miss, error
  std::string detail;  // "offset=0x1040 length=256, the key's window", for instance
};

// The result of an increment: the value, and the version of that write.
struct Number {
  int64_t value = 0;
  uint64_t version = 0;
};

// For MultiPut.
struct KeyValue {
  absl::string_view key;
  absl::string_view value;
};

// Conditions and lifetime of a write.
struct WriteOptions {
  // Only if the key is absent, otherwise ALREADY_EXISTS. For put alone.
  bool if_absent = false;
  // Not 0: only if this is the present version, else FAILED_PRECONDITION; NOT_FOUND if absent.
  uint64_t if_version = 0;
  // How long the key lives, from the start of the write's execution at the server. Zero or
  // InfiniteDuration: until it is deleted, whatever time it had before. At most kTtlMax, in steps
  // of about 0.1 ms, never shorter. For put alone: increment and append keep it, and Expire changes
  // it.
  absl::Duration ttl = absl::ZeroDuration();
  // Zero: Options::deadline.
  absl::Duration deadline = absl::ZeroDuration();
};

// Which keys a scan returns, and how.
struct ScanOptions {
  // Only keys with this prefix.
  std::string prefix;
  // A page ends at this number of items, or at the end of a shard. At least 1. It has more only if
  // keys share one 64-bit hash.
  uint64_t limit = 1000;
  // With the values. Long ones (over 64 KiB) are fetched one by one.
  bool values = false;
  // Longer values are left out, and has_value is false: this bounds the memory of a page with many
  // of them.
  uint64_t value_bytes_max = UINT64_MAX;
  // Zero: Options::deadline. A page that is incomplete by then is returned as it is. With values,
  // to fetch the long ones takes up to as much again.
  absl::Duration deadline = absl::ZeroDuration();
};

struct ScanItem {
  std::string key;
  std::string value;  // ScanOptions::values
  bool has_value = false;
  bool is_inline = false;  // it lies in the index and takes no other memory
  uint64_t value_length = 0;
  uint64_t version = 0;
  // A lower bound of its time to live when it was found, as in Value.
  absl::Duration ttl = absl::InfiniteDuration();
};

struct ScanPage {
  std::vector<ScanItem> items;  // in no order; may be empty before the end
  // The cursor of the next page, printable; "": this was the last page.
  std::string cursor;
};

// Counts since Connect, of all shards. They are plain numbers, read on the Client's thread.
struct Counters {
  uint64_t gets = 0;
  uint64_t hits = 0;
  uint64_t misses = 0;
  uint64_t writes = 0;
  uint64_t reads = 0;        // one-sided READs posted for GETs
  uint64_t read_bytes = 0;   // bytes requested by those
  uint64_t scan_reads = 0;   // one-sided READs posted for scans
  uint64_t torn = 0;         // records rejected because of a concurrent write: normal
  uint64_t retries = 0;      // lookups, or parts of them, done again: torn, moved, reconnected
  uint64_t hints = 0;        // GETs that began at a cached location
  uint64_t stale_hints = 0;  // READs of items that had left the cached location
  uint64_t rpc_gets = 0;     // GETs sent to the server as messages, when READs did not succeed
  uint64_t messages = 0;     // requests sent
  uint64_t frames = 0;       // SENDs that carried them: those that are ready together share one
  uint64_t told_hits = 0;    // hits reported to a server that evicts
  uint64_t connects = 0;     // connections made
  // Of a server in a cluster, where READs count only under a lease (client/README.md).
  uint64_t leases = 0;           // leases gained where there was none
  uint64_t lease_reads = 0;      // one-sided READs posted for leases
  uint64_t uncovered_reads = 0;  // answers of READs that came without a lease, and were not given
  uint64_t unleased_gets = 0;    // GETs sent as messages because there was no lease
  double reads_per_get() const {
    return gets == 0 ? 0 : static_cast<double>(reads) / static_cast<double>(gets);
  }
};

// More than 40 methods, which are its interface: each operation has a blocking form and an
// asynchronous one. The work is done by client::ShardEngines and their parts.
class Client {
 public:
  // `uri` is the server's address, or a list of up to 16: servers of a cluster. One that runs is enough,
  // whatever it serves: it leads to the others. They share a scheme, written once:
  // "rdma://a:7411,b:7411", "shm:///p1,/p2". The client tries them in turn, now and whenever the
  // connection is lost. They are addresses of shard 0, from which those of the other shards follow
  // (rdma::ShardAddress). Connect awaits shard 0, and one attempt at each other shard, all at once and
  // within connect_timeout. It succeeds also if those fail, unless a later attempt would as well.
  // Errors: those of rdma/errors.h, each with its fix in the message, and what each address said;
  // INVALID_ARGUMENT for `uri` and options.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(absl::string_view uri,
                                                         const Options& options = {});

  // Ends operations in flight (CANCELLED) and disconnects. When it returns, no READ can land in
  // this process's memory.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // --- Blocking. `deadline` zero means Options::deadline.

  // NOT_FOUND when absent.
  absl::StatusOr<Value> Get(absl::string_view key, absl::Duration deadline = absl::ZeroDuration());
  // As Get, but it avoids fetching the value where possible.
  absl::StatusOr<bool> Exists(absl::string_view key,
                              absl::Duration deadline = absl::ZeroDuration());
  // The version of the write.
  absl::StatusOr<uint64_t> Put(absl::string_view key, absl::string_view value,
                               const WriteOptions& options = {});
  // NOT_FOUND when absent. if_absent is INVALID_ARGUMENT, here and below.
  absl::StatusOr<uint64_t> Delete(absl::string_view key, const WriteOptions& options = {});
  // Adds `by` (it may be negative) to a value that is a decimal number, in the form of Redis and
  // memcached: an optional '-', digits without leading zeros, within the range of int64. An absent
  // key counts as 0. FAILED_PRECONDITION if the value has another form, OUT_OF_RANGE if the sum
  // leaves the range of int64: the value stays as it is.
  absl::StatusOr<Number> Increment(absl::string_view key, int64_t by = 1,
                                   const WriteOptions& options = {});
  // Appends to the value; an absent key counts as empty. Key and value together must fit one
  // message (some 8 KB): INVALID_ARGUMENT names the bound.
  absl::StatusOr<uint64_t> Append(absl::string_view key, absl::string_view value,
                                  const WriteOptions& options = {});
  // Gives a present key `ttl` to live from now on (InfiniteDuration: until it is deleted, as
  // Persist). Its value and version stay; returns the version. NOT_FOUND when absent.
  // INVALID_ARGUMENT for a `ttl` that is not above zero and at most kTtlMax.
  absl::StatusOr<uint64_t> Expire(absl::string_view key, absl::Duration ttl,
                                  const WriteOptions& options = {});
  absl::StatusOr<uint64_t> Persist(absl::string_view key, const WriteOptions& options = {});
  // A lower bound of the key's time to live. InfiniteDuration: it lives until it is deleted.
  // NOT_FOUND when absent. As Exists, a READ.
  absl::StatusOr<absl::Duration> Ttl(absl::string_view key,
                                     absl::Duration deadline = absl::ZeroDuration());
  // Counts as a use of the key, for a server that evicts unused keys. Unlike Get it is a message.
  // It changes nothing else and returns the version. NOT_FOUND when absent.
  absl::StatusOr<uint64_t> Touch(absl::string_view key,
                                 absl::Duration deadline = absl::ZeroDuration());
  // Deletes every key that is present at the start and not written again before the flush reaches
  // it. Returns the number of deleted keys. It has no single instant: other operations run between
  // its parts. If it fails in some shards, MayBeApplied is true.
  absl::StatusOr<uint64_t> Flush(absl::Duration deadline = absl::ZeroDuration());

  // Many keys: one operation for each, with its own result in the order of the arguments, and one
  // deadline for all. Any number of keys is allowed. At most Options::operations_max are in flight
  // at once; their READs or requests go out together.
  std::vector<absl::StatusOr<Value>> MultiGet(absl::Span<const absl::string_view> keys,
                                              absl::Duration deadline = absl::ZeroDuration());
  std::vector<absl::StatusOr<uint64_t>> MultiPut(absl::Span<const KeyValue> items,
                                                 const WriteOptions& options = {});
  std::vector<absl::StatusOr<uint64_t>> MultiDelete(absl::Span<const absl::string_view> keys,
                                                    const WriteOptions& options = {});

  // --- Without a copy (client/buffer.h).

  // Registered memory of `bytes`, zeroed. Over RDMA it is pinned: RESOURCE_EXHAUSTED if
  // RLIMIT_MEMLOCK forbids it. Buffers do not count against Options::buffer_bytes_max. Over shm a
  // server limits the memories that a client may expose at a time, to 16 at most. The client then
  // withdraws the one used least recently. A PutFrom waits while all of them are in use.
  absl::StatusOr<Buffer> AllocateBuffer(size_t bytes);
  // Registers memory that the caller owns. It must stay until the Buffer is gone and no operation
  // uses it. Over RDMA alone: over shm FAILED_PRECONDITION, use AllocateBuffer.
  absl::StatusOr<Buffer> RegisterBuffer(std::byte* data, size_t bytes);
  // As Get, into `buffer` from `offset` on. Values of over 64 KiB land there directly, shorter ones
  // are copied. Bytes behind the buffer's end are not touched; its bytes from `offset` on are lost
  // in any case. When it returns, no READ can land there any more: if it is late, it breaks the
  // connection to ensure this. OUT_OF_RANGE (Reason::kBufferTooSmall) if the value does not fit:
  // BytesNeeded(status) returns its length.
  absl::StatusOr<ValueInfo> GetInto(absl::string_view key, Buffer& buffer, size_t offset = 0,
                                    absl::Duration deadline = absl::ZeroDuration());
  // As Put of `length` bytes of `buffer` from `offset` on. The server fetches them from there, so
  // they must not change until this returns (otherwise DATA_LOSS, not applied).
  absl::StatusOr<uint64_t> PutFrom(absl::string_view key, const Buffer& buffer, size_t offset,
                                   size_t length, const WriteOptions& options = {});

  // --- All keys, by READs alone: the server's CPU takes no part.

  // The next page of the scan of `cursor`; "" begins a scan:
  //
  //   std::string cursor;
  //   do {
  //     absl::StatusOr<osprey::ScanPage> page = client->Scan(cursor, options);
  //     … page->items …
  //     cursor = page->cursor;
  //   } while (!cursor.empty());
  //
  // A key that is present from the first call to the end of the last is found at least once,
  // despite writes and growth. A key that comes or goes meanwhile may be found or not. Each item
  // was present, with that version and value, at some instant of the scan. A cursor is valid until
  // the server ends, with a data directory also after: else FAILED_PRECONDITION
  // (Reason::kStaleCursor).
  absl::StatusOr<ScanPage> Scan(absl::string_view cursor, const ScanOptions& options = {});
  // The approximate number of keys. It is exact while none is written.
  absl::StatusOr<uint64_t> Count(absl::Duration deadline = absl::ZeroDuration());

  // The round-trip time of a message, to all shards at once.
  absl::StatusOr<absl::Duration> Ping(absl::Duration deadline = absl::ZeroDuration());
  // The time of one READ of `bytes` (1 to kMeasureBytesMax) at the beginning of shard 0's region. It is the
  // time that the device, or shared memory, takes for a Get on the same connection. It takes the
  // path of a Get's READ, without lookup, check or copy. INVALID_ARGUMENT for other sizes.
  static constexpr uint32_t kMeasureBytesMax = 64 << 10;
  absl::StatusOr<absl::Duration> MeasureRead(uint32_t bytes,
                                             absl::Duration deadline = absl::ZeroDuration());
  // As Get, and appends its steps to `steps`, also if it fails. It goes the way of StartGet: by READs,
  // where over shm a Get may be answered by a look at mapped memory.
  absl::StatusOr<Value> TraceGet(absl::string_view key, std::vector<TraceStep>& steps,
                                 absl::Duration deadline = absl::ZeroDuration());
  // The server's statistics: lines "name=value". Of several shards: the sums of counts, the greatest
  // uptime_seconds and process_…, and values that all of them share. Then every line of shard k as
  // "shardk.name=value".
  absl::StatusOr<std::string> ServerStats(absl::Duration deadline = absl::ZeroDuration());

  // --- Asynchronous. Start… copies key and value before it returns. OK: the callback will run
  // exactly once. Not OK: the operation was not started and the callback will not run.

  using GetCallback = absl::AnyInvocable<void(absl::StatusOr<Value>)>;
  using ExistsCallback = absl::AnyInvocable<void(absl::StatusOr<bool>)>;
  using WriteCallback = absl::AnyInvocable<void(absl::StatusOr<uint64_t>)>;
  using IncrementCallback = absl::AnyInvocable<void(absl::StatusOr<Number>)>;
  absl::Status StartGet(absl::string_view key, GetCallback done,
                        absl::Duration deadline = absl::ZeroDuration());
  absl::Status StartPut(absl::string_view key, absl::string_view value, const WriteOptions& options,
                        WriteCallback done);
  absl::Status StartDelete(absl::string_view key, const WriteOptions& options, WriteCallback done);
  absl::Status StartExists(absl::string_view key, ExistsCallback done,
                           absl::Duration deadline = absl::ZeroDuration());
  absl::Status StartIncrement(absl::string_view key, int64_t by, const WriteOptions& options,
                              IncrementCallback done);
  absl::Status StartAppend(absl::string_view key, absl::string_view value,
                           const WriteOptions& options, WriteCallback done);
  absl::Status StartExpire(absl::string_view key, absl::Duration ttl, const WriteOptions& options,
                           WriteCallback done);
  absl::Status StartPersist(absl::string_view key, const WriteOptions& options, WriteCallback done);
  using TtlCallback = absl::AnyInvocable<void(absl::StatusOr<absl::Duration>)>;
  absl::Status StartTtl(absl::string_view key, TtlCallback done,
                        absl::Duration deadline = absl::ZeroDuration());
  absl::Status StartTouch(absl::string_view key, WriteCallback done,
                          absl::Duration deadline = absl::ZeroDuration());
  absl::Status StartFlush(WriteCallback done, absl::Duration deadline = absl::ZeroDuration());

  // The buffer's bytes belong to the operation until its callback runs.
  using GetIntoCallback = absl::AnyInvocable<void(absl::StatusOr<ValueInfo>)>;
  absl::Status StartGetInto(absl::string_view key, Buffer& buffer, size_t offset,
                            GetIntoCallback done, absl::Duration deadline = absl::ZeroDuration());
  // As StartGetInto, into `room` bytes from `offset` on: the others are not touched.
  absl::Status StartGetIntoPart(absl::string_view key, Buffer& buffer, size_t offset, size_t room,
                                GetIntoCallback done,
                                absl::Duration deadline = absl::ZeroDuration());
  absl::Status StartPutFrom(absl::string_view key, const Buffer& buffer, size_t offset,
                            size_t length, const WriteOptions& options, WriteCallback done);

  using ScanCallback = absl::AnyInvocable<void(absl::StatusOr<ScanPage>)>;
  absl::Status StartScan(absl::string_view cursor, const ScanOptions& options, ScanCallback done);
  absl::Status StartCount(WriteCallback done, absl::Duration deadline = absl::ZeroDuration());
  using StatsCallback = absl::AnyInvocable<void(absl::StatusOr<std::string>)>;
  absl::Status StartServerStats(StatsCallback done, absl::Duration deadline = absl::ZeroDuration());

  // As MultiGet and the others. Operations in flight count against the same limit. Keys that cannot
  // start at once start when others of the call and of their shard end. RESOURCE_EXHAUSTED: not even
  // one can start. If one can, but not in each shard, the keys of the others wait for operations of
  // other calls there; those that wait in vain are answered with that error.
  using MultiGetCallback = absl::AnyInvocable<void(std::vector<absl::StatusOr<Value>>)>;
  using MultiWriteCallback = absl::AnyInvocable<void(std::vector<absl::StatusOr<uint64_t>>)>;
  absl::Status StartMultiGet(absl::Span<const absl::string_view> keys, MultiGetCallback done,
                             absl::Duration deadline = absl::ZeroDuration());
  absl::Status StartMultiPut(absl::Span<const KeyValue> items, const WriteOptions& options,
                             MultiWriteCallback done);
  absl::Status StartMultiDelete(absl::Span<const absl::string_view> keys,
                                const WriteOptions& options, MultiWriteCallback done);

  // Changes the limit of operations in flight; those above it continue. INVALID_ARGUMENT out of the
  // range of Options::operations_max.
  absl::Status set_operations_max(int operations);

  // Makes progress and runs callbacks; never blocks. Returns the number of operations that ended.
  int Poll();
  // Polls until an operation ended, none is in flight, or `timeout` passed. Sleeps according to
  // Options::wait.
  int Wait(absl::Duration timeout);
  int in_flight() const;

  // For an event loop that waits for several things: it polls until Poll returns 0, calls Arm, and
  // waits until fd() is readable, but no longer than Arm returned. Zero: Poll has something to do
  // now. At most an hour. After every Start… it polls again. fd() stays the same, and is the
  // Client's to close. It may be readable without need.
  int fd() const;
  absl::Duration Arm();

  // Whether the client could send operations at the last Poll or call, to every shard.
  bool connected() const;
  // How many shards the cluster has, and that of a key. The limits of Options are those of each: a
  // caller that keeps operations until there is room has a queue for each.
  uint32_t shards() const;
  uint32_t ShardOf(absl::string_view key) const;
  // Identifies the keys of the last connected server: the id of its data directory, or without one
  // its incarnation. Another number means that the server was restarted and began empty, or that it
  // is another one. It is set as soon as Connect has returned.
  uint64_t dataset() const;
  // Valid until the next call. Call it again for the counts of that time.
  const Counters& counters() const;
  // One line: "transport=verbs device=rxe0 … server=rdma://10.0.0.7:7411", with the address in use. Of
  // several shards: that of shard 0, and "shards=4 shards_connected=4".
  std::string Describe() const;

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  absl::StatusOr<client::UserMemory> SpanOf(const Buffer& buffer, size_t offset,
                                            size_t length) const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace osprey

#endif  // OSPREY_CLIENT_CLIENT_H_

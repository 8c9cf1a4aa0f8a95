// The Osprey client: GETs by one-sided READs of the server's memory, writes by message.
//
//   auto client = osprey::Client::Connect("rdma://10.0.0.7:7411");
//   if (!client.ok()) { … client.status() says what is wrong and what helps … }
//   absl::StatusOr<uint64_t> version = (*client)->Put("planet", "saturn");
//   absl::StatusOr<osprey::Value> value = (*client)->Get("planet");
//
// Every operation takes effect at one instant between its call and its return (linearizable); a GET
// that finds nothing as well. An operation ends by its deadline at the latest (but see
// ScanOptions).
//
// Two ways to use it, which may be mixed:
//   blocking      Get, Put, Delete … return the result.
//   asynchronous  Start… begins an operation and returns; its callback runs inside a later Poll,
//                 Wait or blocking operation. Many may be in flight; the READs of all that are
//                 ready go out as one chain.
//
// Thread rule: a Client belongs to one thread at a time. Callbacks run on that thread and may start
// operations; they may not call Poll, Wait or a blocking operation, nor destroy the Client.
//
// Connections: a broken connection, or a restarted server, is reconnected to with backoff while
// operations wait, until their deadlines. A GET is simply done again. A write is repeated only
// where the server can tell that it is a repetition; else it fails with UNKNOWN (below).
//
// Errors, all operations:
//   INVALID_ARGUMENT    A key, value, condition or deadline that cannot be; the message names the
//                       bound. Not applied.
//   DEADLINE_EXCEEDED   Not done in time. A write: not applied if the message says so, else it may
//                       still be applied, once.
//   UNAVAILABLE         No connection by the deadline. A write was not applied.
//   UNKNOWN             (writes) The connection broke and the server that had the request is gone:
//                       it may or may not have been applied there, and a server that restarts is
//                       empty.
//   RESOURCE_EXHAUSTED  The server is full (not applied), or too many operations or bytes are in
//                       flight here (not started).
//   CANCELLED           The Client was closed first. A write: the message says whether it may have
//                       been applied.
//   INTERNAL            The server's answer makes no sense.
// and where noted: NOT_FOUND, ALREADY_EXISTS, FAILED_PRECONDITION, OUT_OF_RANGE. Which failure it
// is exactly, ReasonOf says (client/reasons.h); what a failed write did, MayBeApplied.

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

// How a blocking call, or Client::Wait, spends its time.
enum class WaitMode {
  kSpin,      // polls without pause: the lowest latency, one core
  kAdaptive,  // polls for Options::spin, then sleeps until something happens
  kEvent,     // sleeps at once
};

struct Options {
  absl::Duration connect_timeout = absl::Seconds(5);
  // Connect waits up to connect_timeout for a server where nothing listens yet. False: that is an
  // error at once. A connection that was made once is made again in either case.
  bool await_listener = true;
  // The default of every operation. At most kDeadlineMax.
  absl::Duration deadline = absl::Seconds(1);
  WaitMode wait = WaitMode::kAdaptive;
  absl::Duration spin = absl::Microseconds(50);
  // Operations in flight (Start… fails with RESOURCE_EXHAUSTED above): the depth of the pipeline.
  // At most 65536. Client::set_operations_max changes it.
  int operations_max = 256;
  // Reconnect: the first pause, doubled up to the last, with jitter.
  absl::Duration backoff_first = absl::Milliseconds(10);
  absl::Duration backoff_last = absl::Seconds(1);
  // Registered (over RDMA: pinned) memory for READs, and as much again for values on their way to
  // the server; taken as it is needed. At least 4 MiB. While its operation lasts, a value that is
  // put needs its length, rounded up to a power of two (PutFrom: nothing); one that is got, 1 MiB
  // at most.
  uint64_t buffer_bytes_max = uint64_t{64} << 20;
  // Memory that remembers where items are, 8 bytes a key: a GET of such a key takes one READ
  // instead of two. Taken as it is used; rounded down to a power of two. 0: none. At most 1 TiB.
  uint64_t slot_cache_bytes = uint64_t{16} << 20;
  // The key that the server must have, too: the path of a file with it (32 B to 4 KiB, readable by
  // its owner alone; read once, by Connect), or its bytes. At most one of the two. With neither, a
  // server that wants a key is not connected to; with one, only a server that proves to have it is.
  std::string auth_key_file;
  std::string auth_key;
};

constexpr absl::Duration kDeadlineMax() { return absl::Seconds(60); }
// 100 years.
constexpr absl::Duration kTtlMax() { return absl::Hours(24 * 36525); }

struct Value {
  std::string bytes;
  // The version of the write that made it: never repeats, not even after the server was started
  // again (but by a chance of 2^-47). Below 2^48.
  uint64_t version = 0;
  // What was left of its time to live when it was read, at least; InfiniteDuration: it lives until
  // it is deleted.
  absl::Duration ttl = absl::InfiniteDuration();
};

// What an increment made of a value, and the version of that write.
struct Number {
  int64_t value = 0;
  uint64_t version = 0;
};

// For MultiPut.
struct KeyValue {
  absl::string_view key;
  absl::string_view value;
};

// What a write asks for.
struct WriteOptions {
  // Only if the key is absent, else ALREADY_EXISTS. For put alone.
  bool if_absent = false;
  // Not 0: only if this is the present version, else FAILED_PRECONDITION; NOT_FOUND if absent.
  uint64_t if_version = 0;
  // How long the key lives, from when the server begins to carry the write out. Zero or
  // InfiniteDuration: until it is deleted, whatever was said of it before. At most kTtlMax, in
  // steps of about 0.1 ms, never shorter. For put alone: increment and append leave it as it is,
  // and Expire changes it.
  absl::Duration ttl = absl::ZeroDuration();
  // Zero: Options::deadline.
  absl::Duration deadline = absl::ZeroDuration();
};

// What a scan asks for.
struct ScanOptions {
  // Only keys that begin so.
  std::string prefix;
  // A page ends when it has so many. At least 1. (It has more only of keys that share one 64-bit
  // hash.)
  uint64_t limit = 1000;
  // With the values. Long ones (over 64 KiB) are fetched one by one.
  bool values = false;
  // Long values above this are left out, as has_value says: so a page of many of them needs no more
  // memory than one likes.
  uint64_t value_bytes_max = UINT64_MAX;
  // Zero: Options::deadline. A page that is not full by then is returned as it is; with values, to
  // fetch the long ones takes up to as much again.
  absl::Duration deadline = absl::ZeroDuration();
};

struct ScanItem {
  std::string key;
  std::string value;  // ScanOptions::values
  bool has_value = false;
  bool is_inline = false;  // it takes a place in the index, and none besides
  uint64_t value_length = 0;
  uint64_t version = 0;
  // What was left of its time to live when it was found, at least, as in Value.
  absl::Duration ttl = absl::InfiniteDuration();
};

struct ScanPage {
  std::vector<ScanItem> items;  // in no order; may be empty before the end
  // Where to go on, printable; "": this was the last page.
  std::string cursor;
};

// Counted since Connect. Plain numbers, read on the Client's thread.
struct Counters {
  uint64_t gets = 0;
  uint64_t hits = 0;
  uint64_t misses = 0;
  uint64_t writes = 0;
  uint64_t reads = 0;        // one-sided READs posted for GETs
  uint64_t read_bytes = 0;   // bytes that those asked for
  uint64_t scan_reads = 0;   // one-sided READs posted for scans
  uint64_t torn = 0;         // records rejected because a write was going on: normal
  uint64_t retries = 0;      // lookups, or parts of them, done again: torn, moved, reconnected
  uint64_t hints = 0;        // GETs that began at a slot that the cache knew
  uint64_t stale_hints = 0;  // READs of items that were no longer where a hint said
  uint64_t rpc_gets = 0;     // GETs sent to the server as messages, as the last resort
  uint64_t messages = 0;     // requests sent
  uint64_t frames = 0;       // SENDs that carried them: those that are ready together share one
  uint64_t told_hits = 0;    // of the hits, those of which a server that evicts was told
  uint64_t connects = 0;     // connections made
  double reads_per_get() const {
    return gets == 0 ? 0 : static_cast<double>(reads) / static_cast<double>(gets);
  }
};

class Client {
 public:
  // Connects and reads the table's header and directory. `uri` is rdma://HOST[:PORT] or shm://PATH.
  // Errors: what rdma/errors.h lists, each with its mend in the message; INVALID_ARGUMENT for
  // options out of range.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(absl::string_view uri,
                                                         const Options& options = {});

  // Ends what is in flight (CANCELLED) and disconnects. When it returns no READ can land in this
  // process's memory.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // --- Blocking. `deadline` zero means Options::deadline.

  // NOT_FOUND when absent.
  absl::StatusOr<Value> Get(absl::string_view key, absl::Duration deadline = absl::ZeroDuration());
  // As Get, without fetching the value where that can be avoided.
  absl::StatusOr<bool> Exists(absl::string_view key,
                              absl::Duration deadline = absl::ZeroDuration());
  // The version of the write.
  absl::StatusOr<uint64_t> Put(absl::string_view key, absl::string_view value,
                               const WriteOptions& options = {});
  // NOT_FOUND when absent. if_absent is INVALID_ARGUMENT, here and below.
  absl::StatusOr<uint64_t> Delete(absl::string_view key, const WriteOptions& options = {});
  // Adds `by` (it may be negative) to a value that is a number in decimal, as Redis and memcached
  // keep it: an optional '-', digits without leading zeros, within the range of int64. An absent
  // key counts as 0. FAILED_PRECONDITION when the value is no such number, OUT_OF_RANGE when the
  // sum is none: the value stays as it is.
  absl::StatusOr<Number> Increment(absl::string_view key, int64_t by = 1,
                                   const WriteOptions& options = {});
  // Writes behind what the value is; an absent key counts as empty. Key and value together are
  // bounded by what fits one message (some 8 KB): INVALID_ARGUMENT names the bound.
  absl::StatusOr<uint64_t> Append(absl::string_view key, absl::string_view value,
                                  const WriteOptions& options = {});
  // Gives a key that is there `ttl` to live from now on, or until it is deleted
  // (InfiniteDuration: as Persist). Its value and version stay; returns the version. NOT_FOUND when
  // absent. INVALID_ARGUMENT for a `ttl` that is not above zero and at most kTtlMax.
  absl::StatusOr<uint64_t> Expire(absl::string_view key, absl::Duration ttl,
                                  const WriteOptions& options = {});
  absl::StatusOr<uint64_t> Persist(absl::string_view key, const WriteOptions& options = {});
  // What is left of the key's time to live, at least; InfiniteDuration: it lives until it is
  // deleted. NOT_FOUND when absent. As Exists, a READ.
  absl::StatusOr<absl::Duration> Ttl(absl::string_view key,
                                     absl::Duration deadline = absl::ZeroDuration());
  // Counts as a use of the key, for a server that evicts what is not used; a message, unlike Get.
  // Nothing else changes; returns the version. NOT_FOUND when absent.
  absl::StatusOr<uint64_t> Touch(absl::string_view key,
                                 absl::Duration deadline = absl::ZeroDuration());
  // Deletes every key that is present when it begins and not written again before it gets there;
  // returns how many it deleted. No instant: other operations go on between its parts.
  absl::StatusOr<uint64_t> Flush(absl::Duration deadline = absl::ZeroDuration());

  // Many keys, each answered by itself, in the order of the arguments: an operation each, with one
  // deadline for all. Any number of keys: at most Options::operations_max are in flight at once,
  // the READs or requests of those go out together.
  std::vector<absl::StatusOr<Value>> MultiGet(absl::Span<const absl::string_view> keys,
                                              absl::Duration deadline = absl::ZeroDuration());
  std::vector<absl::StatusOr<uint64_t>> MultiPut(absl::Span<const KeyValue> items,
                                                 const WriteOptions& options = {});
  std::vector<absl::StatusOr<uint64_t>> MultiDelete(absl::Span<const absl::string_view> keys,
                                                    const WriteOptions& options = {});

  // --- Without a copy (client/buffer.h).

  // Registered memory of `bytes`, zeroed. Over RDMA it is pinned: RESOURCE_EXHAUSTED when
  // RLIMIT_MEMLOCK forbids it. Buffers do not count against Options::buffer_bytes_max. Over
  // shm the server is told of some 50 Buffers at most: a PutFrom another one is RESOURCE_EXHAUSTED
  // until one of those is destroyed.
  absl::StatusOr<Buffer> AllocateBuffer(size_t bytes);
  // Registers memory that the caller keeps; it must stay until the Buffer is gone and no operation
  // uses it. Over RDMA alone: over shm FAILED_PRECONDITION, use AllocateBuffer.
  absl::StatusOr<Buffer> RegisterBuffer(std::byte* data, size_t bytes);
  // As Get, into `buffer` from `offset` on: values of over 64 KiB land there directly, shorter ones
  // are copied. Nothing behind the buffer's end is touched; what is in it from `offset` on is lost,
  // however this ends. When it returns, no READ can land there any more: if it is late, it breaks
  // the connection for that. OUT_OF_RANGE (Reason::kBufferTooSmall) when the value does not fit:
  // BytesNeeded(status) says how long it is.
  absl::StatusOr<ValueInfo> GetInto(absl::string_view key, Buffer& buffer, size_t offset = 0,
                                    absl::Duration deadline = absl::ZeroDuration());
  // As Put of `length` bytes of `buffer` from `offset` on, which the server fetches from there:
  // they must stay as they are until this returns (else DATA_LOSS, not applied).
  absl::StatusOr<uint64_t> PutFrom(absl::string_view key, const Buffer& buffer, size_t offset,
                                   size_t length, const WriteOptions& options = {});

  // --- All keys, by READs alone: the server's CPU takes no part.

  // The next page of the scan that `cursor` belongs to; "" begins one:
  //
  //   std::string cursor;
  //   do {
  //     absl::StatusOr<osprey::ScanPage> page = client->Scan(cursor, options);
  //     … page->items …
  //     cursor = page->cursor;
  //   } while (!cursor.empty());
  //
  // A key that is present from the first call to the end of the last is found at least once,
  // whatever is written meanwhile and however the table grows; one that comes or goes may be found
  // or not. Each was present, with that version and value, at some instant of the scan. A cursor is
  // good for as long as the server lives: FAILED_PRECONDITION (Reason::kStaleCursor) after.
  absl::StatusOr<ScanPage> Scan(absl::string_view cursor, const ScanOptions& options = {});
  // How many keys there are, about: exact while none is written.
  absl::StatusOr<uint64_t> Count(absl::Duration deadline = absl::ZeroDuration());

  // The time of a message there and back.
  absl::StatusOr<absl::Duration> Ping(absl::Duration deadline = absl::ZeroDuration());
  // The time of one READ of `bytes` (1 to kMeasureBytesMax) at the region's beginning: what the
  // device, or shared memory, needs below a Get on the same connection. It goes the way of a Get's
  // READ, and nothing is looked up, checked or copied. INVALID_ARGUMENT for other sizes.
  static constexpr uint32_t kMeasureBytesMax = 64 << 10;
  absl::StatusOr<absl::Duration> MeasureRead(uint32_t bytes,
                                             absl::Duration deadline = absl::ZeroDuration());
  // The server's statistics: lines "name=value".
  absl::StatusOr<std::string> ServerStats(absl::Duration deadline = absl::ZeroDuration());

  // --- Asynchronous. Key and value are copied before Start… returns. OK: the callback will run
  // exactly once. Not OK: it was not started and the callback will not run.

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
  absl::Status StartPutFrom(absl::string_view key, const Buffer& buffer, size_t offset,
                            size_t length, const WriteOptions& options, WriteCallback done);

  using ScanCallback = absl::AnyInvocable<void(absl::StatusOr<ScanPage>)>;
  absl::Status StartScan(absl::string_view cursor, const ScanOptions& options, ScanCallback done);
  absl::Status StartCount(WriteCallback done, absl::Duration deadline = absl::ZeroDuration());

  // As MultiGet and the others. Operations that are in flight already leave less room: what cannot
  // start at once starts when others of the same call end. RESOURCE_EXHAUSTED: there is no room for
  // even one.
  using MultiGetCallback = absl::AnyInvocable<void(std::vector<absl::StatusOr<Value>>)>;
  using MultiWriteCallback = absl::AnyInvocable<void(std::vector<absl::StatusOr<uint64_t>>)>;
  absl::Status StartMultiGet(absl::Span<const absl::string_view> keys, MultiGetCallback done,
                             absl::Duration deadline = absl::ZeroDuration());
  absl::Status StartMultiPut(absl::Span<const KeyValue> items, const WriteOptions& options,
                             MultiWriteCallback done);
  absl::Status StartMultiDelete(absl::Span<const absl::string_view> keys,
                                const WriteOptions& options, MultiWriteCallback done);

  // The bound on operations in flight, from now on; what is in flight above it goes on.
  // INVALID_ARGUMENT out of the range of Options::operations_max.
  absl::Status set_operations_max(int operations);

  // Makes progress and runs callbacks; never blocks. Returns how many operations ended.
  int Poll();
  // Polls until an operation ended, none is in flight, or `timeout` passed; sleeps as Options::wait
  // says.
  int Wait(absl::Duration timeout);
  int in_flight() const;

  // Whether operations could go on their way now, as far as the last Poll or call saw.
  bool connected() const;
  // Of the server that it was connected to last: another number is another life of the server,
  // which began empty.
  uint64_t incarnation() const;
  const Counters& counters() const;
  // One line: "transport=verbs device=rxe0 … server=rdma://10.0.0.7:7411".
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

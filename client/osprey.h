// Osprey for C (C99), and for bindings of other languages: the API of client.h behind opaque
// handles, with a number and a text for every error.
//
//   osprey_client *client = NULL;
//   osprey_result *result = NULL;
//   if (osprey_connect("rdma://10.0.0.7:7411", NULL, &client, NULL) != OSPREY_OK) …
//   osprey_put(client, "planet", 6, "saturn", 6, NULL, NULL);
//   if (osprey_get(client, "planet", 6, NULL, &result) == OSPREY_OK)
//     printf("%s\n", osprey_result_data(result));
//   osprey_result_free(result);
//   osprey_close(client);
//
// Link with libosprey.so. client.h documents the operations, their instants and their bounds;
// client/README.md has a table of the errors. This header adds for C:
//
// Errors: a function that can fail returns an error number, OSPREY_OK (0) or an OSPREY_ERROR_….
//   osprey_error_text explains it. osprey_result_message names the exact failure with the bound and
//   the fix; so does osprey_client_message, for a call without a result. A handle or a pointer that
//   must not be NULL, and is, is OSPREY_ERROR_NULL_ARGUMENT.
// Ownership: the caller frees each result from `osprey_result **` or from a callback by
//   osprey_result_free, also that of a failure. NULL instead of an address: no result is returned.
//   Data from accessors lives as long as the result. All arguments are copied before a call
//   returns, except Buffers.
// Threads: a client, its buffers, and calls on them belong to one thread at a time. Results and
//   options are values: one thread at a time, any thread. The rest is thread-safe.
// Units: bytes, and microseconds (_us). Keys and values are any bytes, with their lengths.
// Exceptions never leave a function. After OSPREY_ERROR_OUT_OF_MEMORY the client is of no further
//   use: close it.
//
// Compatibility: a number, a struct's fields and a function never change their meaning. New fields
// are added at a struct's end: `size` tells the library which fields the program has. Errors may be
// added, too: a program treats an unknown error by its hundreds.

#ifndef OSPREY_CLIENT_OSPREY_H_
#define OSPREY_CLIENT_OSPREY_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The version of this header. The major number is the library's soname (libosprey.so.1). A library
// with a larger minor number serves programs that were compiled for a smaller one.
#define OSPREY_API_MAJOR 1
#define OSPREY_API_MINOR 0
// The version of the linked library: major * 1000 + minor.
int osprey_api_version(void);

// ---- Errors. The hundreds give the kind.

enum osprey_error {
  OSPREY_OK = 0,
  // 1xx: the call itself is wrong. Nothing was done.
  OSPREY_ERROR_EMPTY_KEY = 101,
  OSPREY_ERROR_KEY_TOO_LONG = 102,
  OSPREY_ERROR_VALUE_TOO_LONG = 103,
  OSPREY_ERROR_APPEND_TOO_LONG = 104,
  OSPREY_ERROR_BAD_CONDITION = 105,
  OSPREY_ERROR_BAD_DEADLINE = 106,
  OSPREY_ERROR_BAD_OPTION = 107,
  OSPREY_ERROR_BAD_BUFFER = 108,
  OSPREY_ERROR_BAD_CURSOR = 109,
  OSPREY_ERROR_NULL_ARGUMENT = 110,
  OSPREY_ERROR_IN_CALLBACK = 111,   // a blocking call, poll, wait or close, within a callback
  OSPREY_ERROR_BAD_ADDRESS = 112,   // neither rdma://HOST[:PORT] nor shm://PATH
  OSPREY_ERROR_BAD_AUTH_KEY = 113,  // a wrong length, or the file is unreadable or not private
  OSPREY_ERROR_BAD_TTL = 114,
  // 2xx: a condition did not hold, or the value has the wrong form. Nothing was changed.
  OSPREY_ERROR_ABSENT = 201,
  OSPREY_ERROR_PRESENT = 202,
  OSPREY_ERROR_WRONG_VERSION = 203,
  OSPREY_ERROR_NOT_A_NUMBER = 204,
  OSPREY_ERROR_OVERFLOW = 205,
  OSPREY_ERROR_STALE_CURSOR = 206,
  OSPREY_ERROR_BUFFER_TOO_SMALL = 207,  // osprey_result_length: the length that it needs
  OSPREY_ERROR_VALUE_CHANGED = 208,
  // 3xx: a resource is used up. Nothing was changed.
  OSPREY_ERROR_TOO_MANY_OPERATIONS = 301,
  OSPREY_ERROR_BUFFERS_USED_UP = 302,
  OSPREY_ERROR_LANES_TAKEN = 303,
  OSPREY_ERROR_SERVER_FULL = 304,
  OSPREY_ERROR_VERSIONS_USED_UP = 305,
  OSPREY_ERROR_OUT_OF_MEMORY = 306,  // of this process
  OSPREY_ERROR_CHAIN_FULL = 307,     // too many keys share the key's line of the server's index
  OSPREY_ERROR_DISK_FULL = 308,      // at the server: no room for its log
  // 4xx: no answer. For a write, osprey_result_may_be_applied returns whether it may be applied.
  OSPREY_ERROR_DEADLINE = 401,
  OSPREY_ERROR_NO_CONNECTION = 402,
  OSPREY_ERROR_SERVER_GONE = 403,
  OSPREY_ERROR_FORGOTTEN = 404,
  OSPREY_ERROR_CLOSED = 405,
  OSPREY_ERROR_BAD_SERVER = 406,
  OSPREY_ERROR_TOO_FEW_REPLICAS = 407,  // of a cluster: nothing was written
  // 5xx: osprey_connect.
  OSPREY_ERROR_NO_DEVICE = 501,
  OSPREY_ERROR_NOT_RDMA_ADDRESS = 502,
  OSPREY_ERROR_MEMLOCK_TOO_LOW = 503,
  OSPREY_ERROR_NO_LISTENER = 504,
  OSPREY_ERROR_REFUSED = 505,
  OSPREY_ERROR_SHUTTING_DOWN = 506,
  OSPREY_ERROR_UNREACHABLE = 507,
  OSPREY_ERROR_VERSION_MISMATCH = 508,
  OSPREY_ERROR_NOT_OSPREY = 509,
  OSPREY_ERROR_CONNECT_TIMEOUT = 510,
  OSPREY_ERROR_PEER_GONE = 511,
  OSPREY_ERROR_AUTHENTICATION_FAILED = 512,    // the server has another key
  OSPREY_ERROR_AUTHENTICATION_REQUIRED = 513,  // the server requires a key
  OSPREY_ERROR_SERVER_UNPROVEN = 514,  // the server does not prove that it has the client's key
  OSPREY_ERROR_NOT_SERVING = 515,      // the server is in a cluster and does not serve now
  OSPREY_ERROR_WRONG_SHARD = 516,      // the server has another shard of its cluster
  OSPREY_ERROR_FORKED = 517,           // over RDMA: the process is a fork of one that uses it
  // 9xx: any other error; the message explains it.
  OSPREY_ERROR_OTHER = 900
};

// One line for people: the meaning of the number, and the fix. Never NULL.
const char* osprey_error_text(int error);
// The name of the number as above: "OSPREY_ERROR_ABSENT". "OSPREY_ERROR_OTHER" for a number that
// this library does not have.
const char* osprey_error_name(int error);

// ---- Results: the answer of an operation, or why it failed. An accessor that does not apply to
// the operation returns 0, NULL or "". A NULL result counts as one of OSPREY_ERROR_NULL_ARGUMENT.

typedef struct osprey_result osprey_result;

void osprey_result_free(osprey_result* result);
// The error number that the function returned.
int osprey_result_code(const osprey_result* result);
// One line; "" for OSPREY_OK.
const char* osprey_result_message(const osprey_result* result);
// For a failed write: 1 if it may have been applied, or may still be, once; otherwise 0.
int osprey_result_may_be_applied(const osprey_result* result);
// The value's bytes, with a 0 behind them (osprey_server_stats: the text). NULL: there is no value,
// it was not requested, or it is in a buffer.
const char* osprey_result_data(const osprey_result* result);
// The value's length, even if osprey_result_data has no bytes for it.
size_t osprey_result_length(const osprey_result* result);
// For a value, the version of the write that made it. For a write, its own.
uint64_t osprey_result_version(const osprey_result* result);
// A lower bound of a key's time to live, for values and osprey_ttl. -1: it lives until it is
// deleted.
int64_t osprey_result_ttl_us(const osprey_result* result);
// increment: the sum; exists: 0 or 1; count, flush: the number of keys; ping: nanoseconds.
int64_t osprey_result_number(const osprey_result* result);

// For operations on many keys, and for scans: one result for each key, in order. They belong to the
// whole and are not freed. NULL beyond the last.
size_t osprey_result_count(const osprey_result* result);
const osprey_result* osprey_result_item(const osprey_result* result, size_t i);
// For an item of a scan.
const char* osprey_result_key(const osprey_result* result);
size_t osprey_result_key_length(const osprey_result* result);
// For a scan: the cursor of the next page; "": this was the last.
const char* osprey_result_cursor(const osprey_result* result);

// ---- Connecting.

// How a blocking call waits.
enum osprey_wait_mode {
  OSPREY_WAIT_SPIN = 0,      // polls without pause: the lowest latency, one core
  OSPREY_WAIT_ADAPTIVE = 1,  // polls for osprey_options_set_spin_us, then sleeps
  OSPREY_WAIT_EVENT = 2      // sleeps at once
};

// Options with their defaults (client.h, Options). osprey_connect refuses values out of range and
// names the option. NULL only when memory ran out.
typedef struct osprey_options osprey_options;
osprey_options* osprey_options_new(void);
void osprey_options_free(osprey_options* options);
void osprey_options_set_connect_timeout_us(osprey_options* options, int64_t timeout_us);
void osprey_options_set_deadline_us(osprey_options* options, int64_t deadline_us);
void osprey_options_set_wait(osprey_options* options, int wait_mode);
void osprey_options_set_spin_us(osprey_options* options, int64_t spin_us);
void osprey_options_set_operations_max(osprey_options* options, int operations);
void osprey_options_set_backoff_us(osprey_options* options, int64_t first_us, int64_t last_us);
void osprey_options_set_buffer_bytes_max(osprey_options* options, uint64_t bytes);
void osprey_options_set_slot_cache_bytes(osprey_options* options, uint64_t bytes);
// The key that the server must have, too: the path of a file that only its owner can read, or 32 to
// 4096 bytes; at most one of the two. Returns OSPREY_OK or OSPREY_ERROR_OUT_OF_MEMORY. No key is
// OSPREY_ERROR_NULL_ARGUMENT or OSPREY_ERROR_BAD_AUTH_KEY, and then osprey_connect fails likewise
// instead of connecting without a key.
int osprey_options_set_auth_key_file(osprey_options* options, const char* path);
int osprey_options_set_auth_key(osprey_options* options, const void* key, size_t key_length);

typedef struct osprey_client osprey_client;

// `uri`: rdma://HOST[:PORT] or shm://PATH; of several servers rdma://a:7411,b:7411. `options` may be
// NULL, and may be freed after. *client is NULL unless it returns OSPREY_OK.
int osprey_connect(const char* uri, const osprey_options* options, osprey_client** client,
                   osprey_result** result);
// Ends operations in flight (callbacks get OSPREY_ERROR_CLOSED), disconnects and frees the client.
// Buffers may be freed after it. OSPREY_ERROR_IN_CALLBACK: it did nothing. NULL is ignored.
int osprey_close(osprey_client* client);
// The error message of the last failed call on this client; "" before the first. Valid until the
// next call on the client.
const char* osprey_client_message(const osprey_client* client);
// One line: "transport=verbs device=rxe0 …". Valid until the next call on the client.
const char* osprey_client_describe(osprey_client* client);

// Counters of the client since it connected (client.h, Counters).
enum osprey_counter {
  OSPREY_COUNTER_GETS = 0,
  OSPREY_COUNTER_HITS = 1,
  OSPREY_COUNTER_MISSES = 2,
  OSPREY_COUNTER_WRITES = 3,
  OSPREY_COUNTER_READS = 4,
  OSPREY_COUNTER_READ_BYTES = 5,
  OSPREY_COUNTER_SCAN_READS = 6,
  OSPREY_COUNTER_TORN = 7,
  OSPREY_COUNTER_RETRIES = 8,
  OSPREY_COUNTER_HINTS = 9,
  OSPREY_COUNTER_STALE_HINTS = 10,
  OSPREY_COUNTER_RPC_GETS = 11,
  OSPREY_COUNTER_MESSAGES = 12,
  OSPREY_COUNTER_FRAMES = 13,
  OSPREY_COUNTER_CONNECTS = 14
};
// 0 if this library does not have the counter.
uint64_t osprey_client_counter(const osprey_client* client, int counter);

// ---- Parameters of operations. NULL, and fields that are 0, mean the default. Set `size`:
//
//   osprey_write_options options = OSPREY_WRITE_OPTIONS;
//   options.if_absent = 1;

typedef struct osprey_read_options {
  size_t size;          // sizeof(osprey_read_options)
  int64_t deadline_us;  // 0: the client's; at most 60 s
} osprey_read_options;
#define OSPREY_READ_OPTIONS \
  { sizeof(osprey_read_options), 0 }

typedef struct osprey_write_options {
  size_t size;          // sizeof(osprey_write_options)
  int64_t deadline_us;  // 0: the client's; at most 60 s
  uint64_t if_version;  // not 0: only if this is the present version; versions never repeat
  int64_t ttl_us;       // how long the key lives; 0: until it is deleted. For put alone
  int32_t if_absent;    // not 0: only if the key is absent; for put alone
  int32_t reserved;     // 0
} osprey_write_options;
#define OSPREY_WRITE_OPTIONS \
  { sizeof(osprey_write_options), 0, 0, 0, 0, 0 }

typedef struct osprey_scan_options {
  size_t size;           // sizeof(osprey_scan_options)
  int64_t deadline_us;   // 0: the client's; at most 60 s
  const void* prefix;    // only keys with this prefix
  size_t prefix_length;  // bytes
  uint64_t limit;        // a page ends at this number of items, or with a shard; 0: 1000
  int32_t values;        // not 0: with the values
  int32_t reserved;      // 0
} osprey_scan_options;
#define OSPREY_SCAN_OPTIONS \
  { sizeof(osprey_scan_options), 0, NULL, 0, 0, 0, 0 }

// ---- Blocking operations.

int osprey_get(osprey_client* client, const void* key, size_t key_length,
               const osprey_read_options* options, osprey_result** result);
// osprey_result_number is 1 or 0; returns OSPREY_OK for both.
int osprey_exists(osprey_client* client, const void* key, size_t key_length,
                  const osprey_read_options* options, osprey_result** result);
int osprey_put(osprey_client* client, const void* key, size_t key_length, const void* value,
               size_t value_length, const osprey_write_options* options, osprey_result** result);
int osprey_delete(osprey_client* client, const void* key, size_t key_length,
                  const osprey_write_options* options, osprey_result** result);
int osprey_increment(osprey_client* client, const void* key, size_t key_length, int64_t by,
                     const osprey_write_options* options, osprey_result** result);
int osprey_append(osprey_client* client, const void* key, size_t key_length, const void* value,
                  size_t value_length, const osprey_write_options* options, osprey_result** result);
// Sets `ttl_us` from now on. osprey_result_version is the key's, which stays.
int osprey_expire(osprey_client* client, const void* key, size_t key_length, int64_t ttl_us,
                  const osprey_write_options* options, osprey_result** result);
// The key lives until it is deleted.
int osprey_persist(osprey_client* client, const void* key, size_t key_length,
                   const osprey_write_options* options, osprey_result** result);
int osprey_ttl(osprey_client* client, const void* key, size_t key_length,
               const osprey_read_options* options, osprey_result** result);
// Counts as a use of the key, at a server that evicts.
int osprey_touch(osprey_client* client, const void* key, size_t key_length,
                 const osprey_read_options* options, osprey_result** result);
int osprey_flush(osprey_client* client, const osprey_read_options* options, osprey_result** result);
// A page of all keys. A `cursor` of NULL or "" begins a scan; osprey_result_cursor of the last page
// continues it.
int osprey_scan(osprey_client* client, const char* cursor, const osprey_scan_options* options,
                osprey_result** result);
int osprey_count(osprey_client* client, const osprey_read_options* options, osprey_result** result);
int osprey_ping(osprey_client* client, const osprey_read_options* options, osprey_result** result);
// Lines "name=value". Of several shards: sums of counts, then each line of shard k as "shardk.name=value".
int osprey_server_stats(osprey_client* client, const osprey_read_options* options,
                        osprey_result** result);

// Many keys, one operation for each. Returns OSPREY_OK if every item is OK. Otherwise it returns
// the first error other than OSPREY_ERROR_ABSENT, or OSPREY_ERROR_ABSENT if there is no other.
typedef struct osprey_bytes {
  const void* data;
  size_t length;
} osprey_bytes;
typedef struct osprey_pair {
  osprey_bytes key;
  osprey_bytes value;
} osprey_pair;

int osprey_multi_get(osprey_client* client, const osprey_bytes* keys, size_t count,
                     const osprey_read_options* options, osprey_result** result);
int osprey_multi_put(osprey_client* client, const osprey_pair* items, size_t count,
                     const osprey_write_options* options, osprey_result** result);
int osprey_multi_delete(osprey_client* client, const osprey_bytes* keys, size_t count,
                        const osprey_write_options* options, osprey_result** result);

// ---- Without a copy: memory that the NIC reads and writes directly (client/buffer.h).

typedef struct osprey_buffer osprey_buffer;

// Zeroed memory of `bytes`. *buffer is NULL unless it returns OSPREY_OK.
int osprey_buffer_allocate(osprey_client* client, size_t bytes, osprey_buffer** buffer,
                           osprey_result** result);
// Memory of the caller. It must stay until the buffer is freed and no operation uses it. Over RDMA
// alone.
int osprey_buffer_register(osprey_client* client, void* data, size_t bytes, osprey_buffer** buffer,
                           osprey_result** result);
// Call it on the client's thread; also after close, and while operations use the buffer.
void osprey_buffer_free(osprey_buffer* buffer);
void* osprey_buffer_data(const osprey_buffer* buffer);
size_t osprey_buffer_size(const osprey_buffer* buffer);

// The value goes into the buffer from `offset` on; osprey_result_length returns its length.
int osprey_get_into(osprey_client* client, const void* key, size_t key_length,
                    osprey_buffer* buffer, size_t offset, const osprey_read_options* options,
                    osprey_result** result);
// `length` bytes of the buffer from `offset` on. They must not change until the call returns.
int osprey_put_from(osprey_client* client, const void* key, size_t key_length,
                    const osprey_buffer* buffer, size_t offset, size_t length,
                    const osprey_write_options* options, osprey_result** result);

// ---- Asynchronous operations: many in flight, their READs go out together. Each ends exactly once
// if its start returned OSPREY_OK, and never otherwise. Its result goes
//   - to `done`, within a later poll, wait or blocking call; or, if `done` is NULL,
//   - to osprey_take_ended, which returns results in the order of their ends.

// The callback owns the result and frees it, now or later.
typedef void (*osprey_callback)(void* context, osprey_result* result);

int osprey_start_get(osprey_client* client, const void* key, size_t key_length,
                     const osprey_read_options* options, osprey_callback done, void* context);
int osprey_start_exists(osprey_client* client, const void* key, size_t key_length,
                        const osprey_read_options* options, osprey_callback done, void* context);
int osprey_start_put(osprey_client* client, const void* key, size_t key_length, const void* value,
                     size_t value_length, const osprey_write_options* options, osprey_callback done,
                     void* context);
int osprey_start_delete(osprey_client* client, const void* key, size_t key_length,
                        const osprey_write_options* options, osprey_callback done, void* context);
int osprey_start_increment(osprey_client* client, const void* key, size_t key_length, int64_t by,
                           const osprey_write_options* options, osprey_callback done,
                           void* context);
int osprey_start_append(osprey_client* client, const void* key, size_t key_length,
                        const void* value, size_t value_length, const osprey_write_options* options,
                        osprey_callback done, void* context);
int osprey_start_expire(osprey_client* client, const void* key, size_t key_length, int64_t ttl_us,
                        const osprey_write_options* options, osprey_callback done, void* context);
int osprey_start_persist(osprey_client* client, const void* key, size_t key_length,
                         const osprey_write_options* options, osprey_callback done, void* context);
int osprey_start_ttl(osprey_client* client, const void* key, size_t key_length,
                     const osprey_read_options* options, osprey_callback done, void* context);
int osprey_start_touch(osprey_client* client, const void* key, size_t key_length,
                       const osprey_read_options* options, osprey_callback done, void* context);
int osprey_start_flush(osprey_client* client, const osprey_read_options* options,
                       osprey_callback done, void* context);
int osprey_start_scan(osprey_client* client, const char* cursor, const osprey_scan_options* options,
                      osprey_callback done, void* context);
int osprey_start_count(osprey_client* client, const osprey_read_options* options,
                       osprey_callback done, void* context);
int osprey_start_multi_get(osprey_client* client, const osprey_bytes* keys, size_t count,
                           const osprey_read_options* options, osprey_callback done, void* context);
int osprey_start_multi_put(osprey_client* client, const osprey_pair* items, size_t count,
                           const osprey_write_options* options, osprey_callback done,
                           void* context);
int osprey_start_multi_delete(osprey_client* client, const osprey_bytes* keys, size_t count,
                              const osprey_write_options* options, osprey_callback done,
                              void* context);
// The buffer's bytes belong to the operation until it has ended.
int osprey_start_get_into(osprey_client* client, const void* key, size_t key_length,
                          osprey_buffer* buffer, size_t offset, const osprey_read_options* options,
                          osprey_callback done, void* context);
int osprey_start_put_from(osprey_client* client, const void* key, size_t key_length,
                          const osprey_buffer* buffer, size_t offset, size_t length,
                          const osprey_write_options* options, osprey_callback done, void* context);

// Makes progress and calls callbacks; never blocks. Returns the number of operations that ended, or
// minus the error number.
int osprey_poll(osprey_client* client);
// As osprey_poll, until an operation ended, none is in flight, or `timeout_us` has passed.
int osprey_wait(osprey_client* client, int64_t timeout_us);
// The number of operations in flight.
int osprey_in_flight(const osprey_client* client);
// The result of the next ended operation that was started without a callback; NULL: none. Sets
// `context` (it may be NULL) to the one given at the start. Does not poll.
osprey_result* osprey_take_ended(osprey_client* client, void** context);

#ifdef __cplusplus
}
#endif

#endif  // OSPREY_CLIENT_OSPREY_H_

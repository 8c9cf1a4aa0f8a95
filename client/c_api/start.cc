// The asynchronous operations of osprey.h.

#include "absl/time/time.h"
#include "client/c_api/arguments.h"
#include "client/c_api/client.h"
#include "client/c_api/result.h"

using osprey::Client;
using osprey::capi::BufferOf;
using osprey::capi::Counted;
using osprey::capi::DeadlineOf;
using osprey::capi::ItemsOf;
using osprey::capi::KeyOf;
using osprey::capi::KeysOf;
using osprey::capi::Left;
using osprey::capi::ScanOf;
using osprey::capi::Sink;
using osprey::capi::Start;
using osprey::capi::ValueOf;
using osprey::capi::WriteOf;

namespace {

auto Plain(const Sink& sink) { return sink.Plain(); }

auto CountOfKeys(const Sink& sink) { return sink.With(Counted); }
auto TimeLeft(const Sink& sink) { return sink.With(Left); }

}  // namespace

int osprey_start_get(osprey_client* client, const void* key, size_t key_length,
                     const osprey_read_options* options, osprey_callback done, void* context) {
  return Start(client, done, context, &Client::StartGet, KeyOf(key, key_length), Plain,
               DeadlineOf(options));
}

int osprey_start_exists(osprey_client* client, const void* key, size_t key_length,
                        const osprey_read_options* options, osprey_callback done, void* context) {
  return Start(client, done, context, &Client::StartExists, KeyOf(key, key_length), Plain,
               DeadlineOf(options));
}

int osprey_start_put(osprey_client* client, const void* key, size_t key_length, const void* value,
                     size_t value_length, const osprey_write_options* options, osprey_callback done,
                     void* context) {
  return Start(client, done, context, &Client::StartPut, KeyOf(key, key_length),
               ValueOf(value, value_length), WriteOf(options), Plain);
}

int osprey_start_delete(osprey_client* client, const void* key, size_t key_length,
                        const osprey_write_options* options, osprey_callback done, void* context) {
  return Start(client, done, context, &Client::StartDelete, KeyOf(key, key_length),
               WriteOf(options), Plain);
}

int osprey_start_increment(osprey_client* client, const void* key, size_t key_length, int64_t by,
                           const osprey_write_options* options, osprey_callback done,
                           void* context) {
  return Start(client, done, context, &Client::StartIncrement, KeyOf(key, key_length), by,
               WriteOf(options), Plain);
}

int osprey_start_append(osprey_client* client, const void* key, size_t key_length,
                        const void* value, size_t value_length, const osprey_write_options* options,
                        osprey_callback done, void* context) {
  return Start(client, done, context, &Client::StartAppend, KeyOf(key, key_length),
               ValueOf(value, value_length), WriteOf(options), Plain);
}

int osprey_start_expire(osprey_client* client, const void* key, size_t key_length, int64_t ttl_us,
                        const osprey_write_options* options, osprey_callback done, void* context) {
  return Start(client, done, context, &Client::StartExpire, KeyOf(key, key_length),
               absl::Microseconds(ttl_us), WriteOf(options), Plain);
}

int osprey_start_persist(osprey_client* client, const void* key, size_t key_length,
                         const osprey_write_options* options, osprey_callback done, void* context) {
  return Start(client, done, context, &Client::StartPersist, KeyOf(key, key_length),
               WriteOf(options), Plain);
}

int osprey_start_ttl(osprey_client* client, const void* key, size_t key_length,
                     const osprey_read_options* options, osprey_callback done, void* context) {
  return Start(client, done, context, &Client::StartTtl, KeyOf(key, key_length), TimeLeft,
               DeadlineOf(options));
}

int osprey_start_touch(osprey_client* client, const void* key, size_t key_length,
                       const osprey_read_options* options, osprey_callback done, void* context) {
  return Start(client, done, context, &Client::StartTouch, KeyOf(key, key_length), Plain,
               DeadlineOf(options));
}

int osprey_start_flush(osprey_client* client, const osprey_read_options* options,
                       osprey_callback done, void* context) {
  return Start(client, done, context, &Client::StartFlush, CountOfKeys, DeadlineOf(options));
}

int osprey_start_scan(osprey_client* client, const char* cursor, const osprey_scan_options* options,
                      osprey_callback done, void* context) {
  return Start(client, done, context, &Client::StartScan, cursor == nullptr ? "" : cursor,
               ScanOf(options), Plain);
}

int osprey_start_count(osprey_client* client, const osprey_read_options* options,
                       osprey_callback done, void* context) {
  return Start(client, done, context, &Client::StartCount, CountOfKeys, DeadlineOf(options));
}

int osprey_start_multi_get(osprey_client* client, const osprey_bytes* keys, size_t count,
                           const osprey_read_options* options, osprey_callback done,
                           void* context) {
  return Start(client, done, context, &Client::StartMultiGet, KeysOf(keys, count), Plain,
               DeadlineOf(options));
}

int osprey_start_multi_put(osprey_client* client, const osprey_pair* items, size_t count,
                           const osprey_write_options* options, osprey_callback done,
                           void* context) {
  return Start(client, done, context, &Client::StartMultiPut, ItemsOf(items, count),
               WriteOf(options), Plain);
}

int osprey_start_multi_delete(osprey_client* client, const osprey_bytes* keys, size_t count,
                              const osprey_write_options* options, osprey_callback done,
                              void* context) {
  return Start(client, done, context, &Client::StartMultiDelete, KeysOf(keys, count),
               WriteOf(options), Plain);
}

int osprey_start_get_into(osprey_client* client, const void* key, size_t key_length,
                          osprey_buffer* buffer, size_t offset, const osprey_read_options* options,
                          osprey_callback done, void* context) {
  return Start(client, done, context, &Client::StartGetInto, KeyOf(key, key_length),
               BufferOf(buffer), offset, Plain, DeadlineOf(options));
}

int osprey_start_put_from(osprey_client* client, const void* key, size_t key_length,
                          const osprey_buffer* buffer, size_t offset, size_t length,
                          const osprey_write_options* options, osprey_callback done,
                          void* context) {
  return Start(client, done, context, &Client::StartPutFrom, KeyOf(key, key_length),
               BufferOf(buffer), offset, length, WriteOf(options), Plain);
}

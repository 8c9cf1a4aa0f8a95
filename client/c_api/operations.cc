// The blocking operations of osprey.h.

#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/c_api/arguments.h"
#include "client/c_api/client.h"
#include "client/c_api/result.h"

using osprey::Client;
using osprey::capi::Arguments;
using osprey::capi::BufferOf;
using osprey::capi::Call;
using osprey::capi::Counted;
using osprey::capi::DeadlineOf;
using osprey::capi::ItemsOf;
using osprey::capi::KeyOf;
using osprey::capi::KeysOf;
using osprey::capi::Left;
using osprey::capi::Run;
using osprey::capi::ScanOf;
using osprey::capi::Take;
using osprey::capi::ValueOf;
using osprey::capi::WriteOf;

int osprey_get(osprey_client* client, const void* key, size_t key_length,
               const osprey_read_options* options, osprey_result** result) {
  return Run(client, result, &Client::Get, KeyOf(key, key_length), DeadlineOf(options));
}

int osprey_exists(osprey_client* client, const void* key, size_t key_length,
                  const osprey_read_options* options, osprey_result** result) {
  return Run(client, result, &Client::Exists, KeyOf(key, key_length), DeadlineOf(options));
}

int osprey_put(osprey_client* client, const void* key, size_t key_length, const void* value,
               size_t value_length, const osprey_write_options* options, osprey_result** result) {
  return Run(client, result, &Client::Put, KeyOf(key, key_length), ValueOf(value, value_length),
             WriteOf(options));
}

int osprey_delete(osprey_client* client, const void* key, size_t key_length,
                  const osprey_write_options* options, osprey_result** result) {
  return Run(client, result, &Client::Delete, KeyOf(key, key_length), WriteOf(options));
}

int osprey_increment(osprey_client* client, const void* key, size_t key_length, int64_t by,
                     const osprey_write_options* options, osprey_result** result) {
  return Run(client, result, &Client::Increment, KeyOf(key, key_length), by, WriteOf(options));
}

int osprey_append(osprey_client* client, const void* key, size_t key_length, const void* value,
                  size_t value_length, const osprey_write_options* options,
                  osprey_result** result) {
  return Run(client, result, &Client::Append, KeyOf(key, key_length), ValueOf(value, value_length),
             WriteOf(options));
}

int osprey_expire(osprey_client* client, const void* key, size_t key_length, int64_t ttl_us,
                  const osprey_write_options* options, osprey_result** result) {
  return Run(client, result, &Client::Expire, KeyOf(key, key_length), absl::Microseconds(ttl_us),
             WriteOf(options));
}

int osprey_persist(osprey_client* client, const void* key, size_t key_length,
                   const osprey_write_options* options, osprey_result** result) {
  return Run(client, result, &Client::Persist, KeyOf(key, key_length), WriteOf(options));
}

int osprey_ttl(osprey_client* client, const void* key, size_t key_length,
               const osprey_read_options* options, osprey_result** result) {
  return Run(
      client, result,
      [](Client& c, absl::string_view k, absl::Duration d) { return Left(c.Ttl(k, d)); },
      KeyOf(key, key_length), DeadlineOf(options));
}

int osprey_touch(osprey_client* client, const void* key, size_t key_length,
                 const osprey_read_options* options, osprey_result** result) {
  return Run(client, result, &Client::Touch, KeyOf(key, key_length), DeadlineOf(options));
}

int osprey_flush(osprey_client* client, const osprey_read_options* options,
                 osprey_result** result) {
  return Run(
      client, result, [](Client& c, absl::Duration d) { return Counted(c.Flush(d)); },
      DeadlineOf(options));
}

int osprey_scan(osprey_client* client, const char* cursor, const osprey_scan_options* options,
                osprey_result** result) {
  return Run(client, result, &Client::Scan, cursor == nullptr ? "" : cursor, ScanOf(options));
}

int osprey_count(osprey_client* client, const osprey_read_options* options,
                 osprey_result** result) {
  return Run(
      client, result, [](Client& c, absl::Duration d) { return Counted(c.Count(d)); },
      DeadlineOf(options));
}

int osprey_ping(osprey_client* client, const osprey_read_options* options, osprey_result** result) {
  return Run(client, result, &Client::Ping, DeadlineOf(options));
}

int osprey_server_stats(osprey_client* client, const osprey_read_options* options,
                        osprey_result** result) {
  return Run(client, result, &Client::ServerStats, DeadlineOf(options));
}

int osprey_multi_get(osprey_client* client, const osprey_bytes* keys, size_t count,
                     const osprey_read_options* options, osprey_result** result) {
  return Run(client, result, &Client::MultiGet, KeysOf(keys, count), DeadlineOf(options));
}

int osprey_multi_put(osprey_client* client, const osprey_pair* items, size_t count,
                     const osprey_write_options* options, osprey_result** result) {
  return Run(client, result, &Client::MultiPut, ItemsOf(items, count), WriteOf(options));
}

int osprey_multi_delete(osprey_client* client, const osprey_bytes* keys, size_t count,
                        const osprey_write_options* options, osprey_result** result) {
  return Run(client, result, &Client::MultiDelete, KeysOf(keys, count), WriteOf(options));
}

int osprey_get_into(osprey_client* client, const void* key, size_t key_length,
                    osprey_buffer* buffer, size_t offset, const osprey_read_options* options,
                    osprey_result** result) {
  return Run(client, result, &Client::GetInto, KeyOf(key, key_length), BufferOf(buffer), offset,
             DeadlineOf(options));
}

int osprey_put_from(osprey_client* client, const void* key, size_t key_length,
                    const osprey_buffer* buffer, size_t offset, size_t length,
                    const osprey_write_options* options, osprey_result** result) {
  return Run(client, result, &Client::PutFrom, KeyOf(key, key_length), BufferOf(buffer), offset,
             length, WriteOf(options));
}

namespace {

// `allocate()` makes a Buffer in one of the Client's two ways.
template <typename Allocate>
int MakeBuffer(osprey_client* client, osprey_buffer** buffer, osprey_result** result,
               Allocate allocate) {
  if (buffer != nullptr) *buffer = nullptr;
  return Call(client, result, [&](osprey_result& answer) {
    Arguments arguments;
    arguments.NotNull("buffer", buffer);
    if (!arguments.status().ok()) return Take(answer, arguments.status());
    absl::StatusOr<osprey::Buffer> made = allocate();
    if (!made.ok()) return Take(answer, made.status());
    *buffer = new osprey_buffer{*std::move(made)};
  });
}

}  // namespace

int osprey_buffer_allocate(osprey_client* client, size_t bytes, osprey_buffer** buffer,
                           osprey_result** result) {
  return MakeBuffer(client, buffer, result, [&] { return client->client->AllocateBuffer(bytes); });
}

int osprey_buffer_register(osprey_client* client, void* data, size_t bytes, osprey_buffer** buffer,
                           osprey_result** result) {
  return MakeBuffer(client, buffer, result, [&] {
    return client->client->RegisterBuffer(static_cast<std::byte*>(data), bytes);
  });
}

void osprey_buffer_free(osprey_buffer* buffer) { delete buffer; }
void* osprey_buffer_data(const osprey_buffer* buffer) {
  return buffer == nullptr ? nullptr : buffer->buffer.data();
}
size_t osprey_buffer_size(const osprey_buffer* buffer) {
  return buffer == nullptr ? 0 : buffer->buffer.size();
}

// The blocking operations of osprey.h.

#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/c_api/arguments.h"
#include "client/c_api/client.h"
#include "client/c_api/result.h"

using osprey::capi::Arguments;
using osprey::capi::Call;
using osprey::capi::KeyCount;
using osprey::capi::Take;
using osprey::capi::TimeToLive;

namespace {

absl::StatusOr<KeyCount> Counted(const absl::StatusOr<uint64_t>& keys) {
  if (!keys.ok()) return keys.status();
  return KeyCount{*keys};
}

absl::StatusOr<TimeToLive> Left(const absl::StatusOr<absl::Duration>& ttl) {
  if (!ttl.ok()) return ttl.status();
  return TimeToLive{*ttl};
}

}  // namespace

int osprey_get(osprey_client* client, const void* key, size_t key_length,
               const osprey_read_options* options, osprey_result** result) {
  return Call(client, result, [&](osprey_result& answer) {
    Arguments arguments;
    const absl::string_view key_bytes = arguments.Bytes("key", key, key_length);
    const absl::Duration deadline = arguments.Deadline(options);
    if (!arguments.status().ok()) return Take(answer, arguments.status());
    Take(answer, client->client->Get(key_bytes, deadline));
  });
}

int osprey_exists(osprey_client* client, const void* key, size_t key_length,
                  const osprey_read_options* options, osprey_result** result) {
  return Call(client, result, [&](osprey_result& answer) {
    Arguments arguments;
    const absl::string_view key_bytes = arguments.Bytes("key", key, key_length);
    const absl::Duration deadline = arguments.Deadline(options);
    if (!arguments.status().ok()) return Take(answer, arguments.status());
    Take(answer, client->client->Exists(key_bytes, deadline));
  });
}

int osprey_put(osprey_client* client, const void* key, size_t key_length, const void* value,
               size_t value_length, const osprey_write_options* options, osprey_result** result) {
  return Call(client, result, [&](osprey_result& answer) {
    Arguments arguments;
    const absl::string_view key_bytes = arguments.Bytes("key", key, key_length);
    const absl::string_view value_bytes = arguments.Bytes("value", value, value_length);
    const osprey::WriteOptions write = arguments.Write(options);
    if (!arguments.status().ok()) return Take(answer, arguments.status());
    Take(answer, client->client->Put(key_bytes, value_bytes, write));
  });
}

int osprey_delete(osprey_client* client, const void* key, size_t key_length,
                  const osprey_write_options* options, osprey_result** result) {
  return Call(client, result, [&](osprey_result& answer) {
    Arguments arguments;
    const absl::string_view key_bytes = arguments.Bytes("key", key, key_length);
    const osprey::WriteOptions write = arguments.Write(options);
    if (!arguments.status().ok()) return Take(answer, arguments.status());
    Take(answer, client->client->Delete(key_bytes, write));
  });
}

int osprey_increment(osprey_client* client, const void* key, size_t key_length, int64_t by,
                     const osprey_write_options* options, osprey_result** result) {
  return Call(client, result, [&](osprey_result& answer) {
    Arguments arguments;
    const absl::string_view key_bytes = arguments.Bytes("key", key, key_length);
    const osprey::WriteOptions write = arguments.Write(options);
    if (!arguments.status().ok()) return Take(answer, arguments.status());
    Take(answer, client->client->Increment(key_bytes, by, write));
  });
}

int osprey_append(osprey_client* client, const void* key, size_t key_length, const void* value,
                  size_t value_length, const osprey_write_options* options,
                  osprey_result** result) {
  return Call(client, result, [&](osprey_result& answer) {
    Arguments arguments;
    const absl::string_view key_bytes = arguments.Bytes("key", key, key_length);
    const absl::string_view value_bytes = arguments.Bytes("value", value, value_length);
    const osprey::WriteOptions write = arguments.Write(options);
    if (!arguments.status().ok()) return Take(answer, arguments.status());
    Take(answer, client->client->Append(key_bytes, value_bytes, write));
  });
}

int osprey_expire(osprey_client* client, const void* key, size_t key_length, int64_t ttl_us,
                  const osprey_write_options* options, osprey_result** result) {
  return Call(client, result, [&](osprey_result& answer) {
    Arguments arguments;
    const absl::string_view key_bytes = arguments.Bytes("key", key, key_length);
    const osprey::WriteOptions write = arguments.Write(options);
    if (!arguments.status().ok()) return Take(answer, arguments.status());
    Take(answer, client->client->Expire(key_bytes, absl::Microseconds(ttl_us), write));
  });
}

int osprey_persist(osprey_client* client, const void* key, size_t key_length,
                   const osprey_write_options* options, osprey_result** result) {
  return Call(client, result, [&](osprey_result& answer) {
    Arguments arguments;
    const absl::string_view key_bytes = arguments.Bytes("key", key, key_length);
    const osprey::WriteOptions write = arguments.Write(options);
    if (!arguments.status().ok()) return Take(answer, arguments.status());
    Take(answer, client->client->Persist(key_bytes, write));
  });
}

int osprey_ttl(osprey_client* client, const void* key, size_t key_length,
               const osprey_read_options* options, osprey_result** result) {
  return Call(client, result, [&](osprey_result& answer) {
    Arguments arguments;
    const absl::string_view key_bytes = arguments.Bytes("key", key, key_length);
    const absl::Duration deadline = arguments.Deadline(options);
    if (!arguments.status().ok()) return Take(answer, arguments.status());
    Take(answer, Left(client->client->Ttl(key_bytes, deadline)));
  });
}

int osprey_touch(osprey_client* client, const void* key, size_t key_length,
                 const osprey_read_options* options, osprey_result** result) {
  return Call(client, result, [&](osprey_result& answer) {
    Arguments arguments;
    const absl::string_view key_bytes = arguments.Bytes("key", key, key_length);
    const absl::Duration deadline = arguments.Deadline(options);
    if (!arguments.status().ok()) return Take(answer, arguments.status());
    Take(answer, client->client->Touch(key_bytes, deadline));
  });
}

int osprey_flush(osprey_client* client, const osprey_read_options* options,
                 osprey_result** result) {
  return Call(client, result, [&](osprey_result& answer) {
    Arguments arguments;
    const absl::Duration deadline = arguments.Deadline(options);
    if (!arguments.status().ok()) return Take(answer, arguments.status());
    Take(answer, Counted(client->client->Flush(deadline)));
  });
}

int osprey_scan(osprey_client* client, const char* cursor, const osprey_scan_options* options,
                osprey_result** result) {
  return Call(client, result, [&](osprey_result& answer) {
    Arguments arguments;
    const osprey::ScanOptions scan = arguments.Scan(options);
    if (!arguments.status().ok()) return Take(answer, arguments.status());
    Take(answer, client->client->Scan(cursor == nullptr ? "" : cursor, scan));
  });
}

int osprey_count(osprey_client* client, const osprey_read_options* options,
                 osprey_result** result) {
  return Call(client, result, [&](osprey_result& answer) {
    Arguments arguments;
    const absl::Duration deadline = arguments.Deadline(options);
    if (!arguments.status().ok()) return Take(answer, arguments.status());
    Take(answer, Counted(client->client->Count(deadline)));
  });
}

int osprey_ping(osprey_client* client, const osprey_read_options* options, osprey_result** result) {
  return Call(client, result, [&](osprey_result& answer) {
    Arguments arguments;
    const absl::Duration deadline = arguments.Deadline(options);
    if (!arguments.status().ok()) return Take(answer, arguments.status());
    Take(answer, client->client->Ping(deadline));
  });
}

int osprey_server_stats(osprey_client* client, const osprey_read_options* options,
                        osprey_result** result) {
  return Call(client, result, [&](osprey_result& answer) {
    Arguments arguments;
    const absl::Duration deadline = arguments.Deadline(options);
    if (!arguments.status().ok()) return Take(answer, arguments.status());
    Take(answer, client->client->ServerStats(deadline));
  });
}

int osprey_multi_get(osprey_client* client, const osprey_bytes* keys, size_t count,
                     const osprey_read_options* options, osprey_result** result) {
  return Call(client, result, [&](osprey_result& answer) {
    Arguments arguments;
    const std::vector<absl::string_view> key_views = arguments.Keys(keys, count);
    const absl::Duration deadline = arguments.Deadline(options);
    if (!arguments.status().ok()) return Take(answer, arguments.status());
    Take(answer, client->client->MultiGet(key_views, deadline));
  });
}

int osprey_multi_put(osprey_client* client, const osprey_pair* items, size_t count,
                     const osprey_write_options* options, osprey_result** result) {
  return Call(client, result, [&](osprey_result& answer) {
    Arguments arguments;
    const std::vector<osprey::KeyValue> item_views = arguments.Items(items, count);
    const osprey::WriteOptions write = arguments.Write(options);
    if (!arguments.status().ok()) return Take(answer, arguments.status());
    Take(answer, client->client->MultiPut(item_views, write));
  });
}

int osprey_multi_delete(osprey_client* client, const osprey_bytes* keys, size_t count,
                        const osprey_write_options* options, osprey_result** result) {
  return Call(client, result, [&](osprey_result& answer) {
    Arguments arguments;
    const std::vector<absl::string_view> key_views = arguments.Keys(keys, count);
    const osprey::WriteOptions write = arguments.Write(options);
    if (!arguments.status().ok()) return Take(answer, arguments.status());
    Take(answer, client->client->MultiDelete(key_views, write));
  });
}

int osprey_get_into(osprey_client* client, const void* key, size_t key_length,
                    osprey_buffer* buffer, size_t offset, const osprey_read_options* options,
                    osprey_result** result) {
  return Call(client, result, [&](osprey_result& answer) {
    Arguments arguments;
    const absl::string_view key_bytes = arguments.Bytes("key", key, key_length);
    arguments.NotNull("buffer", buffer);
    const absl::Duration deadline = arguments.Deadline(options);
    if (!arguments.status().ok()) return Take(answer, arguments.status());
    Take(answer, client->client->GetInto(key_bytes, buffer->buffer, offset, deadline));
  });
}

int osprey_put_from(osprey_client* client, const void* key, size_t key_length,
                    const osprey_buffer* buffer, size_t offset, size_t length,
                    const osprey_write_options* options, osprey_result** result) {
  return Call(client, result, [&](osprey_result& answer) {
    Arguments arguments;
    const absl::string_view key_bytes = arguments.Bytes("key", key, key_length);
    arguments.NotNull("buffer", buffer);
    const osprey::WriteOptions write = arguments.Write(options);
    if (!arguments.status().ok()) return Take(answer, arguments.status());
    Take(answer, client->client->PutFrom(key_bytes, buffer->buffer, offset, length, write));
  });
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

// The asynchronous operations of osprey.h.

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/c_api/arguments.h"
#include "client/c_api/client.h"
#include "client/c_api/result.h"

using osprey::capi::Arguments;
using osprey::capi::KeyCount;
using osprey::capi::Sink;
using osprey::capi::Start;
using osprey::capi::TimeToLive;

namespace {

// For operations that answer a number of keys, not a version.
auto Counted(const Sink& sink) {
  return sink.With([](const absl::StatusOr<uint64_t>& keys) -> absl::StatusOr<KeyCount> {
    if (!keys.ok()) return keys.status();
    return KeyCount{*keys};
  });
}

auto Left(const Sink& sink) {
  return sink.With([](const absl::StatusOr<absl::Duration>& ttl) -> absl::StatusOr<TimeToLive> {
    if (!ttl.ok()) return ttl.status();
    return TimeToLive{*ttl};
  });
}

}  // namespace

int osprey_start_get(osprey_client* client, const void* key, size_t key_length,
                     const osprey_read_options* options, osprey_callback done, void* context) {
  return Start(client, done, context, [&](const Sink& sink) -> absl::Status {
    Arguments arguments;
    const absl::string_view key_bytes = arguments.Bytes("key", key, key_length);
    const absl::Duration deadline = arguments.Deadline(options);
    if (!arguments.status().ok()) return arguments.status();
    return client->client->StartGet(key_bytes, sink.Plain(), deadline);
  });
}

int osprey_start_exists(osprey_client* client, const void* key, size_t key_length,
                        const osprey_read_options* options, osprey_callback done, void* context) {
  return Start(client, done, context, [&](const Sink& sink) -> absl::Status {
    Arguments arguments;
    const absl::string_view key_bytes = arguments.Bytes("key", key, key_length);
    const absl::Duration deadline = arguments.Deadline(options);
    if (!arguments.status().ok()) return arguments.status();
    return client->client->StartExists(key_bytes, sink.Plain(), deadline);
  });
}

int osprey_start_put(osprey_client* client, const void* key, size_t key_length, const void* value,
                     size_t value_length, const osprey_write_options* options, osprey_callback done,
                     void* context) {
  return Start(client, done, context, [&](const Sink& sink) -> absl::Status {
    Arguments arguments;
    const absl::string_view key_bytes = arguments.Bytes("key", key, key_length);
    const absl::string_view value_bytes = arguments.Bytes("value", value, value_length);
    const osprey::WriteOptions write = arguments.Write(options);
    if (!arguments.status().ok()) return arguments.status();
    return client->client->StartPut(key_bytes, value_bytes, write, sink.Plain());
  });
}

int osprey_start_delete(osprey_client* client, const void* key, size_t key_length,
                        const osprey_write_options* options, osprey_callback done, void* context) {
  return Start(client, done, context, [&](const Sink& sink) -> absl::Status {
    Arguments arguments;
    const absl::string_view key_bytes = arguments.Bytes("key", key, key_length);
    const osprey::WriteOptions write = arguments.Write(options);
    if (!arguments.status().ok()) return arguments.status();
    return client->client->StartDelete(key_bytes, write, sink.Plain());
  });
}

int osprey_start_increment(osprey_client* client, const void* key, size_t key_length, int64_t by,
                           const osprey_write_options* options, osprey_callback done,
                           void* context) {
  return Start(client, done, context, [&](const Sink& sink) -> absl::Status {
    Arguments arguments;
    const absl::string_view key_bytes = arguments.Bytes("key", key, key_length);
    const osprey::WriteOptions write = arguments.Write(options);
    if (!arguments.status().ok()) return arguments.status();
    return client->client->StartIncrement(key_bytes, by, write, sink.Plain());
  });
}

int osprey_start_append(osprey_client* client, const void* key, size_t key_length,
                        const void* value, size_t value_length, const osprey_write_options* options,
                        osprey_callback done, void* context) {
  return Start(client, done, context, [&](const Sink& sink) -> absl::Status {
    Arguments arguments;
    const absl::string_view key_bytes = arguments.Bytes("key", key, key_length);
    const absl::string_view value_bytes = arguments.Bytes("value", value, value_length);
    const osprey::WriteOptions write = arguments.Write(options);
    if (!arguments.status().ok()) return arguments.status();
    return client->client->StartAppend(key_bytes, value_bytes, write, sink.Plain());
  });
}

int osprey_start_expire(osprey_client* client, const void* key, size_t key_length, int64_t ttl_us,
                        const osprey_write_options* options, osprey_callback done, void* context) {
  return Start(client, done, context, [&](const Sink& sink) -> absl::Status {
    Arguments arguments;
    const absl::string_view key_bytes = arguments.Bytes("key", key, key_length);
    const osprey::WriteOptions write = arguments.Write(options);
    if (!arguments.status().ok()) return arguments.status();
    return client->client->StartExpire(key_bytes, absl::Microseconds(ttl_us), write, sink.Plain());
  });
}

int osprey_start_persist(osprey_client* client, const void* key, size_t key_length,
                         const osprey_write_options* options, osprey_callback done, void* context) {
  return Start(client, done, context, [&](const Sink& sink) -> absl::Status {
    Arguments arguments;
    const absl::string_view key_bytes = arguments.Bytes("key", key, key_length);
    const osprey::WriteOptions write = arguments.Write(options);
    if (!arguments.status().ok()) return arguments.status();
    return client->client->StartPersist(key_bytes, write, sink.Plain());
  });
}

int osprey_start_ttl(osprey_client* client, const void* key, size_t key_length,
                     const osprey_read_options* options, osprey_callback done, void* context) {
  return Start(client, done, context, [&](const Sink& sink) -> absl::Status {
    Arguments arguments;
    const absl::string_view key_bytes = arguments.Bytes("key", key, key_length);
    const absl::Duration deadline = arguments.Deadline(options);
    if (!arguments.status().ok()) return arguments.status();
    return client->client->StartTtl(key_bytes, Left(sink), deadline);
  });
}

int osprey_start_touch(osprey_client* client, const void* key, size_t key_length,
                       const osprey_read_options* options, osprey_callback done, void* context) {
  return Start(client, done, context, [&](const Sink& sink) -> absl::Status {
    Arguments arguments;
    const absl::string_view key_bytes = arguments.Bytes("key", key, key_length);
    const absl::Duration deadline = arguments.Deadline(options);
    if (!arguments.status().ok()) return arguments.status();
    return client->client->StartTouch(key_bytes, sink.Plain(), deadline);
  });
}

int osprey_start_flush(osprey_client* client, const osprey_read_options* options,
                       osprey_callback done, void* context) {
  return Start(client, done, context, [&](const Sink& sink) -> absl::Status {
    Arguments arguments;
    const absl::Duration deadline = arguments.Deadline(options);
    if (!arguments.status().ok()) return arguments.status();
    return client->client->StartFlush(Counted(sink), deadline);
  });
}

int osprey_start_scan(osprey_client* client, const char* cursor, const osprey_scan_options* options,
                      osprey_callback done, void* context) {
  return Start(client, done, context, [&](const Sink& sink) -> absl::Status {
    Arguments arguments;
    const osprey::ScanOptions scan = arguments.Scan(options);
    if (!arguments.status().ok()) return arguments.status();
    return client->client->StartScan(cursor == nullptr ? "" : cursor, scan, sink.Plain());
  });
}

int osprey_start_count(osprey_client* client, const osprey_read_options* options,
                       osprey_callback done, void* context) {
  return Start(client, done, context, [&](const Sink& sink) -> absl::Status {
    Arguments arguments;
    const absl::Duration deadline = arguments.Deadline(options);
    if (!arguments.status().ok()) return arguments.status();
    return client->client->StartCount(Counted(sink), deadline);
  });
}

int osprey_start_multi_get(osprey_client* client, const osprey_bytes* keys, size_t count,
                           const osprey_read_options* options, osprey_callback done,
                           void* context) {
  return Start(client, done, context, [&](const Sink& sink) -> absl::Status {
    Arguments arguments;
    const std::vector<absl::string_view> key_views = arguments.Keys(keys, count);
    const absl::Duration deadline = arguments.Deadline(options);
    if (!arguments.status().ok()) return arguments.status();
    return client->client->StartMultiGet(key_views, sink.Plain(), deadline);
  });
}

int osprey_start_multi_put(osprey_client* client, const osprey_pair* items, size_t count,
                           const osprey_write_options* options, osprey_callback done,
                           void* context) {
  return Start(client, done, context, [&](const Sink& sink) -> absl::Status {
    Arguments arguments;
    const std::vector<osprey::KeyValue> item_views = arguments.Items(items, count);
    const osprey::WriteOptions write = arguments.Write(options);
    if (!arguments.status().ok()) return arguments.status();
    return client->client->StartMultiPut(item_views, write, sink.Plain());
  });
}

int osprey_start_multi_delete(osprey_client* client, const osprey_bytes* keys, size_t count,
                              const osprey_write_options* options, osprey_callback done,
                              void* context) {
  return Start(client, done, context, [&](const Sink& sink) -> absl::Status {
    Arguments arguments;
    const std::vector<absl::string_view> key_views = arguments.Keys(keys, count);
    const osprey::WriteOptions write = arguments.Write(options);
    if (!arguments.status().ok()) return arguments.status();
    return client->client->StartMultiDelete(key_views, write, sink.Plain());
  });
}

int osprey_start_get_into(osprey_client* client, const void* key, size_t key_length,
                          osprey_buffer* buffer, size_t offset, const osprey_read_options* options,
                          osprey_callback done, void* context) {
  return Start(client, done, context, [&](const Sink& sink) -> absl::Status {
    Arguments arguments;
    const absl::string_view key_bytes = arguments.Bytes("key", key, key_length);
    arguments.NotNull("buffer", buffer);
    const absl::Duration deadline = arguments.Deadline(options);
    if (!arguments.status().ok()) return arguments.status();
    return client->client->StartGetInto(key_bytes, buffer->buffer, offset, sink.Plain(), deadline);
  });
}

int osprey_start_put_from(osprey_client* client, const void* key, size_t key_length,
                          const osprey_buffer* buffer, size_t offset, size_t length,
                          const osprey_write_options* options, osprey_callback done,
                          void* context) {
  return Start(client, done, context, [&](const Sink& sink) -> absl::Status {
    Arguments arguments;
    const absl::string_view key_bytes = arguments.Bytes("key", key, key_length);
    arguments.NotNull("buffer", buffer);
    const osprey::WriteOptions write = arguments.Write(options);
    if (!arguments.status().ok()) return arguments.status();
    return client->client->StartPutFrom(key_bytes, buffer->buffer, offset, length, write,
                                        sink.Plain());
  });
}

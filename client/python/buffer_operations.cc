#include "client/python/buffer_operations.h"

#include <cstring>
#include <utility>

#include "client/common/errors.h"

namespace osprey::python {

absl::Status StartGetInto(Client& client, absl::string_view key, const Span& span,
                          Client::GetIntoCallback done, absl::Duration deadline) {
  if (span.buffer->zero_copy()) {
    return client.StartGetIntoPart(key, span.buffer->registered(), span.offset, span.length,
                                   std::move(done), deadline);
  }
  auto copy = [&span, done = std::move(done)](absl::StatusOr<Value> value) mutable {
    if (!value.ok()) return done(value.status());
    if (value->bytes.size() > span.length)
      return done(client::BufferTooSmallError(value->bytes.size(), span.length));
    if (!value->bytes.empty()) std::memcpy(span.data(), value->bytes.data(), value->bytes.size());
    done(ValueInfo{value->bytes.size(), value->version, value->ttl});
  };
  return client.StartGet(key, std::move(copy), deadline);
}

absl::Status StartPutFrom(Client& client, absl::string_view key, const Span& span,
                          const WriteOptions& options, Client::WriteCallback done) {
  if (span.buffer->zero_copy()) {
    return client.StartPutFrom(key, span.buffer->registered(), span.offset, span.length, options,
                               std::move(done));
  }
  const absl::string_view value(reinterpret_cast<const char*>(span.data()), span.length);
  return client.StartPut(key, value, options, std::move(done));
}

}  // namespace osprey::python

// The Client's operations on Buffers.

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/client_impl.h"
#include "client/common/errors.h"
#include "client/common/registered_memory.h"

namespace osprey {

std::byte* Buffer::data() const { return memory_ == nullptr ? nullptr : memory_->memory->data(); }
size_t Buffer::size() const { return memory_ == nullptr ? 0 : memory_->size; }

absl::StatusOr<Buffer> Client::AllocateBuffer(size_t bytes) {
  if (bytes == 0) return MakeError(Reason::kBadBuffer, "a buffer of 0 bytes; ask for at least 1");
  absl::StatusOr<std::unique_ptr<rdma::Memory>> memory =
      impl_->domain()->Allocate(bytes, rdma::Access::kRemoteRead);
  if (!memory.ok()) return memory.status();
  return Buffer(std::make_shared<client::RegisteredMemory>(impl_->domain(), *std::move(memory),
                                                           bytes, impl_->engines().exposer_link()));
}

absl::StatusOr<Buffer> Client::RegisterBuffer(std::byte* data, size_t bytes) {
  if (data == nullptr || bytes == 0)
    return MakeError(Reason::kBadBuffer, "no memory was given to register");
  absl::StatusOr<std::unique_ptr<rdma::Memory>> memory =
      impl_->domain()->RegisterSpan(data, bytes, rdma::Access::kRemoteRead);
  if (!memory.ok()) return memory.status();
  return Buffer(std::make_shared<client::RegisteredMemory>(impl_->domain(), *std::move(memory),
                                                           bytes, impl_->engines().exposer_link()));
}

// The span [offset, offset + length) of a buffer of this client.
absl::StatusOr<client::UserMemory> Client::SpanOf(const Buffer& buffer, size_t offset,
                                                  size_t length) const {
  if (offset > buffer.size() || length > buffer.size() - offset) {
    return MakeError(Reason::kBadBuffer, absl::StrCat("bytes ", offset, " to ", offset + length,
                                                      " of a buffer of ", buffer.size()));
  }
  if (buffer.memory_ == nullptr || buffer.memory_->link != impl_->engines().exposer_link()) {
    return MakeError(Reason::kBadBuffer,
                     "the buffer is not of this Client: get one by its AllocateBuffer");
  }
  return client::UserMemory{buffer.data() + offset, length, buffer.memory_};
}

absl::StatusOr<ValueInfo> Client::GetInto(absl::string_view key, Buffer& buffer, size_t offset,
                                          absl::Duration deadline) {
  return impl_->Block<ValueInfo>(
      [&](auto done) { return StartGetInto(key, buffer, offset, std::move(done), deadline); });
}

absl::StatusOr<uint64_t> Client::PutFrom(absl::string_view key, const Buffer& buffer, size_t offset,
                                         size_t length, const WriteOptions& options) {
  return impl_->Block<uint64_t>([&](auto done) {
    return StartPutFrom(key, buffer, offset, length, options, std::move(done));
  });
}

absl::Status Client::StartGetInto(absl::string_view key, Buffer& buffer, size_t offset,
                                  GetIntoCallback done, absl::Duration deadline) {
  const size_t room = offset <= buffer.size() ? buffer.size() - offset : 0;
  return StartGetIntoPart(key, buffer, offset, room, std::move(done), deadline);
}

absl::Status Client::StartGetIntoPart(absl::string_view key, Buffer& buffer, size_t offset,
                                      size_t room, GetIntoCallback done, absl::Duration deadline) {
  absl::StatusOr<absl::Time> end = impl_->DeadlineOf(deadline);
  if (!end.ok()) return end.status();
  absl::StatusOr<client::UserMemory> target = SpanOf(buffer, offset, room);
  if (!target.ok()) return target.status();
  return impl_->StartOf(key).GetInto(key, *std::move(target), *end, std::move(done));
}

absl::Status Client::StartPutFrom(absl::string_view key, const Buffer& buffer, size_t offset,
                                  size_t length, const WriteOptions& options, WriteCallback done) {
  absl::StatusOr<absl::Time> end = impl_->WriteDeadlineOf(options.deadline);
  if (!end.ok()) return end.status();
  absl::StatusOr<client::UserMemory> source = SpanOf(buffer, offset, length);
  if (!source.ok()) return client::WithOutcome(source.status(), client::Outcome::kNotApplied);
  return impl_->StartOf(key).PutFrom(key, *std::move(source), options, *end, std::move(done));
}

}  // namespace osprey

#include "client/python/async_client.h"

#include <utility>
#include <vector>

#include "client/python/errors.h"
#include "client/python/gil.h"
#include "client/python/results.h"

namespace osprey::python {

namespace py = pybind11;

namespace {

// An answer over shm, and over RDMA one that is waited for, comes within this many rounds.
constexpr int kRoundsMax = 4;

}  // namespace

// What outlives the AsyncClient: its Buffers may.
struct AsyncClient::Shared {
  std::shared_ptr<Home> home = std::make_shared<Home>();
  std::vector<Ended> ended;
  bool is_closing = false;  // another thread has the Client, without the GIL
};

AsyncClient::AsyncClient(const std::string& uri, const Options& options)
    : shared_(std::make_shared<Shared>()) {
  absl::StatusOr<std::unique_ptr<Client>> client = absl::UnknownError("");
  {
    const GilReleased released;
    client = Client::Connect(uri, options);
  }
  if (!client.ok()) Raise(client.status(), false);
  client_ = *std::move(client);
}

AsyncClient::~AsyncClient() {
  if (fork_mark_.IsForked()) {
    (void)client_.release();  // the parent's
    new auto(std::move(shared_));
    return;
  }
  Close();
}

Client& AsyncClient::client() {
  fork_mark_.RaiseIfForked();
  if (client_ == nullptr) Raise(ErrorOf("closed", "this Client is closed: make another"));
  return *client_;
}

int AsyncClient::Fileno() { return client().fd(); }

py::list AsyncClient::Poll() {
  if (client_ != nullptr && !fork_mark_.IsForked()) {
    for (int round = 0; round < kRoundsMax; ++round) {
      if (client_->Poll() > 0 || client_->in_flight() == 0) break;
    }
  }
  // (Memory may run out, and the garbage collector's finalizers may start operations.)
  py::list list;
  std::vector<Ended>& ended = shared_->ended;
  for (size_t i = 0; i < ended.size(); ++i)
    list.append(py::make_tuple(ended[i].future, ended[i].result, ended[i].is_error));
  ended.clear();
  return list;
}

py::object AsyncClient::Arm() {
  if (client_ == nullptr) return py::none();
  const absl::Duration left = client_->Arm();
  if (left > absl::ZeroDuration() && client_->in_flight() == 0) return py::none();
  return py::float_(absl::ToDoubleSeconds(left));
}

void AsyncClient::Close() {
  if (client_ == nullptr || fork_mark_.IsForked()) return;
  std::unique_ptr<Client> closing = std::move(client_);
  shared_->is_closing = true;
  {
    const GilReleased released;
    closing.reset();
  }
  shared_->home->SetGone();
  const std::vector<Home::Dropped> swept = shared_->home->Sweep();
}

template <typename T, typename Start, typename ResultOf>
void AsyncClient::Begin(Future future, bool is_write, Start start, ResultOf result_of,
                        std::shared_ptr<Span> kept) {
  Client& at = client();
  auto waiting = std::make_unique<Waiting>(Waiting{future, std::move(kept)});
  // (The GIL is held but in Close.)
  auto done = [shared = shared_, waiting = std::move(waiting), is_write,
               result_of](T result) mutable {
    py::gil_scoped_acquire gil;
    const std::unique_ptr<Waiting> own = std::move(waiting);
    Ended ended{std::move(own->future), py::none(), false};
    try {
      if (result.ok()) {
        ended.result = result_of(*std::move(result));
      } else if (is_write || !absl::IsNotFound(result.status())) {
        ended.is_error = true;
        ended.result = ErrorOf(result.status(), is_write);
      }
    } catch (...) {  // it must not reach the Client, whose Poll this is
      SetCaught();
      ended.is_error = true;
      ended.result = py::error_already_set().value();
    }
    shared->ended.push_back(std::move(ended));
  };
  const absl::Status status = start(at, std::move(done));
  if (status.ok()) return;
  if (absl::IsResourceExhausted(status)) Raise(status, is_write);
  shared_->ended.push_back({std::move(future), ErrorOf(status, is_write), true});
}

// A MultiGet has no status of its own, but those of its keys.
template <typename T>
struct Whole {
  explicit Whole(std::vector<absl::StatusOr<T>> all) : results(std::move(all)) {}
  bool ok() const { return true; }
  absl::Status status() const { return absl::OkStatus(); }
  const std::vector<absl::StatusOr<T>>& operator*() const { return results; }
  std::vector<absl::StatusOr<T>> results;
};

void AsyncClient::Get(Future future, py::handle key, py::handle deadline) {
  const Bytes bytes = Bytes::Key(key);
  const absl::Duration limit = DeadlineOf(deadline);
  Begin<absl::StatusOr<Value>>(
      std::move(future), false,
      [&](Client& client, auto done) {
        return client.StartGet(bytes.view(), std::move(done), limit);
      },
      [](const Value& value) { return ResultOf(value); });
}

void AsyncClient::Exists(Future future, py::handle key, py::handle deadline) {
  const Bytes bytes = Bytes::Key(key);
  const absl::Duration limit = DeadlineOf(deadline);
  Begin<absl::StatusOr<bool>>(
      std::move(future), false,
      [&](Client& client, auto done) {
        return client.StartExists(bytes.view(), std::move(done), limit);
      },
      [](bool is_there) { return py::bool_(is_there); });
}

void AsyncClient::Ttl(Future future, py::handle key, py::handle deadline) {
  const Bytes bytes = Bytes::Key(key);
  const absl::Duration limit = DeadlineOf(deadline);
  // As a write, an absent key is an error: None is "no end".
  Begin<absl::StatusOr<absl::Duration>>(
      std::move(future), true,
      [&](Client& client, auto done) {
        return client.StartTtl(bytes.view(), std::move(done), limit);
      },
      [](absl::Duration ttl) { return SecondsOf(ttl); });
}

namespace {
py::object NumberResult(uint64_t number) { return py::int_(number); }
}  // namespace

void AsyncClient::Put(Future future, py::handle key, py::handle value,
                      const WriteOptions& options) {
  const Bytes bytes = Bytes::Key(key);
  const Bytes content = Bytes::Value(value);
  Begin<absl::StatusOr<uint64_t>>(
      std::move(future), true,
      [&](Client& client, auto done) {
        return client.StartPut(bytes.view(), content.view(), options, std::move(done));
      },
      NumberResult);
}

void AsyncClient::Delete(Future future, py::handle key, const WriteOptions& options) {
  const Bytes bytes = Bytes::Key(key);
  Begin<absl::StatusOr<uint64_t>>(
      std::move(future), true,
      [&](Client& client, auto done) {
        return client.StartDelete(bytes.view(), options, std::move(done));
      },
      NumberResult);
}

void AsyncClient::Increment(Future future, py::handle key, int64_t by,
                            const WriteOptions& options) {
  const Bytes bytes = Bytes::Key(key);
  Begin<absl::StatusOr<Number>>(
      std::move(future), true,
      [&](Client& client, auto done) {
        return client.StartIncrement(bytes.view(), by, options, std::move(done));
      },
      [](const Number& number) { return py::cast(number); });
}

void AsyncClient::Append(Future future, py::handle key, py::handle value,
                         const WriteOptions& options) {
  const Bytes bytes = Bytes::Key(key);
  const Bytes content = Bytes::Value(value);
  Begin<absl::StatusOr<uint64_t>>(
      std::move(future), true,
      [&](Client& client, auto done) {
        return client.StartAppend(bytes.view(), content.view(), options, std::move(done));
      },
      NumberResult);
}

void AsyncClient::Expire(Future future, py::handle key, py::handle ttl,
                         const WriteOptions& options) {
  const Bytes bytes = Bytes::Key(key);
  const absl::Duration time = TtlOf(ttl);
  Begin<absl::StatusOr<uint64_t>>(
      std::move(future), true,
      [&](Client& client, auto done) {
        return client.StartExpire(bytes.view(), time, options, std::move(done));
      },
      NumberResult);
}

void AsyncClient::GetMany(Future future, py::handle keys, py::handle deadline) {
  const Keys wanted(keys);
  const absl::Duration limit = DeadlineOf(deadline);
  Begin<Whole<Value>>(
      std::move(future), false,
      [&](Client& client, auto done) {
        return client.StartMultiGet(
            wanted.views,
            [done = std::move(done)](auto all) mutable { done(Whole<Value>(std::move(all))); },
            limit);
      },
      [](const auto& all) { return ListOf(all); });
}

void AsyncClient::PutMany(Future future, py::object items, const WriteOptions& options) {
  const Items given(std::move(items));
  Begin<Whole<uint64_t>>(
      std::move(future), true,
      [&](Client& client, auto done) {
        return client.StartMultiPut(
            given.pairs, options,
            [done = std::move(done)](auto all) mutable { done(Whole<uint64_t>(std::move(all))); });
      },
      [](const auto& all) { return ListOf(all, /*absent_is_none=*/false); });
}

void AsyncClient::DeleteMany(Future future, py::handle keys, const WriteOptions& options) {
  const Keys wanted(keys);
  Begin<Whole<uint64_t>>(
      std::move(future), true,
      [&](Client& client, auto done) {
        return client.StartMultiDelete(
            wanted.views, options,
            [done = std::move(done)](auto all) mutable { done(Whole<uint64_t>(std::move(all))); });
      },
      [](const auto& all) { return ListOf(all, /*absent_is_none=*/true); });
}

void AsyncClient::ScanPage(Future future, const std::string& cursor, const ScanOptions& options) {
  Begin<absl::StatusOr<osprey::ScanPage>>(
      std::move(future), false,
      [&](Client& client, auto done) { return client.StartScan(cursor, options, std::move(done)); },
      [](const osprey::ScanPage& page) { return PageOf(page); });
}

void AsyncClient::Count(Future future, py::handle deadline) {
  const absl::Duration limit = DeadlineOf(deadline);
  Begin<absl::StatusOr<uint64_t>>(
      std::move(future), false,
      [&](Client& client, auto done) { return client.StartCount(std::move(done), limit); },
      NumberResult);
}

void AsyncClient::Stats(Future future, py::handle deadline) {
  const absl::Duration limit = DeadlineOf(deadline);
  Begin<absl::StatusOr<std::string>>(
      std::move(future), false,
      [&](Client& client, auto done) { return client.StartServerStats(std::move(done), limit); },
      [](const std::string& text) { return py::str(text); });
}

std::shared_ptr<Span> AsyncClient::CheckedSpan(py::handle key, py::handle object, bool writable) {
  (void)Bytes::Key(key);
  return std::make_shared<Span>(SpanOf(*buffers_, object, writable));
}

void AsyncClient::GetInto(Future future, py::handle key, std::shared_ptr<Span> target,
                          py::handle deadline) {
  const Bytes bytes = Bytes::Key(key);
  const absl::Duration limit = DeadlineOf(deadline);
  Begin<absl::StatusOr<ValueInfo>>(
      std::move(future), false,
      [&](Client& client, auto done) {
        return StartGetInto(client, bytes.view(), *target, std::move(done), limit);
      },
      [](const ValueInfo& info) { return ResultOf(info); }, target);
}

void AsyncClient::PutFrom(Future future, py::handle key, std::shared_ptr<Span> source,
                          const WriteOptions& options) {
  const Bytes bytes = Bytes::Key(key);
  Begin<absl::StatusOr<uint64_t>>(
      std::move(future), true,
      [&](Client& client, auto done) {
        return StartPutFrom(client, bytes.view(), *source, options, std::move(done));
      },
      NumberResult, source);
}

std::shared_ptr<PythonBuffer> AsyncClient::MakeBuffer(std::shared_ptr<Home> home,
                                                      std::optional<osprey::Buffer> memory,
                                                      std::shared_ptr<Bytes> source) {
  PythonBuffer::Parts parts;
  parts.map = buffers_;
  parts.drop = [shared = shared_, mark = fork_mark_](const std::shared_ptr<Home>& of,
                                                     Home::Dropped dropped) {
    if (mark.IsForked()) {
      new auto(std::move(dropped));  // the parent's
      return;
    }
    of->Leave(std::move(dropped));
    // Close sweeps otherwise.
    if (!shared->is_closing || of->is_gone()) (void)of->Sweep();
  };
  parts.home = std::move(home);
  parts.memory = std::move(memory);
  parts.source = std::move(source);
  return PythonBuffer::Make(std::move(parts));
}

std::shared_ptr<PythonBuffer> AsyncClient::Allocate(size_t bytes) {
  absl::StatusOr<osprey::Buffer> memory = client().AllocateBuffer(bytes);
  if (!memory.ok()) Raise(memory.status(), false);
  return MakeBuffer(shared_->home, *std::move(memory), nullptr);
}

std::shared_ptr<PythonBuffer> AsyncClient::Register(py::handle memory) {
  auto source = std::make_shared<Bytes>(Bytes::Target(memory));
  absl::StatusOr<osprey::Buffer> registered = client().RegisterBuffer(
      reinterpret_cast<std::byte*>(const_cast<char*>(source->view().data())),
      source->view().size());
  // Over shm.
  if (absl::IsFailedPrecondition(registered.status()))
    return MakeBuffer(nullptr, std::nullopt, std::move(source));
  if (!registered.ok()) Raise(registered.status(), false);
  return MakeBuffer(shared_->home, *std::move(registered), std::move(source));
}

}  // namespace osprey::python

#include "client/python/python_client.h"

#include <algorithm>

#include "client/python/await.h"
#include "client/python/errors.h"
#include "client/python/results.h"

namespace osprey::python {

namespace py = pybind11;

template <typename T, typename Start>
T PythonClient::AwaitRead(absl::Duration deadline, Start start) {
  return AwaitAnswer<T>(
      false, LimitOf(deadline), [&](absl::Duration& left) { return lanes_->Take(left); }, start);
}

template <typename T, typename Start>
T PythonClient::AwaitWrite(const WriteOptions& options, Start start) {
  return AwaitAnswer<T>(
      true, LimitOf(options.deadline), [&](absl::Duration& left) { return lanes_->Take(left); },
      [&](Client& client, absl::Duration left, auto done) {
        WriteOptions own = options;
        own.deadline = left;
        return start(client, own, std::move(done));
      });
}

namespace {

// Whether a GET ended because its slice of the deadline passed, with or without a connection.
bool IsSliceOver(const absl::Status& status, absl::Duration limit) {
  return limit > kSlice && (absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status));
}

}  // namespace

// First the client's blocking form, which takes a third of the time, for a slice: Ctrl-C is not
// noticed meanwhile. What it does not answer is asked for again. (A GET can be repeated.)
py::object PythonClient::Get(py::handle key, py::handle default_value, py::handle deadline) {
  const Bytes bytes = Bytes::Key(key);
  absl::Duration left = LimitOf(DeadlineOf(deadline));
  absl::StatusOr<Value> result = absl::UnknownError("");
  {
    Lanes::Taken lane = lanes_->Take(left);
    const GilReleased released;
    result = lane->Get(bytes.view(), std::min(left, kSlice));
  }
  if (IsSliceOver(result.status(), left)) {
    result = AwaitRead<absl::StatusOr<Value>>(
        left - kSlice, [&](Client& client, absl::Duration rest, auto done) {
          return client.StartGet(bytes.view(), std::move(done), rest);
        });
  }
  if (result.ok()) return ResultOf(*result);
  if (absl::IsNotFound(result.status())) return py::reinterpret_borrow<py::object>(default_value);
  Raise(result.status(), false);
}

uint64_t PythonClient::Put(py::handle key, py::handle value, const WriteOptions& options) {
  const Bytes bytes = Bytes::Key(key);
  const Bytes content = Bytes::Value(value);
  auto result = AwaitWrite<absl::StatusOr<uint64_t>>(
      options, [&](Client& client, const WriteOptions& own, auto done) {
        return client.StartPut(bytes.view(), content.view(), own, std::move(done));
      });
  if (!result.ok()) Raise(result.status(), true);
  return *result;
}

py::object PythonClient::Delete(py::handle key, const WriteOptions& options) {
  const Bytes bytes = Bytes::Key(key);
  auto result = AwaitWrite<absl::StatusOr<uint64_t>>(
      options, [&](Client& client, const WriteOptions& own, auto done) {
        return client.StartDelete(bytes.view(), own, std::move(done));
      });
  if (result.ok()) return py::int_(*result);
  if (absl::IsNotFound(result.status()) && options.if_version == 0) return py::none();
  Raise(result.status(), true);
}

bool PythonClient::Exists(py::handle key, py::handle deadline) {
  const Bytes bytes = Bytes::Key(key);
  auto result = AwaitRead<absl::StatusOr<bool>>(
      DeadlineOf(deadline), [&](Client& client, absl::Duration left, auto done) {
        return client.StartExists(bytes.view(), std::move(done), left);
      });
  if (!result.ok()) Raise(result.status(), false);
  return *result;
}

Number PythonClient::Increment(py::handle key, int64_t by, const WriteOptions& options) {
  const Bytes bytes = Bytes::Key(key);
  auto result = AwaitWrite<absl::StatusOr<Number>>(
      options, [&](Client& client, const WriteOptions& own, auto done) {
        return client.StartIncrement(bytes.view(), by, own, std::move(done));
      });
  if (!result.ok()) Raise(result.status(), true);
  return *result;
}

uint64_t PythonClient::Append(py::handle key, py::handle value, const WriteOptions& options) {
  const Bytes bytes = Bytes::Key(key);
  const Bytes content = Bytes::Value(value);
  auto result = AwaitWrite<absl::StatusOr<uint64_t>>(
      options, [&](Client& client, const WriteOptions& own, auto done) {
        return client.StartAppend(bytes.view(), content.view(), own, std::move(done));
      });
  if (!result.ok()) Raise(result.status(), true);
  return *result;
}

uint64_t PythonClient::Expire(py::handle key, py::handle ttl, const WriteOptions& options) {
  const Bytes bytes = Bytes::Key(key);
  const absl::Duration time = TtlOf(ttl);
  auto result = AwaitWrite<absl::StatusOr<uint64_t>>(
      options, [&](Client& client, const WriteOptions& own, auto done) {
        return client.StartExpire(bytes.view(), time, own, std::move(done));
      });
  if (!result.ok()) Raise(result.status(), true);
  return *result;
}

py::object PythonClient::Ttl(py::handle key, py::handle deadline) {
  const Bytes bytes = Bytes::Key(key);
  auto result = AwaitRead<absl::StatusOr<absl::Duration>>(
      DeadlineOf(deadline), [&](Client& client, absl::Duration left, auto done) {
        return client.StartTtl(bytes.view(), std::move(done), left);
      });
  if (!result.ok()) Raise(result.status(), false);
  return SecondsOf(*result);
}

py::list PythonClient::GetMany(py::handle keys, py::handle deadline) {
  const Keys wanted(keys);
  absl::Duration left = LimitOf(DeadlineOf(deadline));
  std::vector<absl::StatusOr<Value>> results;
  {
    Lanes::Taken lane = lanes_->Take(left);
    const GilReleased released;
    results = lane->MultiGet(wanted.views, std::min(left, kSlice));
  }
  std::vector<size_t> late;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].ok() && IsSliceOver(results[i].status(), left)) late.push_back(i);
  }
  if (!late.empty()) {
    std::vector<absl::string_view> again;
    for (size_t i : late) again.push_back(wanted.views[i]);
    auto answers = AwaitRead<std::vector<absl::StatusOr<Value>>>(
        left - kSlice, [&](Client& client, absl::Duration rest, auto done) {
          return client.StartMultiGet(again, std::move(done), rest);
        });
    for (size_t i = 0; i < late.size(); ++i) results[late[i]] = std::move(answers[i]);
  }
  return ListOf(results);
}

py::list PythonClient::PutMany(py::object items, const WriteOptions& options) {
  const Items given(std::move(items));
  auto results = AwaitWrite<std::vector<absl::StatusOr<uint64_t>>>(
      options, [&](Client& client, const WriteOptions& own, auto done) {
        return client.StartMultiPut(given.pairs, own, std::move(done));
      });
  return ListOf(results, /*absent_is_none=*/false);
}

py::list PythonClient::DeleteMany(py::handle keys, const WriteOptions& options) {
  const Keys wanted(keys);
  auto results = AwaitWrite<std::vector<absl::StatusOr<uint64_t>>>(
      options, [&](Client& client, const WriteOptions& own, auto done) {
        return client.StartMultiDelete(wanted.views, own, std::move(done));
      });
  return ListOf(results, /*absent_is_none=*/true);
}

py::tuple PythonClient::ScanPage(const std::string& cursor, const ScanOptions& options) {
  auto page = AwaitRead<absl::StatusOr<osprey::ScanPage>>(
      options.deadline, [&](Client& client, absl::Duration left, auto done) {
        ScanOptions own = options;
        own.deadline = left;
        return client.StartScan(cursor, own, std::move(done));
      });
  if (!page.ok()) Raise(page.status(), false);
  return PageOf(*page);
}

uint64_t PythonClient::Count(py::handle deadline) {
  auto result = AwaitRead<absl::StatusOr<uint64_t>>(
      DeadlineOf(deadline), [&](Client& client, absl::Duration left, auto done) {
        return client.StartCount(std::move(done), left);
      });
  if (!result.ok()) Raise(result.status(), false);
  return *result;
}

std::string PythonClient::Stats(py::handle deadline) {
  auto result = AwaitRead<absl::StatusOr<std::string>>(
      DeadlineOf(deadline), [&](Client& client, absl::Duration left, auto done) {
        return client.StartServerStats(std::move(done), left);
      });
  if (!result.ok()) Raise(result.status(), false);
  return *std::move(result);
}

}  // namespace osprey::python

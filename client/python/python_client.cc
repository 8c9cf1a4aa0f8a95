#include "client/python/python_client.h"

#include <algorithm>

#include "client/python/await.h"
#include "client/python/errors.h"
#include "client/python/results.h"

namespace osprey::python {

namespace py = pybind11;

template <typename T, typename Start>
T PythonClient::Await(bool is_write, absl::Duration deadline, Start start) {
  return AwaitAnswer<T>(
      is_write, [&] { return lanes_->Take(LimitOf(deadline)); }, start);
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
  const absl::Duration given = DeadlineOf(deadline);
  const absl::Duration limit = LimitOf(given);
  absl::StatusOr<Value> result = absl::UnknownError("");
  {
    Lanes::Taken lane = lanes_->Take(limit);
    const GilReleased released;
    result = lane->Get(bytes.view(), std::min(limit, kSlice));
  }
  if (IsSliceOver(result.status(), limit)) {
    const absl::Duration rest = limit - kSlice;
    result = Await<absl::StatusOr<Value>>(false, rest, [&](Client& client, auto done) {
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
  auto result =
      Await<absl::StatusOr<uint64_t>>(true, options.deadline, [&](Client& client, auto done) {
        return client.StartPut(bytes.view(), content.view(), options, std::move(done));
      });
  if (!result.ok()) Raise(result.status(), true);
  return *result;
}

py::object PythonClient::Delete(py::handle key, const WriteOptions& options) {
  const Bytes bytes = Bytes::Key(key);
  auto result =
      Await<absl::StatusOr<uint64_t>>(true, options.deadline, [&](Client& client, auto done) {
        return client.StartDelete(bytes.view(), options, std::move(done));
      });
  if (result.ok()) return py::int_(*result);
  if (absl::IsNotFound(result.status()) && options.if_version == 0) return py::none();
  Raise(result.status(), true);
}

bool PythonClient::Exists(py::handle key, py::handle deadline) {
  const Bytes bytes = Bytes::Key(key);
  const absl::Duration limit = DeadlineOf(deadline);
  auto result = Await<absl::StatusOr<bool>>(false, limit, [&](Client& client, auto done) {
    return client.StartExists(bytes.view(), std::move(done), limit);
  });
  if (!result.ok()) Raise(result.status(), false);
  return *result;
}

Number PythonClient::Increment(py::handle key, int64_t by, const WriteOptions& options) {
  const Bytes bytes = Bytes::Key(key);
  auto result =
      Await<absl::StatusOr<Number>>(true, options.deadline, [&](Client& client, auto done) {
        return client.StartIncrement(bytes.view(), by, options, std::move(done));
      });
  if (!result.ok()) Raise(result.status(), true);
  return *result;
}

uint64_t PythonClient::Append(py::handle key, py::handle value, const WriteOptions& options) {
  const Bytes bytes = Bytes::Key(key);
  const Bytes content = Bytes::Value(value);
  auto result =
      Await<absl::StatusOr<uint64_t>>(true, options.deadline, [&](Client& client, auto done) {
        return client.StartAppend(bytes.view(), content.view(), options, std::move(done));
      });
  if (!result.ok()) Raise(result.status(), true);
  return *result;
}

uint64_t PythonClient::Expire(py::handle key, py::handle ttl, const WriteOptions& options) {
  const Bytes bytes = Bytes::Key(key);
  const absl::Duration time = TtlOf(ttl);
  auto result =
      Await<absl::StatusOr<uint64_t>>(true, options.deadline, [&](Client& client, auto done) {
        return client.StartExpire(bytes.view(), time, options, std::move(done));
      });
  if (!result.ok()) Raise(result.status(), true);
  return *result;
}

py::object PythonClient::Ttl(py::handle key, py::handle deadline) {
  const Bytes bytes = Bytes::Key(key);
  const absl::Duration limit = DeadlineOf(deadline);
  auto result = Await<absl::StatusOr<absl::Duration>>(false, limit, [&](Client& client, auto done) {
    return client.StartTtl(bytes.view(), std::move(done), limit);
  });
  if (!result.ok()) Raise(result.status(), false);
  return SecondsOf(*result);
}

py::list PythonClient::GetMany(py::handle keys, py::handle deadline) {
  const Keys wanted(keys);
  const absl::Duration limit = LimitOf(DeadlineOf(deadline));
  std::vector<absl::StatusOr<Value>> results;
  {
    Lanes::Taken lane = lanes_->Take(limit);
    const GilReleased released;
    results = lane->MultiGet(wanted.views, std::min(limit, kSlice));
  }
  std::vector<size_t> late;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].ok() && IsSliceOver(results[i].status(), limit)) late.push_back(i);
  }
  if (!late.empty()) {
    std::vector<absl::string_view> again;
    for (size_t i : late) again.push_back(wanted.views[i]);
    const absl::Duration rest = limit - kSlice;
    auto answers =
        Await<std::vector<absl::StatusOr<Value>>>(false, rest, [&](Client& client, auto done) {
          return client.StartMultiGet(again, std::move(done), rest);
        });
    for (size_t i = 0; i < late.size(); ++i) results[late[i]] = std::move(answers[i]);
  }
  return ListOf(results);
}

py::list PythonClient::PutMany(py::object items, const WriteOptions& options) {
  const Items given(std::move(items));
  auto results = Await<std::vector<absl::StatusOr<uint64_t>>>(
      true, options.deadline, [&](Client& client, auto done) {
        return client.StartMultiPut(given.pairs, options, std::move(done));
      });
  return ListOf(results, /*absent_is_none=*/false);
}

py::list PythonClient::DeleteMany(py::handle keys, const WriteOptions& options) {
  const Keys wanted(keys);
  auto results = Await<std::vector<absl::StatusOr<uint64_t>>>(
      true, options.deadline, [&](Client& client, auto done) {
        return client.StartMultiDelete(wanted.views, options, std::move(done));
      });
  return ListOf(results, /*absent_is_none=*/true);
}

py::tuple PythonClient::ScanPage(const std::string& cursor, const ScanOptions& options) {
  auto page = Await<absl::StatusOr<osprey::ScanPage>>(
      false, options.deadline, [&](Client& client, auto done) {
        return client.StartScan(cursor, options, std::move(done));
      });
  if (!page.ok()) Raise(page.status(), false);
  return PageOf(*page);
}

uint64_t PythonClient::Count(py::handle deadline) {
  const absl::Duration limit = DeadlineOf(deadline);
  auto result = Await<absl::StatusOr<uint64_t>>(false, limit, [&](Client& client, auto done) {
    return client.StartCount(std::move(done), limit);
  });
  if (!result.ok()) Raise(result.status(), false);
  return *result;
}

std::string PythonClient::Stats(py::handle deadline) {
  const absl::Duration limit = DeadlineOf(deadline);
  auto result = Await<absl::StatusOr<std::string>>(false, limit, [&](Client& client, auto done) {
    return client.StartServerStats(std::move(done), limit);
  });
  if (!result.ok()) Raise(result.status(), false);
  return *std::move(result);
}

}  // namespace osprey::python

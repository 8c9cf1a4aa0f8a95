#include "client/python/python_client.h"

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

py::object PythonClient::Get(py::handle key, py::object default_value, py::handle deadline) {
  const Bytes bytes = Bytes::Key(key);
  const absl::Duration limit = DeadlineOf(deadline);
  auto result = Await<absl::StatusOr<Value>>(false, limit, [&](Client& client, auto done) {
    return client.StartGet(bytes.view(), std::move(done), limit);
  });
  if (result.ok()) return ResultOf(*result);
  if (absl::IsNotFound(result.status())) return default_value;
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

py::list PythonClient::GetMany(py::iterable keys, py::handle deadline) {
  const Keys wanted(std::move(keys));
  const absl::Duration limit = DeadlineOf(deadline);
  auto results =
      Await<std::vector<absl::StatusOr<Value>>>(false, limit, [&](Client& client, auto done) {
        return client.StartMultiGet(wanted.views, std::move(done), limit);
      });
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

py::list PythonClient::DeleteMany(py::iterable keys, const WriteOptions& options) {
  const Keys wanted(std::move(keys));
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

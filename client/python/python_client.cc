#include "client/python/python_client.h"

#include "client/python/await.h"
#include "client/python/errors.h"
#include "client/python/results.h"

namespace osprey::python {

namespace py = pybind11;

namespace {

// Many keys from an iterable. A str or bytes is iterable too, but never meant.
struct Keys {
  explicit Keys(py::iterable keys) {
    if (py::isinstance<py::str>(keys) || PyObject_CheckBuffer(keys.ptr()))
      throw py::type_error("keys must be an iterable of keys, not one key: write [key]");
    for (py::handle key : keys) bytes.push_back(Bytes::Key(key));
    for (const Bytes& key : bytes) views.push_back(key.view());
  }
  std::vector<Bytes> bytes;
  std::vector<absl::string_view> views;
};

}  // namespace

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
  py::list list;
  for (const absl::StatusOr<Value>& result : results) list.append(ItemOf(result));
  return list;
}

py::list PythonClient::PutMany(py::object items, const WriteOptions& options) {
  if (py::isinstance<py::dict>(items)) items = items.attr("items")();
  std::vector<std::pair<Bytes, Bytes>> bytes;
  for (py::handle item : items) {
    if (!PyTuple_Check(item.ptr()) || PyTuple_GET_SIZE(item.ptr()) != 2)
      throw py::type_error("items must be a dict, or an iterable of tuples (key, value)");
    Bytes key = Bytes::Key(PyTuple_GET_ITEM(item.ptr(), 0));
    bytes.emplace_back(std::move(key), Bytes::Value(PyTuple_GET_ITEM(item.ptr(), 1)));
  }
  std::vector<KeyValue> pairs;
  for (const auto& [key, value] : bytes) pairs.push_back({key.view(), value.view()});
  auto results = Await<std::vector<absl::StatusOr<uint64_t>>>(
      true, options.deadline, [&](Client& client, auto done) {
        return client.StartMultiPut(pairs, options, std::move(done));
      });
  py::list list;
  for (const absl::StatusOr<uint64_t>& result : results) list.append(ItemOf(result, false));
  return list;
}

py::list PythonClient::DeleteMany(py::iterable keys, const WriteOptions& options) {
  const Keys wanted(std::move(keys));
  auto results = Await<std::vector<absl::StatusOr<uint64_t>>>(
      true, options.deadline, [&](Client& client, auto done) {
        return client.StartMultiDelete(wanted.views, options, std::move(done));
      });
  py::list list;
  for (const absl::StatusOr<uint64_t>& result : results) list.append(ItemOf(result, true));
  return list;
}

py::tuple PythonClient::ScanPage(const std::string& cursor, const ScanOptions& options) {
  auto page = Await<absl::StatusOr<osprey::ScanPage>>(
      false, options.deadline, [&](Client& client, auto done) {
        return client.StartScan(cursor, options, std::move(done));
      });
  if (!page.ok()) Raise(page.status(), false);
  py::list items;
  for (const ScanItem& item : page->items) {
    py::object value = py::none();
    if (item.has_value) value = py::bytes(item.value);
    items.append(py::cast(ItemResult{py::bytes(item.key), std::move(value), item.value_length,
                                     item.version, SecondsOf(item.ttl)}));
  }
  return py::make_tuple(items, page->cursor);
}

uint64_t PythonClient::Count(py::handle deadline) {
  const absl::Duration limit = DeadlineOf(deadline);
  auto result = Await<absl::StatusOr<uint64_t>>(false, limit, [&](Client& client, auto done) {
    return client.StartCount(std::move(done), limit);
  });
  if (!result.ok()) Raise(result.status(), false);
  return *result;
}

// The client has no asynchronous form of it.
std::string PythonClient::Stats(py::handle deadline) {
  const absl::Duration limit = DeadlineOf(deadline);
  struct Call {
    Lanes::Taken lane;
    absl::StatusOr<std::string> result;
  };
  auto call = std::make_shared<Call>(Call{lanes_->Take(deadline_), absl::UnknownError("")});
  RunInterruptibly([call, limit] { call->result = call->lane->ServerStats(limit); });
  if (!call->result.ok()) Raise(call->result.status(), false);
  return *call->result;
}

}  // namespace osprey::python

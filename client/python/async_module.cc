// osprey._core.AsyncClient for osprey/aio.py, which has the documentation of the operations.

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <utility>

#include "client/python/async_client.h"

namespace osprey::python {

namespace py = pybind11;
using py::arg;

namespace {

std::unique_ptr<AsyncClient> MakeAsyncClient(const std::string& uri, py::handle connect_timeout,
                                             py::handle deadline, const std::string& auth_key_file,
                                             const Secret& auth_key) {
  Options options;
  if (!connect_timeout.is_none()) options.connect_timeout = DeadlineOf(connect_timeout);
  if (!deadline.is_none()) options.deadline = DeadlineOf(deadline);
  options.auth_key_file = auth_key_file;
  options.auth_key = auth_key.bytes;
  return std::make_unique<AsyncClient>(uri, options);
}

}  // namespace

// Positional arguments alone: aio.py passes all.
void DefineAsyncClient(py::module_& module) {
  using Self = AsyncClient;
  using Handle = py::handle;
  py::class_<AsyncClient>(module, "AsyncClient")
      .def(py::init(&MakeAsyncClient), arg("uri"), py::kw_only(),
           arg("connect_timeout") = py::none(), arg("deadline") = py::none(),
           arg("auth_key_file") = "", arg("auth_key"))
      .def("fileno", &Self::Fileno)
      .def("poll", &Self::Poll)
      .def("arm", &Self::Arm)
      .def("close", &Self::Close)
      .def_property_readonly("in_flight", &Self::in_flight)
      .def_property_readonly("shards", &Self::shards)
      .def("shard_of", &Self::ShardOf)
      .def("allocate", &Self::Allocate)
      .def("register", &Self::Register)
      .def("get", &Self::Get)
      .def("exists", &Self::Exists)
      .def("ttl", &Self::Ttl)
      .def("get_many", &Self::GetMany)
      .def("span", &Self::CheckedSpan)
      .def("get_into", &Self::GetInto)
      .def("count", &Self::Count)
      .def("stats_text", &Self::Stats)
      .def("put",
           [](Self& self, py::object future, Handle key, Handle value, bool if_absent,
              Handle if_version, Handle ttl, Handle deadline) {
             self.Put(std::move(future), key, value,
                      WriteOptionsOf(if_absent, if_version, ttl, deadline));
           })
      .def("put_from",
           [](Self& self, py::object future, Handle key, const std::shared_ptr<Span>& source,
              bool if_absent, Handle if_version, Handle ttl, Handle deadline) {
             self.PutFrom(std::move(future), key, source,
                          WriteOptionsOf(if_absent, if_version, ttl, deadline));
           })
      .def("delete",
           [](Self& self, py::object future, Handle key, Handle if_version, Handle deadline) {
             self.Delete(std::move(future), key,
                         WriteOptionsOf(false, if_version, py::none(), deadline));
           })
      .def("incr",
           [](Self& self, py::object future, Handle key, int64_t by, Handle if_version,
              Handle deadline) {
             self.Increment(std::move(future), key, by,
                            WriteOptionsOf(false, if_version, py::none(), deadline));
           })
      .def("append",
           [](Self& self, py::object future, Handle key, Handle value, Handle if_version,
              Handle deadline) {
             self.Append(std::move(future), key, value,
                         WriteOptionsOf(false, if_version, py::none(), deadline));
           })
      .def("expire",
           [](Self& self, py::object future, Handle key, Handle ttl, Handle if_version,
              Handle deadline) {
             self.Expire(std::move(future), key, ttl,
                         WriteOptionsOf(false, if_version, py::none(), deadline));
           })
      .def("put_many",
           [](Self& self, py::object future, py::object items, bool if_absent, Handle ttl,
              Handle deadline) {
             self.PutMany(std::move(future), std::move(items),
                          WriteOptionsOf(if_absent, py::none(), ttl, deadline));
           })
      .def("delete_many",
           [](Self& self, py::object future, py::handle keys, Handle deadline) {
             self.DeleteMany(std::move(future), keys,
                             WriteOptionsOf(false, py::none(), py::none(), deadline));
           })
      .def("scan_page", [](Self& self, py::object future, const std::string& cursor, Handle prefix,
                           bool values, uint64_t value_bytes_max, uint64_t limit, Handle deadline) {
        self.ScanPage(std::move(future), cursor,
                      ScanOptionsOf(prefix, values, value_bytes_max, limit, deadline));
      });
}

}  // namespace osprey::python

// The operations of osprey.Client, in Python's types. osprey/__init__.py says what they mean.
//
// Thread rule: thread-safe. The caller holds the GIL; waits release it.

#ifndef OSPREY_CLIENT_PYTHON_PYTHON_CLIENT_H_
#define OSPREY_CLIENT_PYTHON_PYTHON_CLIENT_H_

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/python/arguments.h"
#include "client/python/buffers.h"
#include "client/python/instances.h"
#include "client/python/lanes.h"

namespace osprey::python {

class PythonClient {
 public:
  PythonClient(const std::string& uri, const Options& options, int connections_max)
      : lanes_(Lanes::Connect(uri, options, connections_max)), deadline_(options.deadline) {}

  pybind11::object Get(pybind11::handle key, pybind11::handle default_value,
                       pybind11::handle deadline);
  uint64_t Put(pybind11::handle key, pybind11::handle value, const WriteOptions& options);
  pybind11::object Delete(pybind11::handle key, const WriteOptions& options);
  bool Exists(pybind11::handle key, pybind11::handle deadline);
  Number Increment(pybind11::handle key, int64_t by, const WriteOptions& options);
  uint64_t Append(pybind11::handle key, pybind11::handle value, const WriteOptions& options);
  uint64_t Expire(pybind11::handle key, pybind11::handle ttl, const WriteOptions& options);
  pybind11::object Ttl(pybind11::handle key, pybind11::handle deadline);

  pybind11::list GetMany(pybind11::handle keys, pybind11::handle deadline);
  pybind11::list PutMany(pybind11::object items, const WriteOptions& options);
  pybind11::list DeleteMany(pybind11::handle keys, const WriteOptions& options);

  // Without a copy: python_client_buffers.cc.
  std::shared_ptr<PythonBuffer> Allocate(size_t bytes);
  std::shared_ptr<PythonBuffer> Register(pybind11::handle memory);
  pybind11::object GetInto(pybind11::handle key, pybind11::handle target,
                           pybind11::handle deadline);
  uint64_t PutFrom(pybind11::handle key, pybind11::handle source, const WriteOptions& options);
  pybind11::list GetManyInto(pybind11::object items, pybind11::handle deadline);
  pybind11::list PutManyFrom(pybind11::object items, const WriteOptions& options);

  // The items of a page, and the cursor of the next one.
  pybind11::tuple ScanPage(const std::string& cursor, const ScanOptions& options);
  uint64_t Count(pybind11::handle deadline);
  std::string Stats(pybind11::handle deadline);

  void Close() { lanes_->Close(); }
  int connections() const { return lanes_->lanes(); }

 private:
  absl::Duration LimitOf(absl::Duration deadline) const {
    return deadline == absl::ZeroDuration() ? deadline_ : deadline;
  }
  template <typename T, typename Start>
  T AwaitRead(absl::Duration deadline, Start start);
  template <typename T, typename Start>
  T AwaitWrite(const WriteOptions& options, Start start);
  std::shared_ptr<PythonBuffer> MakeBuffer(std::shared_ptr<Home> home,
                                           std::optional<osprey::Buffer> memory,
                                           std::shared_ptr<Bytes> source);
  absl::StatusOr<Lanes::Taken> TryTakeFor(PythonBuffer& buffer, absl::Duration& left);
  Lanes::Taken TakeFor(PythonBuffer& buffer, absl::Duration& left);

  std::shared_ptr<Lanes> lanes_;
  const absl::Duration deadline_;
  const std::shared_ptr<BufferMap> buffers_ = std::make_shared<BufferMap>();
};

}  // namespace osprey::python

template <>
class pybind11::detail::type_caster<osprey::python::PythonClient>
    : public osprey::python::InitializedCaster<osprey::python::PythonClient> {};

#endif  // OSPREY_CLIENT_PYTHON_PYTHON_CLIENT_H_

// The core of osprey.aio.Client: one Client, whose operations end as results of futures.
//
// osprey/aio.py calls Poll when fileno() is readable, when the time of Arm has passed, and after
// each start. No call blocks, but for construction and Close, which run on a thread of the loop's
// executor with the GIL released.
//
// Thread rule: the caller holds the GIL, which makes it thread-safe.

#ifndef OSPREY_CLIENT_PYTHON_ASYNC_CLIENT_H_
#define OSPREY_CLIENT_PYTHON_ASYNC_CLIENT_H_

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "client/client.h"
#include "client/python/arguments.h"
#include "client/python/buffers.h"
#include "client/python/fork_mark.h"
#include "client/python/instances.h"

namespace osprey::python {

class AsyncClient {
 public:
  AsyncClient(const std::string& uri, const Options& options);
  ~AsyncClient();
  AsyncClient(const AsyncClient&) = delete;
  AsyncClient& operator=(const AsyncClient&) = delete;

  int Fileno();
  // Runs what is ready. Returns a list of tuples (future, result, whether it is an exception).
  pybind11::list Poll();
  // Seconds until the next Poll is due, if fileno() is not readable before. 0: now. None: closed,
  // or nothing is in flight.
  pybind11::object Arm();
  int in_flight() const { return client_ == nullptr ? 0 : client_->in_flight(); }
  uint32_t shards() { return client().shards(); }
  uint32_t ShardOf(pybind11::handle key) { return client().ShardOf(Bytes::Key(key).view()); }
  // Ends all operations: the next Poll returns them.
  void Close();

  // Each starts an operation, whose result Poll returns with `future`. Raises LimitReached if it
  // must start later, Closed and Forked, and errors of the arguments' types.
  using Future = pybind11::object;
  void Get(Future future, pybind11::handle key, pybind11::handle deadline);
  void Put(Future future, pybind11::handle key, pybind11::handle value,
           const WriteOptions& options);
  void Delete(Future future, pybind11::handle key, const WriteOptions& options);
  void Exists(Future future, pybind11::handle key, pybind11::handle deadline);
  void Increment(Future future, pybind11::handle key, int64_t by, const WriteOptions& options);
  void Append(Future future, pybind11::handle key, pybind11::handle value,
              const WriteOptions& options);
  void Expire(Future future, pybind11::handle key, pybind11::handle ttl,
              const WriteOptions& options);
  void Ttl(Future future, pybind11::handle key, pybind11::handle deadline);
  void GetMany(Future future, pybind11::handle keys, pybind11::handle deadline);
  void PutMany(Future future, pybind11::object items, const WriteOptions& options);
  void DeleteMany(Future future, pybind11::handle keys, const WriteOptions& options);
  void ScanPage(Future future, const std::string& cursor, const ScanOptions& options);
  void Count(Future future, pybind11::handle deadline);
  void Stats(Future future, pybind11::handle deadline);
  void GetInto(Future future, pybind11::handle key, std::shared_ptr<Span> target,
               pybind11::handle deadline);
  void PutFrom(Future future, pybind11::handle key, std::shared_ptr<Span> source,
               const WriteOptions& options);
  // What those two take. Raises what is wrong with `key` or `object`.
  std::shared_ptr<Span> CheckedSpan(pybind11::handle key, pybind11::handle object, bool writable);

  std::shared_ptr<PythonBuffer> Allocate(size_t bytes);
  std::shared_ptr<PythonBuffer> Register(pybind11::handle memory);

 private:
  struct Ended {
    Future future;
    pybind11::object result;
    bool is_error = false;
  };
  // What an operation holds until its end. It goes with the GIL held.
  struct Waiting {
    Future future;
    std::shared_ptr<Span> kept;
  };
  struct Shared;

  Client& client();
  // `start(client, callback)` starts the operation; `result_of(value)` is its result in Python.
  // `kept` stays until its end.
  template <typename T, typename Start, typename ResultOf>
  void Begin(Future future, bool is_write, Start start, ResultOf result_of,
             std::shared_ptr<Span> kept = nullptr);
  std::shared_ptr<PythonBuffer> MakeBuffer(std::shared_ptr<Home> home,
                                           std::optional<osprey::Buffer> memory,
                                           std::shared_ptr<Bytes> source);

  const ForkMark fork_mark_;
  std::shared_ptr<Shared> shared_;
  std::unique_ptr<Client> client_;  // null: closed
  const std::shared_ptr<BufferMap> buffers_ = std::make_shared<BufferMap>();
};

void DefineAsyncClient(pybind11::module_& module);

}  // namespace osprey::python

template <>
class pybind11::detail::type_caster<osprey::python::AsyncClient>
    : public osprey::python::InitializedCaster<osprey::python::AsyncClient> {};

#endif  // OSPREY_CLIENT_PYTHON_ASYNC_CLIENT_H_

// osprey.Buffer: memory with the buffer protocol, registered for the operations of a client.
//
// A Buffer has a home: the connection (lane, Home) whose Client registered it. Its operations run
// there. If the home is gone, the next operation registers it with another. Over shm only memory
// that the Client allocated can be registered: the operations of other memory copy once, at any
// connection (zero_copy is false).
//
// Views: an array or memoryview of it, and each operation in flight, has one. release() raises while
// there is one, and each keeps the object.
//
// Thread rule: the caller holds the GIL, for destruction as well.

#ifndef OSPREY_CLIENT_PYTHON_BUFFERS_H_
#define OSPREY_CLIENT_PYTHON_BUFFERS_H_

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "client/python/arguments.h"
#include "client/python/home.h"

namespace osprey::python {

class PythonBuffer;

// The Buffers of a client by their addresses.
using BufferMap = std::map<const std::byte*, PythonBuffer*>;

class PythonBuffer : public std::enable_shared_from_this<PythonBuffer> {
 public:
  // Gives the buffer back to its home: when that is next free, or now.
  using Drop = std::function<void(const std::shared_ptr<Home>&, Home::Dropped)>;

  // `source` is the object whose memory it is; null: the Client's own.
  struct Parts {
    std::shared_ptr<BufferMap> map;
    Drop drop;
    std::shared_ptr<Home> home;            // null: copies
    std::optional<osprey::Buffer> memory;  // of home
    std::shared_ptr<Bytes> source;
  };
  // Raises bad_buffer if it overlaps another of the client.
  static std::shared_ptr<PythonBuffer> Make(Parts parts);
  ~PythonBuffer();
  PythonBuffer(const PythonBuffer&) = delete;
  PythonBuffer& operator=(const PythonBuffer&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  uintptr_t address() const { return reinterpret_cast<uintptr_t>(data_); }
  bool zero_copy() const { return parts_.home != nullptr; }
  int views() const { return views_; }
  bool is_released() const { return is_released_; }
  const std::shared_ptr<Home>& home() const { return parts_.home; }
  // Of the home. REQUIRES: zero_copy().
  osprey::Buffer& registered() { return moved_.has_value() ? *moved_ : *parts_.memory; }
  // The home is another from now on, or (null) none.
  void MoveHome(std::shared_ptr<Home> home, std::optional<osprey::Buffer> registered);

  // It was made for an array, with room for its header before it (osprey/_arrays.py).
  bool has_header = false;

  // The Buffer, with a view of it that ends with the last copy of the result.
  std::shared_ptr<PythonBuffer> Use();
  // Raises BufferInUse while there is a view. May be called again.
  void Release();
  // Raises if it is released.
  void CheckUsable() const;
  std::string Describe() const;

  // The buffer protocol. `self` is the Python object.
  static int Export(PyObject* self, Py_buffer* view, int flags);
  static void EndExport(PyObject* self, Py_buffer* view);

 private:
  explicit PythonBuffer(Parts parts);

  Parts parts_;
  std::optional<osprey::Buffer> moved_;  // registered with another home than at first
  std::byte* const data_;
  const size_t size_;
  int views_ = 0;
  bool is_released_ = false;
};

// The bytes of a Buffer that an operation has as its target or source.
struct Span {
  std::shared_ptr<PythonBuffer> buffer;  // of Use: it is not released before
  size_t offset = 0;
  size_t length = 0;

  std::byte* data() const { return buffer->data() + offset; }
};

// `object` is a Buffer of `map`, or contiguous bytes in one: a memoryview, a NumPy array, an object that was registered.
// Raises bad_buffer.
Span SpanOf(const BufferMap& map, pybind11::handle object, bool writable);

void DefineBuffer(pybind11::module_& module);

// Start operations without a copy. Those of Buffers that are not registered copy once. `span` must outlive the
// operation; a zero_copy Buffer must be of `client`.
//
// Thread rule: that of `client`. Without the GIL.
absl::Status StartGetInto(Client& client, absl::string_view key, const Span& span,
                          Client::GetIntoCallback done, absl::Duration deadline);
absl::Status StartPutFrom(Client& client, absl::string_view key, const Span& span,
                          const WriteOptions& options, Client::WriteCallback done);

}  // namespace osprey::python

#endif  // OSPREY_CLIENT_PYTHON_BUFFERS_H_

#include "client/python/buffers.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/common/errors.h"
#include "client/python/errors.h"
#include "client/python/instances.h"

namespace osprey::python {

namespace py = pybind11;

namespace {

[[noreturn]] void RaiseBadBuffer(absl::string_view text) {
  Raise(MakeError(Reason::kBadBuffer, text), false);
}

// The Buffer with the first byte at or before `data`. Null: none.
PythonBuffer* BufferBefore(const BufferMap& map, const std::byte* data) {
  auto next = map.upper_bound(data);
  return next == map.begin() ? nullptr : std::prev(next)->second;
}

// As py::cast, for an object that is known to be a Buffer.
PythonBuffer* InstanceOf(PyObject* self) {
  return reinterpret_cast<py::detail::instance*>(self)
      ->get_value_and_holder()
      .value_ptr<PythonBuffer>();
}

}  // namespace

PythonBuffer::PythonBuffer(Parts parts)
    : parts_(std::move(parts)),
      data_(parts_.source == nullptr
                ? parts_.memory->data()
                : reinterpret_cast<std::byte*>(const_cast<char*>(parts_.source->view().data()))),
      size_(parts_.source == nullptr ? parts_.memory->size() : parts_.source->view().size()) {}

std::shared_ptr<PythonBuffer> PythonBuffer::Make(Parts parts) {
  std::shared_ptr<PythonBuffer> buffer(new PythonBuffer(std::move(parts)));
  BufferMap& map = *buffer->parts_.map;
  const PythonBuffer* before = BufferBefore(map, buffer->data_ + buffer->size_ - 1);
  if (before != nullptr && before->data_ + before->size_ > buffer->data_) {
    RaiseBadBuffer("the memory is registered already: use that Buffer, or release() it first");
  }
  map.emplace(buffer->data_, buffer.get());
  return buffer;
}

PythonBuffer::~PythonBuffer() {
  if (!is_released_) {
    views_ = 0;  // each has a reference: there are none (or the interpreter ends)
    Release();
  }
}

void PythonBuffer::CheckUsable() const {
  if (is_released_) RaiseBadBuffer("the Buffer is released: allocate another");
}

void PythonBuffer::MoveHome(std::shared_ptr<Home> home, std::optional<osprey::Buffer> registered) {
  parts_.home = std::move(home);
  moved_ = std::move(registered);
}

std::shared_ptr<PythonBuffer> PythonBuffer::Use() {
  ++views_;
  return {this, [self = shared_from_this()](PythonBuffer* used) { --used->views_; }};
}

void PythonBuffer::Release() {
  if (is_released_) return;
  if (views_ > 0) {
    Raise(ErrorOf("buffer_in_use",
                  absl::StrCat("the Buffer is in use by ", views_,
                               " views or operations: delete the arrays and memoryviews of it, and "
                               "await its operations, before release()")));
  }
  is_released_ = true;
  // (One that overlaps another was never entered.)
  const auto own = parts_.map->find(data_);
  if (own != parts_.map->end() && own->second == this) parts_.map->erase(own);
  Home::Dropped dropped;
  if (parts_.memory.has_value()) dropped.buffers.push_back(*std::move(parts_.memory));
  if (moved_.has_value()) dropped.buffers.push_back(*std::move(moved_));
  dropped.source = std::move(parts_.source);
  if (parts_.home != nullptr) parts_.drop(parts_.home, std::move(dropped));
}

std::string PythonBuffer::Describe() const {
  if (is_released_) return "<osprey.Buffer, released>";
  return absl::StrCat("<osprey.Buffer of ", size_, " bytes", zero_copy() ? ">" : ", copying>");
}

int PythonBuffer::Export(PyObject* self, Py_buffer* view, int flags) {
  try {
    PythonBuffer& buffer = *InstanceOf(self);
    buffer.CheckUsable();
    if (PyBuffer_FillInfo(view, self, buffer.data_, static_cast<Py_ssize_t>(buffer.size_),
                          /*readonly=*/0, flags) != 0)
      return -1;
    ++buffer.views_;
    return 0;
  } catch (py::error_already_set& error) {
    // The protocol asks for a BufferError.
    view->obj = nullptr;
    const std::string text = py::str(error.value());
    PyErr_SetString(PyExc_BufferError, text.c_str());
    return -1;
  }
}

void PythonBuffer::EndExport(PyObject* self, Py_buffer* /*view*/) { --InstanceOf(self)->views_; }

namespace {

Bytes ViewOf(py::handle object, bool writable) {
  try {
    return writable ? Bytes::Target(object) : Bytes::Value(object);
  } catch (const py::error_already_set&) {
    // The error of a released Buffer is that of its operations.
    if (py::isinstance<PythonBuffer>(object)) py::cast<PythonBuffer&>(object).CheckUsable();
    throw;
  }
}

}  // namespace

Span SpanOf(const BufferMap& map, py::handle object, bool writable) {
  const Bytes view = ViewOf(object, writable);
  const auto* data = reinterpret_cast<const std::byte*>(view.view().data());
  PythonBuffer* buffer = BufferBefore(map, data);
  const size_t length = view.view().size();
  if (buffer == nullptr || data + length > buffer->data() + buffer->size()) {
    RaiseBadBuffer(
        "the memory is in no Buffer of this Client: take it from client.allocate(), or "
        "client.register() it");
  }
  const auto offset = static_cast<size_t>(data - buffer->data());
  return {buffer->Use(), offset, length};
}

void DefineBuffer(py::module_& module) {
  py::class_<Span, std::shared_ptr<Span>>(module, "Span", py::custom_type_setup(ForbidInstances));
  py::class_<PythonBuffer, std::shared_ptr<PythonBuffer>>(
      module, "Buffer", py::custom_type_setup([](PyHeapTypeObject* type) {
        ForbidInstances(type);
        type->ht_type.tp_as_buffer = &type->as_buffer;
        type->as_buffer.bf_getbuffer = &PythonBuffer::Export;
        type->as_buffer.bf_releasebuffer = &PythonBuffer::EndExport;
      }),
      "Memory for get_into and put_from, from client.allocate() or client.register().\n\n"
      "It has the buffer protocol: memoryview(buffer), numpy.frombuffer(buffer, dtype). views: how "
      "many of those, and\n"
      "operations, use it. address: of its first byte. zero_copy: whether operations do without a "
      "copy. A child after a\n"
      "fork must not use it.")
      .def("__len__", &PythonBuffer::size)
      .def("__repr__", &PythonBuffer::Describe)
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](PythonBuffer& self, py::args) { self.Release(); })
      .def_readwrite("_has_header", &PythonBuffer::has_header)
      .def("ptr", &PythonBuffer::address, "As address, a call as in Mooncake.")
      .def("size", &PythonBuffer::size, "As len(), a call as in Mooncake.")
      .def_property_readonly("address", &PythonBuffer::address)
      .def_property_readonly("zero_copy", &PythonBuffer::zero_copy)
      .def_property_readonly("views", &PythonBuffer::views)
      .def_property_readonly("released", &PythonBuffer::is_released)
      .def("release", &PythonBuffer::Release,
           "Gives the memory back. May be called again.\n\n"
           "Raises BufferInUse while a view (memoryview, NumPy array) or an operation uses it. "
           "Without a call\n"
           "it happens when the last reference is gone.");
}

absl::Status StartGetInto(Client& client, absl::string_view key, const Span& span,
                          Client::GetIntoCallback done, absl::Duration deadline) {
  if (span.buffer->zero_copy()) {
    return client.StartGetIntoPart(key, span.buffer->registered(), span.offset, span.length,
                                   std::move(done), deadline);
  }
  auto copy = [&span, done = std::move(done)](absl::StatusOr<Value> value) mutable {
    if (!value.ok()) return done(value.status());
    if (value->bytes.size() > span.length)
      return done(client::BufferTooSmallError(value->bytes.size(), span.length));
    if (!value->bytes.empty()) std::memcpy(span.data(), value->bytes.data(), value->bytes.size());
    done(ValueInfo{value->bytes.size(), value->version, value->ttl});
  };
  return client.StartGet(key, std::move(copy), deadline);
}

absl::Status StartPutFrom(Client& client, absl::string_view key, const Span& span,
                          const WriteOptions& options, Client::WriteCallback done) {
  if (span.buffer->zero_copy()) {
    return client.StartPutFrom(key, span.buffer->registered(), span.offset, span.length, options,
                               std::move(done));
  }
  const absl::string_view value(reinterpret_cast<const char*>(span.data()), span.length);
  return client.StartPut(key, value, options, std::move(done));
}

}  // namespace osprey::python

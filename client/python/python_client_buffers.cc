// The blocking operations without a copy.

#include <utility>

#include "client/python/await.h"
#include "client/python/errors.h"
#include "client/python/python_client.h"
#include "client/python/results.h"

namespace osprey::python {

namespace py = pybind11;

namespace {

struct KeyAndSpan {
  Bytes key;
  Span span;
};

std::vector<KeyAndSpan> ItemsOf(const BufferMap& map, py::object items, bool writable) {
  if (py::isinstance<py::dict>(items)) items = items.attr("items")();
  std::vector<KeyAndSpan> list;
  for (py::handle item : items) {
    if (!PyTuple_Check(item.ptr()) || PyTuple_GET_SIZE(item.ptr()) != 2)
      throw py::type_error("items must be a dict, or an iterable of tuples (key, buffer)");
    Bytes key = Bytes::Key(PyTuple_GET_ITEM(item.ptr(), 0));
    list.push_back({std::move(key), SpanOf(map, PyTuple_GET_ITEM(item.ptr(), 1), writable)});
  }
  return list;
}

// Runs the operations of all items, one home after the other. Those of a home whose lane cannot be had get its error:
// others may have been applied.
template <typename T, typename TakeFor, typename Start>
std::vector<absl::StatusOr<T>> AwaitItems(const std::vector<KeyAndSpan>& items,
                                          absl::Duration deadline, TakeFor take_for, Start start) {
  std::vector<absl::StatusOr<T>> answers(items.size());
  std::vector<size_t> left(items.size());
  for (size_t i = 0; i < items.size(); ++i) left[i] = i;
  const absl::Time end = absl::Now() + deadline;
  while (!left.empty()) {
    PythonBuffer& first = *items[left.front()].span.buffer;
    absl::Duration rest = std::max(end - absl::Now(), absl::Nanoseconds(1));
    absl::StatusOr<Lanes::Taken> lane = take_for(first, rest);  // may change its home
    if (ReasonOf(lane.status()) == Reason::kClosed && left.size() == items.size())
      Raise(lane.status(), false);
    std::vector<size_t> these, others;
    for (size_t i : left) {
      (items[i].span.buffer->home() == first.home() ? these : others).push_back(i);
    }
    if (lane.ok()) {
      AwaitAnswers(
          *std::move(lane), end, these, answers, [&](size_t i) { return items[i].key.view(); },
          start);
    } else {
      for (const size_t i : these) answers[i] = lane.status();
    }
    left = std::move(others);
  }
  return answers;
}

}  // namespace

std::shared_ptr<PythonBuffer> PythonClient::MakeBuffer(std::shared_ptr<Home> home,
                                                       std::optional<osprey::Buffer> memory,
                                                       std::shared_ptr<Bytes> source) {
  PythonBuffer::Parts parts;
  parts.map = buffers_;
  parts.drop = [lanes = lanes_](const std::shared_ptr<Home>& of, Home::Dropped dropped) {
    lanes->Drop(of, std::move(dropped));
  };
  parts.home = std::move(home);
  parts.memory = std::move(memory);
  parts.source = std::move(source);
  return PythonBuffer::Make(std::move(parts));
}

std::shared_ptr<PythonBuffer> PythonClient::Allocate(size_t bytes) {
  absl::StatusOr<osprey::Buffer> memory = absl::UnknownError("");
  std::shared_ptr<Home> home;
  {
    absl::Duration left = deadline_;
    Lanes::Taken lane = lanes_->Take(left);
    home = lane.home();
    const GilReleased released;
    memory = lane->AllocateBuffer(bytes);
  }
  if (!memory.ok()) Raise(memory.status(), false);
  return MakeBuffer(std::move(home), *std::move(memory), nullptr);
}

std::shared_ptr<PythonBuffer> PythonClient::Register(py::handle memory) {
  auto source = std::make_shared<Bytes>(Bytes::Target(memory));
  absl::StatusOr<osprey::Buffer> registered = absl::UnknownError("");
  std::shared_ptr<Home> home;
  {
    absl::Duration left = deadline_;
    Lanes::Taken lane = lanes_->Take(left);
    home = lane.home();
    const GilReleased released;
    // (The view is const, the object is not: Bytes::Target.)
    registered =
        lane->RegisterBuffer(reinterpret_cast<std::byte*>(const_cast<char*>(source->view().data())),
                             source->view().size());
  }
  // Over shm.
  if (absl::IsFailedPrecondition(registered.status()))
    return MakeBuffer(nullptr, std::nullopt, std::move(source));
  if (!registered.ok()) Raise(registered.status(), false);
  return MakeBuffer(std::move(home), *std::move(registered), std::move(source));
}

// The lane for an operation with `buffer`: its home, or any.
absl::StatusOr<Lanes::Taken> PythonClient::TryTakeFor(PythonBuffer& buffer, absl::Duration& left) {
  for (;;) {
    if (!buffer.zero_copy()) return lanes_->TryTake(left);
    const std::shared_ptr<Home> gone = buffer.home();
    absl::StatusOr<std::optional<Lanes::Taken>> taken = lanes_->TryTakeHome(gone, left);
    if (!taken.ok()) return taken.status();
    if (taken->has_value()) return **std::move(taken);
    absl::StatusOr<Lanes::Taken> lane = lanes_->TryTake(left);
    if (!lane.ok()) return lane.status();
    // Another thread has given it a home meanwhile, and may use it there.
    if (buffer.home() != gone) continue;
    absl::StatusOr<osprey::Buffer> moved = (*lane)->RegisterBuffer(buffer.data(), buffer.size());
    if (moved.ok()) {
      buffer.MoveHome(lane->home(), *std::move(moved));
    } else if (absl::IsFailedPrecondition(moved.status())) {
      buffer.MoveHome(nullptr, std::nullopt);
    } else {
      return moved.status();
    }
    return lane;
  }
}

Lanes::Taken PythonClient::TakeFor(PythonBuffer& buffer, absl::Duration& left) {
  absl::StatusOr<Lanes::Taken> lane = TryTakeFor(buffer, left);
  if (!lane.ok()) Raise(lane.status(), false);
  return *std::move(lane);
}

py::object PythonClient::GetInto(py::handle key, py::handle target, py::handle deadline) {
  const Bytes bytes = Bytes::Key(key);
  const Span span = SpanOf(*buffers_, target, /*writable=*/true);
  auto result = AwaitAnswer<absl::StatusOr<ValueInfo>>(
      false, LimitOf(DeadlineOf(deadline)),
      [&](absl::Duration& left) { return TakeFor(*span.buffer, left); },
      [&](Client& client, absl::Duration left, auto done) {
        return StartGetInto(client, bytes.view(), span, std::move(done), left);
      });
  if (result.ok()) return ResultOf(*result);
  if (absl::IsNotFound(result.status())) return py::none();
  Raise(result.status(), false);
}

uint64_t PythonClient::PutFrom(py::handle key, py::handle source, const WriteOptions& options) {
  const Bytes bytes = Bytes::Key(key);
  const Span span = SpanOf(*buffers_, source, /*writable=*/false);
  auto result = AwaitAnswer<absl::StatusOr<uint64_t>>(
      true, LimitOf(options.deadline),
      [&](absl::Duration& left) { return TakeFor(*span.buffer, left); },
      [&](Client& client, absl::Duration left, auto done) {
        WriteOptions own = options;
        own.deadline = left;
        return StartPutFrom(client, bytes.view(), span, own, std::move(done));
      });
  if (!result.ok()) Raise(result.status(), true);
  return *result;
}

py::list PythonClient::GetManyInto(py::object items, py::handle deadline) {
  const std::vector<KeyAndSpan> wanted = ItemsOf(*buffers_, std::move(items), /*writable=*/true);
  const auto results = AwaitItems<ValueInfo>(
      wanted, LimitOf(DeadlineOf(deadline)),
      [&](PythonBuffer& buffer, absl::Duration& left) { return TryTakeFor(buffer, left); },
      [&](Client& client, size_t i, absl::Duration left, auto done) {
        return StartGetInto(client, wanted[i].key.view(), wanted[i].span, std::move(done), left);
      });
  return ListOf(results);
}

py::list PythonClient::PutManyFrom(py::object items, const WriteOptions& options) {
  const std::vector<KeyAndSpan> given = ItemsOf(*buffers_, std::move(items), /*writable=*/false);
  const auto results = AwaitItems<uint64_t>(
      given, LimitOf(options.deadline),
      [&](PythonBuffer& buffer, absl::Duration& left) { return TryTakeFor(buffer, left); },
      [&](Client& client, size_t i, absl::Duration left, auto done) {
        WriteOptions own = options;
        own.deadline = left;
        return StartPutFrom(client, given[i].key.view(), given[i].span, own, std::move(done));
      });
  return ListOf(results, /*absent_is_none=*/false);
}

}  // namespace osprey::python

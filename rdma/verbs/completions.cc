#include "rdma/verbs/completions.h"

#include <algorithm>
#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace osprey::rdma {
namespace {

// Entries of the first completion queue: enough for a client's few connections, or a server's first
// ten. 256 KiB on soft-RoCE.
constexpr uint32_t kEntriesFirst = 4096;
// Queues of one device; a bound on the work of polling them all. Each is twice as large as the one
// before, so soft-RoCE's limit allows some 20,000 connections of the default size.
constexpr size_t kQueuesMax = 128;
// Acknowledging takes a mutex, so many events are acknowledged at once, long before the counter
// could overflow.
constexpr unsigned kAcknowledgeBatch = 64;
// Events read from a channel in one call. More stay in it, and the descriptor stays readable.
constexpr int kEventsPerRead = 128;

}  // namespace

absl::StatusOr<std::unique_ptr<CompletionQueue>> CompletionQueue::Create(const VerbsDevice& device,
                                                                         ibv_comp_channel* channel,
                                                                         uint32_t entries) {
  ibv_cq* queue = ibv_create_cq(device.context, static_cast<int>(entries), nullptr, channel, 0);
  if (queue == nullptr)
    return VerbsError(absl::StrCat("ibv_create_cq of ", entries, " entries"), errno);
  std::unique_ptr<CompletionQueue> result(
      new CompletionQueue(queue, static_cast<uint32_t>(queue->cqe)));
  queue->cq_context = result.get();
  return result;
}

CompletionQueue::~CompletionQueue() {
  // ibv_destroy_cq waits for the acknowledgement.
  if (unacknowledged_ > 0) ibv_ack_cq_events(queue_, unacknowledged_);
  (void)ibv_destroy_cq(queue_);
}

bool CompletionQueue::Fetch() {
  // A negative result means that the queue is unusable (overrun). An async event reports that to
  // its connections.
  const int count = ibv_poll_cq(queue_, kCompletionsPerPoll, completions_);
  next_ = 0;
  end_ = std::max(count, 0);
  return count > 0;
}

bool CompletionQueue::Arm() {
  if (next_ != end_) return false;
  if (!armed_) {
    if (ibv_req_notify_cq(queue_, /*solicited_only=*/0) != 0) return false;
    armed_ = true;
  }
  // A completion between the last poll and the request causes no event.
  return !Fetch();
}

void CompletionQueue::OnEvent() {
  armed_ = false;
  if (++unacknowledged_ < kAcknowledgeBatch) return;
  ibv_ack_cq_events(queue_, unacknowledged_);
  unacknowledged_ = 0;
}

absl::StatusOr<std::unique_ptr<DeviceCompletions>> DeviceCompletions::Create(
    const VerbsDevice& device) {
  absl::StatusOr<CompletionChannel> channel = CreateCompletionChannel(device.context);
  if (!channel.ok()) return channel.status();
  return std::unique_ptr<DeviceCompletions>(new DeviceCompletions(device, *std::move(channel)));
}

absl::StatusOr<CompletionRoom> DeviceCompletions::Reserve(uint32_t entries) {
  uint32_t next_size = kEntriesFirst;
  for (const std::unique_ptr<CompletionQueue>& queue : queues_) {
    if (queue->room() >= entries) return CompletionRoom(queue.get(), entries);
    next_size = 2 * static_cast<uint32_t>(queue->get()->cqe);
  }
  const uint32_t device_max = static_cast<uint32_t>(std::max(device_.attributes.max_cqe, 0));
  if (entries > device_max || queues_.size() >= kQueuesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no room for another connection's ", entries, " completions: ", device_.name,
                     " has ", device_max, " in a queue, and there are ", queues_.size(),
                     " queues of at most ", kQueuesMax));
  }
  next_size = std::min(std::max(next_size, entries), device_max);
  absl::StatusOr<std::unique_ptr<CompletionQueue>> queue =
      CompletionQueue::Create(device_, channel_.get(), next_size);
  if (!queue.ok()) return queue.status();
  queues_.push_back(*std::move(queue));
  return CompletionRoom(queues_.back().get(), entries);
}

void DeviceCompletions::ReadEvents() {
  for (int i = 0; i < kEventsPerRead; i++) {
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(channel_.get(), &queue, &context) != 0) return;
    static_cast<CompletionQueue*>(context)->OnEvent();
  }
}

}  // namespace osprey::rdma

// The common part of all operations: a key, a deadline, a place in a queue.
//
// Operations live in the engine, are recycled and never move. So queues link them directly, and a
// start allocates nothing once the pool is warm.

#ifndef OSPREY_CLIENT_COMMON_OPERATION_H_
#define OSPREY_CLIENT_COMMON_OPERATION_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace osprey::client {

class OperationQueue;

class Operation {
 public:
  enum class Type { kGet, kMessage };

  explicit Operation(Type type) : type_(type) {}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  Type type() const { return type_; }
  absl::string_view key() const {
    return key_length_ <= kInlineKeyBytes ? absl::string_view(short_key_, key_length_)
                                          : absl::string_view(long_key_);
  }
  absl::Time deadline() const { return deadline_; }
  // Started by the user, and neither answered nor cancelled.
  bool active() const { return active_; }
  // The sequence of its request in the session; 0: it has none.
  uint64_t sequence() const { return sequence_; }
  void set_sequence(uint64_t sequence) { sequence_ = sequence; }
  OperationQueue* queue() const { return queue_; }
  // Not OK: it has ended with this error, which is delivered when its connection is gone
  // (engine/operations.h).
  const absl::Status& last_error() const { return last_error_; }
  void set_last_error(absl::Status error) { last_error_ = std::move(error); }
  // It ended with a READ or a reply, and not with an error of the client.
  bool is_answered() const { return is_answered_; }

 protected:
  ~Operation() { assert(queue_ == nullptr); }
  void StartOperation(absl::string_view key, absl::Time deadline) {
    assert(!active_ && queue_ == nullptr);
    key_length_ = key.size();
    if (key.size() <= kInlineKeyBytes) {
      // An empty key (of a ping) may be a null pointer, which memcpy forbids.
      if (!key.empty()) std::memcpy(short_key_, key.data(), key.size());
    } else {
      long_key_.assign(key.data(), key.size());
    }
    deadline_ = deadline;
    sequence_ = 0;
    last_error_ = absl::OkStatus();
    active_ = true;
    is_answered_ = false;
  }
  void EndOperation(bool is_answered) { active_ = false, is_answered_ = is_answered; }

 private:
  friend class OperationQueue;
  // A longer key has its own string, whose storage is kept.
  static constexpr size_t kInlineKeyBytes = 64;

  const Type type_;
  bool active_ = false;
  bool is_answered_ = false;
  size_t key_length_ = 0;
  char short_key_[kInlineKeyBytes];
  std::string long_key_;
  absl::Time deadline_;
  uint64_t sequence_ = 0;
  absl::Status last_error_;
  OperationQueue* queue_ = nullptr;
  Operation* next_ = nullptr;
  Operation* previous_ = nullptr;
};

// First in, first out, with removal from the middle in one step. An operation is in one queue at
// most.
class OperationQueue {
 public:
  OperationQueue() = default;
  OperationQueue(const OperationQueue&) = delete;
  OperationQueue& operator=(const OperationQueue&) = delete;

  bool empty() const { return first_ == nullptr; }
  Operation* first() const { return first_; }
  static Operation* Next(const Operation& operation) { return operation.next_; }

  void PushBack(Operation& operation) {
    assert(operation.queue_ == nullptr);
    operation.queue_ = this;
    operation.previous_ = last_;
    operation.next_ = nullptr;
    (last_ == nullptr ? first_ : last_->next_) = &operation;
    last_ = &operation;
  }
  void PushFront(Operation& operation) {
    assert(operation.queue_ == nullptr);
    operation.queue_ = this;
    operation.next_ = first_;
    operation.previous_ = nullptr;
    (first_ == nullptr ? last_ : first_->previous_) = &operation;
    first_ = &operation;
  }
  // Removes the operation from its queue, if it is in one.
  static void Remove(Operation& operation) {
    OperationQueue* queue = operation.queue_;
    if (queue == nullptr) return;
    (operation.previous_ == nullptr ? queue->first_ : operation.previous_->next_) = operation.next_;
    (operation.next_ == nullptr ? queue->last_ : operation.next_->previous_) = operation.previous_;
    operation.queue_ = nullptr;
    operation.next_ = operation.previous_ = nullptr;
  }
  Operation& PopFront() {
    assert(!empty());
    Operation& operation = *first_;
    Remove(operation);
    return operation;
  }

 private:
  Operation* first_ = nullptr;
  Operation* last_ = nullptr;
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_COMMON_OPERATION_H_

#include "server/stats/admission.h"

#include <algorithm>
#include <cassert>

namespace osprey::server {
namespace {

constexpr size_t kStrangersLeast = 16;
constexpr size_t kStrangersPerSourceLeast = 8;

}  // namespace

size_t AdmissionLimits::strangers_max() const {
  return std::max(connections_max / 4, kStrangersLeast);
}

size_t AdmissionLimits::strangers_per_source_max() const {
  return std::max(strangers_max() / 4, kStrangersPerSourceLeast);
}

Admission::~Admission() { assert(all_.connections == 0 && "it must outlive its tickets"); }

Admission::Answer Admission::Ask(absl::string_view source) {
  Answer answer;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto known = sources_.find(source);
  const Count here = known == sources_.end() ? Count() : known->second;
  if (all_.connections >= limits_.connections_max) {
    ++refusals_.in_all;
    answer.refusal = rdma::RejectReason::kTooManyConnections;
    return answer;
  }
  if (limits_.per_source_max != 0 && here.connections >= limits_.per_source_max) {
    ++refusals_.per_source;
    answer.refusal = rdma::RejectReason::kTooManyFromSource;
    return answer;
  }
  if (limits_.has_strangers && (all_.strangers >= limits_.strangers_max() ||
                                here.strangers >= limits_.strangers_per_source_max())) {
    ++refusals_.strangers;
    answer.refusal = rdma::RejectReason::kTooManyStrangers;
    return answer;
  }
  answer.ticket.admission_ = this;
  answer.ticket.source_ = std::string(source);
  answer.ticket.stranger_ = limits_.has_strangers;
  const size_t stranger = limits_.has_strangers ? 1 : 0;
  Count& count = sources_[answer.ticket.source_];
  ++count.connections;
  count.strangers += stranger;
  ++all_.connections;
  all_.strangers += stranger;
  return answer;
}

void Admission::CountRefusedForDescriptors() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++refusals_.descriptors;
}

void Admission::Drop(const std::string& source, bool stranger) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = sources_.find(source);
  assert(it != sources_.end() && it->second.connections > 0);
  if (stranger) {
    --it->second.strangers;
    --all_.strangers;
  }
  --all_.connections;
  if (--it->second.connections == 0) sources_.erase(it);
}

void Admission::Acquaint(const std::string& source) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = sources_.find(source);
  assert(it != sources_.end() && it->second.strangers > 0);
  --it->second.strangers;
  --all_.strangers;
}

Admission::Refusals Admission::refusals() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return refusals_;
}

size_t Admission::connections() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return all_.connections;
}

size_t Admission::strangers() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return all_.strangers;
}

Admission::Ticket& Admission::Ticket::operator=(Ticket&& other) noexcept {
  if (this == &other) return *this;
  Release();
  admission_ = std::exchange(other.admission_, nullptr);
  source_ = std::move(other.source_);
  stranger_ = other.stranger_;
  return *this;
}

void Admission::Ticket::Known() {
  assert(valid());
  if (std::exchange(stranger_, false)) admission_->Acquaint(source_);
}

void Admission::Ticket::Release() {
  if (admission_ != nullptr) std::exchange(admission_, nullptr)->Drop(source_, stranger_);
}

}  // namespace osprey::server

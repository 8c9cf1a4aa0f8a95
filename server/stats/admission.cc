#include "server/stats/admission.h"

#include <algorithm>
#include <cassert>

namespace osprey::server {
namespace {

constexpr size_t kUnauthenticatedMin = 16;
constexpr size_t kUnauthenticatedPerSourceMin = 8;

}  // namespace

size_t AdmissionLimits::unauthenticated_max() const {
  return std::max(connections_max / 4, kUnauthenticatedMin);
}

size_t AdmissionLimits::unauthenticated_per_source_max() const {
  return std::max(unauthenticated_max() / 4, kUnauthenticatedPerSourceMin);
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
  if (limits_.requires_authentication &&
      (all_.unauthenticated >= limits_.unauthenticated_max() ||
       here.unauthenticated >= limits_.unauthenticated_per_source_max())) {
    ++refusals_.unauthenticated;
    answer.refusal = rdma::RejectReason::kTooManyUnauthenticated;
    return answer;
  }
  answer.ticket.admission_ = this;
  answer.ticket.source_ = std::string(source);
  answer.ticket.unauthenticated_ = limits_.requires_authentication;
  const size_t unauthenticated = limits_.requires_authentication ? 1 : 0;
  Count& count = sources_[answer.ticket.source_];
  ++count.connections;
  count.unauthenticated += unauthenticated;
  ++all_.connections;
  all_.unauthenticated += unauthenticated;
  return answer;
}

void Admission::CountRefusedForDescriptors() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++refusals_.descriptors;
}

void Admission::Drop(const std::string& source, bool unauthenticated) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = sources_.find(source);
  assert(it != sources_.end() && it->second.connections > 0);
  if (unauthenticated) {
    --it->second.unauthenticated;
    --all_.unauthenticated;
  }
  --all_.connections;
  if (--it->second.connections == 0) sources_.erase(it);
}

void Admission::NoteAuthenticated(const std::string& source) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = sources_.find(source);
  assert(it != sources_.end() && it->second.unauthenticated > 0);
  --it->second.unauthenticated;
  --all_.unauthenticated;
}

Admission::Refusals Admission::refusals() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return refusals_;
}

size_t Admission::connections() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return all_.connections;
}

size_t Admission::unauthenticated() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return all_.unauthenticated;
}

Admission::Ticket& Admission::Ticket::operator=(Ticket&& other) noexcept {
  if (this == &other) return *this;
  Release();
  admission_ = std::exchange(other.admission_, nullptr);
  source_ = std::move(other.source_);
  unauthenticated_ = other.unauthenticated_;
  return *this;
}

void Admission::Ticket::Known() {
  assert(valid());
  if (std::exchange(unauthenticated_, false)) admission_->NoteAuthenticated(source_);
}

void Admission::Ticket::Release() {
  if (admission_ != nullptr) std::exchange(admission_, nullptr)->Drop(source_, unauthenticated_);
}

}  // namespace osprey::server

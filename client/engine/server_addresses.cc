#include "client/engine/server_addresses.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/common/errors.h"
#include "rdma/address.h"

namespace osprey::client {
namespace {

// The fault without the fix, which follows a semicolon.
std::string Short(const absl::Status& error, absl::string_view uri) {
  const absl::string_view fault = error.message().substr(0, error.message().find("; "));
  return absl::StrContains(fault, uri) ? std::string(fault) : absl::StrCat(uri, ": ", fault);
}

// As the servers write them: with the port.
std::vector<std::string> Normalised(std::vector<std::string> uris) {
  for (std::string& uri : uris) {
    if (const absl::StatusOr<rdma::Address> address = rdma::ParseAddress(uri); address.ok())
      uri = address->ToString();
  }
  return uris;
}

}  // namespace

ServerAddresses::ServerAddresses(std::vector<std::string> uris)
    : given_(Normalised(std::move(uris))), uris_(given_), errors_(uris_.size()) {
  assert(!uris_.empty());
}

bool ServerAddresses::is_given() const {
  return std::find(given_.begin(), given_.end(), present()) != given_.end();
}

void ServerAddresses::SetLearned(const std::vector<std::string>& uris) {
  const std::vector<std::string> old = std::exchange(uris_, given_);
  const std::vector<absl::Status> old_errors =
      std::exchange(errors_, std::vector<absl::Status>(given_.size()));
  const auto add = [this](const std::string& uri) {
    if (absl::c_linear_search(uris_, uri)) return;
    uris_.push_back(uri);
    errors_.emplace_back();
  };
  absl::c_for_each(uris, add);
  present_ends_ = !absl::c_linear_search(uris_, old[present_]);
  add(old[present_]);
  for (size_t i = 0; i < old.size(); ++i) {
    const auto place = static_cast<size_t>(absl::c_find(uris_, old[i]) - uris_.begin());
    if (place < count()) errors_[place] = old_errors[i];
  }
  present_ = static_cast<size_t>(absl::c_find(uris_, old[present_]) - uris_.begin());
}

void ServerAddresses::Note(absl::Status why) {
  assert(!why.ok());
  if (std::exchange(is_anew_, false)) std::fill(errors_.begin(), errors_.end(), absl::OkStatus());
  errors_[present_] = std::move(why);
  error_ = count() == 1 ? errors_[0] : Together();
}

bool ServerAddresses::EndAttempt() {
  if (std::exchange(present_ends_, false)) {
    uris_.erase(uris_.begin() + static_cast<ptrdiff_t>(present_));
    errors_.erase(errors_.begin() + static_cast<ptrdiff_t>(present_));
    present_ %= count();
  } else {
    present_ = (present_ + 1) % count();
    ++tried_;
  }
  if (tried_ < count()) return true;
  tried_ = 0;
  return false;
}

absl::Status ServerAddresses::Together() const {
  std::string text = absl::StrCat("none of ", count(), " addresses leads to a server");
  absl::string_view separator = ": ";
  for (size_t i = 0; i < count(); ++i) {
    if (errors_[i].ok()) continue;
    absl::StrAppend(&text, separator, Short(errors_[i], uris_[i]));
    separator = "; ";
  }
  absl::StrAppend(&text, "; check that one of these servers runs, and the addresses");
  const absl::Status& first = errors_[0];
  const bool alike = std::all_of(errors_.begin(), errors_.end(), [&](const absl::Status& error) {
    return error.code() == first.code() && ReasonOf(error) == ReasonOf(first);
  });
  if (!alike || first.ok()) return MakeError(Reason::kNoConnection, text);
  return ReasonOf(first) == Reason::kNone ? absl::Status(first.code(), text)
                                          : MakeError(first.code(), ReasonOf(first), text);
}

}  // namespace osprey::client

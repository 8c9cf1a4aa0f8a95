#include "client/engine/server_addresses.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/common/errors.h"

namespace osprey::client {
namespace {

// The fault without the fix, which follows a semicolon.
std::string Short(const absl::Status& error, absl::string_view uri) {
  const absl::string_view fault = error.message().substr(0, error.message().find("; "));
  return absl::StrContains(fault, uri) ? std::string(fault) : absl::StrCat(uri, ": ", fault);
}

}  // namespace

ServerAddresses::ServerAddresses(std::vector<std::string> uris)
    : given_(std::move(uris)), uris_(given_), errors_(uris_.size()) {
  assert(!uris_.empty());
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
  present_ = (present_ + 1) % count();
  if (++tried_ < count()) return true;
  tried_ = 0;
  return false;
}

void ServerAddresses::Succeed() {
  tried_ = 0;
  is_anew_ = true;
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

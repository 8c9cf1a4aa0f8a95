#include "tools/cli/connection.h"

#include "absl/strings/str_cat.h"

namespace osprey {

absl::StatusOr<Client*> KvcliConnection::Connect() {
  if (client_ == nullptr) {
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(server_, options_);
    if (!client.ok()) return client.status();
    client_ = *std::move(client);
    connects_ = client_->counters().connects;
    dataset_ = client_->dataset();
  }
  return client_.get();
}

void KvcliConnection::TellBefore(Output& out) {
  if (client_ == nullptr) return;
  client_->Poll();
  if (!client_->connected())
    out.Note(absl::StrCat("the connection to ", server_, " is lost; connecting again"));
}

void KvcliConnection::TellAfter(Output& out) {
  if (client_ == nullptr || !client_->connected() || client_->counters().connects == connects_)
    return;
  connects_ = client_->counters().connects;
  const bool is_another = client_->dataset() != dataset_;
  dataset_ = client_->dataset();
  out.Note(absl::StrCat("connected to ", server_, " again",
                        is_another ? "; the server was started again, and began empty" : ""));
}

}  // namespace osprey

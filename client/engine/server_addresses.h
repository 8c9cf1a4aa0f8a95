// The addresses at which a client looks for its server, in turn, and why each of them failed.
//
//   present()         the one to connect to, or connected
//   SetLearned(uris)  those besides the given ones
//   Note(why)         the attempt or the connection ends with this error
//   EndAttempt()      it has ended: the next one is present()
//
// A round begins after a connection that has lasted, and after a pause. In it each address is tried once, without a
// pause: a server of a cluster that is no primary has no listener, or answers at once.
//
// Thread rule: one thread.

#ifndef OSPREY_CLIENT_ENGINE_SERVER_ADDRESSES_H_
#define OSPREY_CLIENT_ENGINE_SERVER_ADDRESSES_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace osprey::client {

class ServerAddresses {
 public:
  // REQUIRES: at least one.
  explicit ServerAddresses(std::vector<std::string> uris);

  // Besides the given ones these, no longer those that were learned before. present() stays until it is left.
  void SetLearned(const std::vector<std::string>& uris);

  const std::string& present() const { return uris_[present_]; }
  size_t count() const { return uris_.size(); }
  // Whether present() is one of those that the application named.
  bool is_given() const;
  // No address was tried yet in this round.
  bool round_begins() const { return tried_ == 0; }

  // Why present() fails. The caller reports the end by EndAttempt.
  void Note(absl::Status why);
  // The attempt at present(), or its connection, has ended; the next address is present(). True: it
  // follows at once. False: the round is over, and a pause comes first.
  bool EndAttempt();
  // The attempt has led to a connection.
  void Succeed() { is_anew_ = true; }
  // That connection has lasted: each address may be tried again.
  void BeginRound() { tried_ = 0; }

  // Of one address: its last error; OK: none. Of several: their last errors since the last
  // connection, together. The code and the Reason are those that all addresses share. Else they are
  // UNAVAILABLE and kNoConnection.
  const absl::Status& error() const { return error_; }

 private:
  absl::Status Together() const;

  const std::vector<std::string> given_;  // as rdma::Address writes them
  std::vector<std::string> uris_;         // the given ones come first
  std::vector<absl::Status> errors_;      // by address; OK: none since the last connection
  absl::Status error_;
  size_t present_ = 0;
  bool present_ends_ = false;  // it is neither given nor learned any more
  size_t tried_ = 0;           // in this round
  bool is_anew_ = false;       // errors_ are from before the last connection
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_ENGINE_SERVER_ADDRESSES_H_

// How the two ends of a connection prove to each other that they have the same key, without sending
// it. Pure functions of bytes, but for the key's file and for random bytes.
//
//   client                                   server
//   Hello                               -->
//                                       <--  Challenge {server_nonce}          fresh for each
//                                       connection
//   Response {client_nonce, mac}        -->  mac   == ClientProof(key, nonces, Hello's body)?
//   proof == ServerProof(…)?            <--  Welcome {…, proof}
//
// Both are HMAC-SHA256 (RFC 2104, by libsodium) under the key over
//
//   byte  0          32             64             96
//         +----------+--------------+--------------+---------------------------------------+
//         | label    | server_nonce | client_nonce | ClientProof: Hello's body             |
//         | 0-padded |              |              | ServerProof: session u64, Welcome's   |
//         |          |              |              |   body, its proof zero                |
//         +----------+--------------+--------------+---------------------------------------+
//
// The labels differ, so that no proof can be sent back as the other one; each nonce is one side's
// own and random, so that nothing recorded serves again. The server's proof covers the region's
// address and rkey and the session: a client READs where its server said, or not at all.
//
// Thread rule: all of it is thread-safe.

#ifndef OSPREY_RDMA_AUTHENTICATION_H_
#define OSPREY_RDMA_AUTHENTICATION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace osprey::rdma {

// Less could be guessed by who recorded one exchange; more has no use.
inline constexpr size_t kAuthKeyBytesMin = 32;
inline constexpr size_t kAuthKeyBytesMax = 4096;

using Nonce = std::array<std::byte, 32>;
using Proof = std::array<std::byte, 32>;

// The secret that all servers and clients of one trust domain share. Wiped from memory when the
// last owner lets go; never printed.
class AuthKey {
 public:
  using Pointer = std::shared_ptr<const AuthKey>;

  // Any bytes. Errors: INVALID_ARGUMENT (their number).
  static absl::StatusOr<Pointer> FromBytes(absl::string_view bytes);

  // A regular file whose bytes are the key. Its owner is root or our effective user, and only the
  // owner may read or write it. One newline at the end, after the first kAuthKeyBytesMin bytes, is
  // no part of the key. Errors, one line that names the file and the fix: NOT_FOUND,
  // PERMISSION_DENIED (another user owns it or can read it, or we cannot), INVALID_ARGUMENT (its
  // size, or not a regular file).
  static absl::StatusOr<Pointer> FromFile(const std::string& path);

  ~AuthKey();
  AuthKey(const AuthKey&) = delete;
  AuthKey& operator=(const AuthKey&) = delete;

  const unsigned char* data() const { return bytes_.data(); }
  size_t size() const { return size_; }

 private:
  AuthKey() = default;

  std::array<unsigned char, kAuthKeyBytesMax> bytes_ = {};
  size_t size_ = 0;
};

// Of one exchange.
struct Nonces {
  Nonce server = {};
  Nonce client = {};
};

// `hello_body` as it travels.
Proof ClientProof(const AuthKey& key, const Nonces& nonces, absl::Span<const std::byte> hello_body);
// `welcome_body` as it travels, but for its proof, which is zero. `session` of its header.
Proof ServerProof(const AuthKey& key, const Nonces& nonces, uint64_t session,
                  absl::Span<const std::byte> welcome_body);

// Takes as long whatever the bytes are, so that time does not tell how many were right.
bool SameProof(const Proof& a, const Proof& b);

// From the system's generator.
Nonce RandomNonce();

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_AUTHENTICATION_H_

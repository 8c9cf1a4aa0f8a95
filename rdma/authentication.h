// The two ends of a connection prove to each other that they hold the same key, without sending it.
// All are pure functions of bytes, except those that read the key's file and random bytes.
//
//   client                                   server
//   Hello                               -->
//                                       <--  Challenge {server_nonce}   fresh for each connection
//   Response {client_nonce, mac}        -->  mac   == ClientProof(key, nonces, Hello's body)?
//   proof == ServerProof(…)?            <--  Welcome {…, proof}
//
// A server that tells only of others proves that by ServersProof, instead of a Welcome (rdma/wire/wire.h).
//
// The proofs are HMAC-SHA256 (RFC 2104, by libsodium) under the key over
//
//   byte  0          32             64             96
//         +----------+--------------+--------------+---------------------------------------+
//         | label    | server_nonce | client_nonce | ClientProof: Hello's body             |
//         | 0-padded |              |              | ServerProof: session u64, Welcome's   |
//         |          |              |              |   body, its proof zero                |
//         |          |              |              | ServersProof: cluster u64, addresses  |
//         +----------+--------------+--------------+---------------------------------------+
//
// The labels differ, so that no proof can be sent back as the other one. Each side chooses its own
// random nonce, so that no recorded proof is valid again. The server's proof covers the region's
// address and rkey and the session. A client therefore READs only where its server said.
//
// Thread rule: all of it is thread-safe.

#ifndef OSPREY_RDMA_AUTHENTICATION_H_
#define OSPREY_RDMA_AUTHENTICATION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace osprey::rdma {

// A shorter key could be guessed from one recorded exchange; a longer one adds nothing.
inline constexpr size_t kAuthKeyBytesMin = 32;
inline constexpr size_t kAuthKeyBytesMax = 4096;

using Nonce = std::array<std::byte, 32>;
using Proof = std::array<std::byte, 32>;

// The secret that all servers and clients of one trust domain share. The last owner's destructor
// wipes it from memory; it is never printed.
class AuthKey {
 public:
  using Pointer = std::shared_ptr<const AuthKey>;

  // Takes any bytes. Errors: INVALID_ARGUMENT (their number).
  static absl::StatusOr<Pointer> FromBytes(absl::string_view bytes);

  // Reads a regular file whose bytes are the key. Its owner is root or our effective user, and only
  // the owner may read or write it. One newline at the end, after the first kAuthKeyBytesMin bytes,
  // is not part of the key. The errors have one line that names the file and the fix. NOT_FOUND,
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

// The nonces of one exchange.
struct Nonces {
  Nonce server = {};
  Nonce client = {};
};

// `hello_body` is in wire form.
Proof ClientProof(const AuthKey& key, const Nonces& nonces, absl::Span<const std::byte> hello_body);
// `welcome_body` is in wire form, with a proof of zeros. `session` is the header's.
Proof ServerProof(const AuthKey& key, const Nonces& nonces, uint64_t session,
                  absl::Span<const std::byte> welcome_body);

// `cluster` is the header's session, `servers` the addresses as they travel.
Proof ServersProof(const AuthKey& key, const Nonces& nonces, uint64_t cluster,
                   absl::string_view servers);

// Its duration is independent of the bytes, so that time does not reveal how many were right.
bool SameProof(const Proof& a, const Proof& b);

// Taken from the system's generator.
Nonce RandomNonce();
// Taken from `random`, which returns 64 bits that a peer cannot guess. Tests have one that repeats.
Nonce NonceFrom(absl::FunctionRef<uint64_t()> random);

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_AUTHENTICATION_H_

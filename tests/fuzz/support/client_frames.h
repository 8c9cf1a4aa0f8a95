// What a hostile server says when it greets a client, drawn from the input; and what a client may
// say.

#ifndef OSPREY_TESTS_FUZZ_SUPPORT_CLIENT_FRAMES_H_
#define OSPREY_TESTS_FUZZ_SUPPORT_CLIENT_FRAMES_H_

#include <cstdint>
#include <string>
#include <utility>

#include "client/client.h"
#include "client/read/scans.h"
#include "rdma/authentication.h"
#include "rdma/transport.h"
#include "rdma/wire/protocol.h"
#include "tests/fuzz/support/hostile_region.h"
#include "tests/fuzz/support/hostile_transport.h"
#include "tests/fuzz/support/input.h"

namespace osprey::client {

WriteOptions AnyOptions(fuzz::Input& input, bool put);
std::string AnyValue(fuzz::Input& input);

fuzz::RegionShape AnyShape(fuzz::Input& input);

// Limits of a connection, some of them too small for anything.
rdma::ConnectionLimits AnyLimits(fuzz::Input& input);

// Another value for one field of a Welcome, or for its session.
void LieInWelcome(fuzz::Input& input, rdma::WelcomeBody& body, uint64_t& session);

// To a request of this kind, with its data; without the server's time and the data's length.
std::pair<rdma::ReplyBody, std::string> AnyReply(fuzz::Input& input, fuzz::HostileRegion& region,
                                                 rdma::Opcode request);

// Ends the process unless `frame` is a request as a client may send it.
void MustBeRequest(rdma::Opcode opcode, rdma::FrameBytes frame);

// Ends the process unless the value of a Put by rendezvous, `frame`, stands where it was said to,
// and is the same.
void MustStandStill(rdma::FrameBytes frame, const fuzz::HostileTransport& wire);

// All keys, or some; from `last`, where an earlier one ended, or anywhere. Without deadline, done.
Scans::Request AnyScan(fuzz::Input& input, const ScanPlace& last);

// A challenge with any nonce, which goes to `nonces` with the client's.
std::string ChallengeFrame(fuzz::Input& input, rdma::Nonces& nonces);
// Mostly adds the server's proof to a Welcome, if there is a key.
void Prove(fuzz::Input& input, const rdma::AuthKey::Pointer& key, const rdma::Nonces& nonces,
           uint64_t session, rdma::WelcomeBody& body);

std::string RefusedFrame(uint8_t reason);
std::string DisconnectNoticeFrame(uint64_t session);
// Instead of a Welcome. Mostly proved, if there is a key.
std::string ElsewhereFrame(fuzz::Input& input, const rdma::AuthKey::Pointer& key,
                           const rdma::Nonces& nonces);

}  // namespace osprey::client

#endif  // OSPREY_TESTS_FUZZ_SUPPORT_CLIENT_FRAMES_H_

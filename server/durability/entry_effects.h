// What entries do beside their keys: the sessions and results that they make; and which entries no
// server writes.
//
// Pure functions.

#ifndef OSPREY_SERVER_DURABILITY_ENTRY_EFFECTS_H_
#define OSPREY_SERVER_DURABILITY_ENTRY_EFFECTS_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "server/requests/sessions.h"
#include "server/wal/format/entries.h"

namespace osprey::server {

using SessionImages = std::map<uint64_t, SessionImage>;  // by id

// Why no table has such a key; empty if one may.
absl::string_view WhyImpossible(uint64_t version, uint64_t expiry_ns);
// Why this program never writes such an entry of a kind that it writes; empty if it may.
std::string WhyImpossible(const wal::Entry& entry);

// The beginning or end of a session, or a result, goes into `images`. REQUIRES: WhyImpossible is
// empty.
void NoteClient(const wal::Entry& entry, SessionImages& images);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_DURABILITY_ENTRY_EFFECTS_H_
